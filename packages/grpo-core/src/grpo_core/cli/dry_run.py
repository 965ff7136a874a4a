"""`grpo run --dry-run`: what a run would do and need, with nothing loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_core.config.hardware import hardware_of, machine_choice, memory_plan, needs
from grpo_core.evaluation.held_out import trained_tasks
from grpo_core.profiles import accelerator as accelerators
from grpo_core.profiles.estimate import MemoryEstimate, estimate, tokens_in_pass
from grpo_core.profiles.model_shape import ModelShape, model_shape
from grpo_core.training.checks import check_choices, check_tasks
from grpo_core.training.rank_shares import check_shares, check_sharing
from grpo_sdk.errors import GrpoError, first_line
from grpo_sdk.hub.cache import cached_file
from grpo_sdk.hub.network import offline_reason
from grpo_sdk.plugins.models import adapter_base, model_source

if TYPE_CHECKING:
    from grpo_core.config import ResolvedConfig, RunConfig
    from grpo_core.profiles.accelerator import Accelerator

MAX_PROMPTS = 1000
"""Prompts whose tokens are counted."""

MAX_BYTES = 2**53
"""Largest number of bytes in JSON: what every reader of JSON takes for a whole number."""

CHARACTERS_PER_TOKEN = 3
"""Where the model's tokenizer is not on this machine; English prose has 4 to 5, numbers and code fewer."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a run would need.

    Attributes:
        shape: The model's; None where it cannot be known.
        accelerator: What it would run on.
        processes: Processes of the run.
        prompt_tokens: Mean tokens of a prompt, and how they were counted.
        need: The memory of one process, where the model's shape is known.
        pass_tokens: Tokens of the largest forward pass.
    """

    shape: ModelShape | None
    accelerator: Accelerator
    processes: int
    prompt_tokens: tuple[int, str]
    need: MemoryEstimate | None
    pass_tokens: int


def dry_run(resolved: ResolvedConfig) -> DryRun:
    """Compute what a run would need.

    Raises:
        UserError: the run would be refused: a device that is not here, more rows than a task has, or settings that do
            not fit the tasks, the backend or the number of processes.
    """
    config = resolved.config
    assert config.model is not None, "the configuration is resolved"
    shape, hardware = model_shape(config.model), hardware_of(config)
    accelerator = accelerators.detect(config.device) if hardware is None else hardware.accelerator
    if accelerator.backend == "cpu":  # else the device, or one that `profile` names for another machine
        accelerators.check_device(config.device)
    processes = accelerators.process_count()
    check_shares(config.trainer, processes, accelerators.node_process_count())
    check_sharing(config, accelerator.backend, config.precision)
    _check_arguments(config)
    prompt = _prompt_tokens(resolved)
    if shape is None:
        return DryRun(None, accelerator, processes, prompt, None, 0)
    plan = memory_plan(config, shape, accelerator, prompt[0])
    return DryRun(shape, accelerator, processes, prompt, estimate(plan), tokens_in_pass(plan))


def _check_arguments(config: RunConfig) -> None:
    if any(variant.arguments for variant in config.trainer.variants):
        from grpo_core.training.algorithm import Algorithm  # imports torch

        Algorithm.of(config.trainer)
    if config.engine.args or config.engine.url is not None:
        from grpo_core.policy.sampler import bind_engine  # imports torch

        bind_engine(config.engine)


def report(resolved: ResolvedConfig, dry: DryRun) -> list[tuple[str, str]]:
    """What a run would do and need: (label, text) a line."""
    config = resolved.config
    trainer = config.trainer
    lines = [
        ("task", config.task),
        ("model", f"{config.model}, {_size(config.model or '', dry.shape)}"),
        ("device", str(dry.accelerator)),
    ]
    lines += [(choice.what, f"{choice.value}: {choice.why}") for choice in (machine_choice(config), *resolved.choices)]
    step = f"{trainer.prompts_per_step} prompts x {trainer.num_generations} completions of up to "
    step += f"{trainer.max_completion_length} tokens; prompts of {dry.prompt_tokens[0]} tokens ({dry.prompt_tokens[1]})"
    lines.append(("step", step))
    if dry.processes > 1:
        lines.append(("processes", f"{dry.processes}; passes and memory are those of each"))
    if dry.need is not None:
        passes = f"up to {dry.pass_tokens} tokens in a forward pass"
        if trainer.gradient_checkpointing:
            passes += ", activations computed again in the backward pass"
        if trainer.micro_batch_size == "auto":
            share = f"{trainer.micro_batch_memory:g} of the memory"
            passes += f"; trainer.micro_batch_size=auto tries before the first step how many completions fit {share}"
        lines += [("passes", passes), ("memory", needs(dry.need, dry.accelerator))]
    else:
        lines.append(("memory", "unknown, as the size of the model is"))
    return lines


def as_data(resolved: ResolvedConfig, dry: DryRun) -> dict[str, Any]:
    """The same for `--json`, memory in bytes."""
    shape, need, choices = dry.shape, dry.need, (machine_choice(resolved.config), *resolved.choices)
    return {
        "task": resolved.config.task,
        "model": resolved.config.model,
        "parameters": None if shape is None else shape.parameters,
        "accelerator": {
            "name": dry.accelerator.name,
            "backend": dry.accelerator.backend,
            "memory": dry.accelerator.memory,
            "capability": dry.accelerator.capability,
        },
        "processes": dry.processes,
        "prompt_tokens": dry.prompt_tokens[0],
        "pass_tokens": dry.pass_tokens or None,
        "memory": None if need is None else _whole({"total": need.total, **need.parts}),
        "choices": [{"what": each.what, "value": each.value, "why": each.why} for each in choices],
    }


def _whole(parts: Mapping[str, float]) -> dict[str, int]:
    return {name: int(min(size, MAX_BYTES)) for name, size in parts.items()}


def _size(model: str, shape: ModelShape | None) -> str:
    if shape is None and model_source(model).kind == "hub":
        why = f" ({reason})" if (reason := offline_reason()) else ""
        return f"of unknown size: its config.json is neither in the cache nor can be fetched{why}, or names no sizes"
    if shape is None:
        return "of unknown size: it names no sizes, or sizes that no model has"
    return f"{shape.parameters / 1e6:,.1f} M parameters ({shape.source})"


def _prompt_tokens(resolved: ResolvedConfig) -> tuple[int, str]:
    """Mean tokens of the tasks' prompts, within the limit; the limit itself where their rows cannot be read."""
    longest = resolved.config.trainer.max_prompt_length
    try:
        tasks = list(trained_tasks(resolved.config).values())
        texts = [text for task in tasks for text in _texts(task)]
    except GrpoError as error:  # a data set that is not in the cache: the rest can be told all the same
        return longest, f"the limit: {first_line(error)}"
    check_choices(resolved.config, tasks)
    check_tasks(resolved.config, tasks)
    count, how = _counter(resolved.config.model or "")
    lengths = [min(longest, count(text)) for text in texts]
    return max(1, round(sum(lengths) / max(1, len(lengths)))), f"the mean of {len(lengths)}, {how}"


def _texts(task: Any) -> list[str]:
    prompts = [task.prompt(row) for row in task.rows()[:MAX_PROMPTS]]
    return [
        prompt if isinstance(prompt, str) else "\n".join(message["content"] for message in prompt) for prompt in prompts
    ]


def _counter(model: str) -> tuple[Any, str]:
    """A function that counts a text's tokens, and how it does."""
    source = model_source(model)
    if source.kind == "adapter":
        source = model_source(adapter_base(source.location))
    path = Path(source.location) / "tokenizer.json"
    if source.kind == "hub":
        path = cached_file(source.location, "tokenizer.json") or path
    if not path.is_file():
        return lambda text: len(text) // CHARACTERS_PER_TOKEN + 1, f"at {CHARACTERS_PER_TOKEN} characters a token"
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    return lambda text: len(tokenizer.encode(text).ids), "by the model's tokenizer"
