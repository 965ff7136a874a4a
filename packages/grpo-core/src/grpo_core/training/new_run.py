"""A new run in a new folder, with one configuration for all ranks, whose accelerators may recommend different ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from grpo_core.config import ResolvedConfig, flatten
from grpo_core.config.hardware import with_values
from grpo_core.config.layers import Source
from grpo_core.policy.ranks import Ranks, in_contact, joined
from grpo_core.profiles import accelerator as accelerators
from grpo_core.tracking.observe import observe
from grpo_core.tracking.presence import working_in
from grpo_core.training.result import RunResult
from grpo_core.training.run_folder import shared_folder
from grpo_core.training.setup import prepare
from grpo_core.training.trainer import Trainer
from grpo_sdk.callbacks import Callback, Callbacks, ResolvedDefault
from grpo_sdk.display.text import format_value
from grpo_sdk.errors import UserError
from grpo_sdk.paths import check_makeable

SIZES = ("trainer.max_completion_length", "trainer.micro_batch_tokens", "engine.max_batch_tokens", "eval.batch_size")
"""What fits an accelerator fits also when it is smaller."""

CHECKPOINTING = "trainer.gradient_checkpointing"

MAX_RANKS = 8
"""Ranks of one kind that are listed."""


def new_run(config: ResolvedConfig, callbacks: Sequence[Callback]) -> RunResult:
    """Train as the configuration says; the folder is unlocked when everything else is closed."""
    with ExitStack() as lock, ExitStack() as resources:
        ranks = resources.enter_context(joined(config.config.device, config.config.trainer.ddp_timeout))
        resolved = agreed(config, ranks)
        output_dir = Path(resolved.config.output_dir)
        observers, observed = Callbacks(), list[ResolvedDefault]()
        if ranks.is_main:
            check_makeable(output_dir, f"output_dir={output_dir} ({resolved.sources['output_dir']})")
            observers, observed = observe(resolved.config, callbacks, resources, resolved.sources)
        setup = prepare(resolved.config, resources, ranks)
        folder = resources.enter_context(closing(shared_folder(output_dir, ranks)))
        if ranks.is_main:
            lock.enter_context(working_in(folder.path))
        resources.enter_context(in_contact(folder.path))
        choices = [*resolved.choices, *observed]
        return Trainer(setup, folder, observers, choices, resources, ranks).run()


def agreed(resolved: ResolvedConfig, ranks: Ranks) -> ResolvedConfig:
    """The configuration of all ranks: the smallest of the sizes that GPU profiles set; every rank takes part.

    Raises:
        UserError: anything else differs; names the ranks and their values.
    """
    if ranks.size == 1:
        return resolved
    config = resolved.config
    own = {
        "accelerator": str(accelerators.detect(config.device)),
        "values": flatten(config),
        "recommended": [key for key, source in resolved.sources.items() if source.kind in ("profile", "default")],
    }
    every = [orjson.loads(each) for each in ranks.gather(orjson.dumps(own, default=str))]
    devices = [each["accelerator"] for each in every]
    smallest: dict[str, Any] = {}
    for key in flatten(config):
        values = [each["values"].get(key) for each in every]
        if all(value == values[0] for value in values):
            continue
        if not all(key in each["recommended"] for each in every) or key not in (*SIZES, CHECKPOINTING):
            raise UserError(_difference(key, values, devices))
        smallest[key] = any(values) if key == CHECKPOINTING else min(value for value in values if value is not None)
    if not smallest:
        return resolved
    why = f"the smallest that fits every rank: {_by_rank(devices)}"
    sources = {key: Source("profile", why) for key in smallest}
    listed = ", ".join(f"{key}={format_value(value)}" for key, value in smallest.items())
    choices = (*resolved.choices, ResolvedDefault("settings", listed, why))
    return replace(
        resolved, config=with_values(config, smallest), sources={**resolved.sources, **sources}, choices=choices
    )


def _difference(key: str, values: Sequence[Any], devices: Sequence[str]) -> str:
    listed = _by_rank([f"{format_value(value)} ({device})" for value, device in zip(values, devices, strict=True)])
    common = "NAME"
    if key == "precision":
        common = "float16" if "float16" in values else "float32"
    return f"{key} is another one on each kind of rank: {listed}. Set one for all: {key}={common}."


def _by_rank(texts: Sequence[str]) -> str:
    """Different texts, each with its ranks: `float16 on ranks 0, 1; bfloat16 on rank 2`."""
    groups: Mapping[str, list[int]] = {text: [] for text in texts}
    for rank, text in enumerate(texts):
        groups[text].append(rank)
    return "; ".join(f"{text} on {_ranks(members)}" for text, members in groups.items())


def _ranks(members: Sequence[int]) -> str:
    shown = ", ".join(map(str, members[:MAX_RANKS])) + (", …" if len(members) > MAX_RANKS else "")
    return f"rank{'s' * (len(members) > 1)} {shown}"
