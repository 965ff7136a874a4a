"""The options of a warm start, checked before torch is imported."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grpo_core.evaluation.held_out import check_evaluation, prepare_tasks
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.policy.fresh import PRESETS, check_vocab_size, tokenizer_location
from grpo_sdk.errors import UserError, unknown_name
from grpo_sdk.paths import check_makeable, kind_of
from grpo_sdk.plugins.models import check_model
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.task.spec import parse_task_specs

CHECKED_ROWS = 100
"""Rows in which a gold is looked for before a warm start: all of them can take minutes to generate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStartOptions:
    """The options of a warm start.

    Attributes:
        model: Model to start from; not with `preset`.
        add_layers: Layers that the model gets first; see `policy.depth.add_layers`.
        preset: Start from a new model of this shape (see `policy.fresh.PRESETS`).
        vocab_size: Tokens of a new model: its tokenizer is learned from the demos. By default it reads bytes.
        tokenizer: Model or folder whose tokenizer a new model gets; not with `vocab_size`.
        max_steps: Optimizer steps, at most.
        until: End when this share of completions of held-out rows, sampled at temperature 1, is solved.
        batch_size: Examples per step.
        learning_rate: Peak, after a linear warm-up.
        lr_scheduler_type: `cosine` to 0, or `constant`.
        warmup_ratio: Share of the steps that warm up.
        seed: Seed of the new weights, the order of examples and the evaluation.
        eval_size: Held-out rows per task.
        precision: Precision of the products in training; the weights are float32 in any case.
        optimizer: `adamw`, or `muon` for the matrices of the layers, see `MuonAndAdamW`.
        compile: Compile the layers with torch.compile first, which takes a minute or two.
        save_dtype: Type of the weights that are written and evaluated.
        save_every: Optimizer steps after which the model so far is written, in float32; None means every 10 minutes.
        workers: Processes that make the examples of as many tasks at once, and then put batches together.
        device: `auto`, `cpu`, `cuda`, …
        command: The command line, recorded beside the model.
    """

    model: str | None = None
    add_layers: int = 0
    preset: str | None = None
    vocab_size: int | None = None
    tokenizer: str | None = None
    max_steps: int = 1000
    until: float | None = None
    batch_size: int = 64
    learning_rate: float = 1e-3
    lr_scheduler_type: Literal["cosine", "constant"] = "constant"
    warmup_ratio: float = 0.05
    seed: int = 0
    eval_size: int = 512
    precision: Literal["float32", "bfloat16"] = "float32"
    optimizer: Literal["adamw", "muon"] = "adamw"
    compile: bool = False
    save_dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    save_every: int | None = None
    workers: int = 1
    device: str = "auto"
    command: str = ""

    def check(self, task: str, out: str | Path) -> None:
        """Check the start, the folder and the tasks.

        Args:
            task: A task spec.
            out: Folder that receives the model.

        Raises:
            UserError: no start or two, no such model, preset, tokenizer or task, a folder that is taken or cannot be
                made, rows without gold, or TRL is missing.
        """
        if (self.model is None) == (self.preset is None):
            raise UserError("give what to start from: --model NAME, or --preset tiny for a new model; not both.")
        if self.add_layers and self.model is None:
            raise UserError(f"--add-layers {self.add_layers} is for a --model; a --preset has its depth.")
        if self.model is not None and (self.vocab_size, self.tokenizer) != (None, None):
            raise UserError(f"--model {self.model} has its tokenizer: --vocab-size and --tokenizer are for a --preset.")
        if self.vocab_size is not None and self.tokenizer is not None:
            raise UserError("give --vocab-size, to learn a tokenizer, or --tokenizer, to take one; not both.")
        if self.preset is not None and self.preset not in PRESETS:
            raise unknown_name("preset", self.preset, PRESETS)
        if self.vocab_size is not None:
            check_vocab_size(self.vocab_size)
        if importlib.util.find_spec("trl") is None:
            raise UserError("grpo warm-start needs TRL: pip install 'grpo-core[trl]'.")
        folder = Path(out)
        if (kind := kind_of(folder)) not in ("", "a folder"):
            raise UserError(f"--out {out}: it is {kind}; choose another name.")
        if kind and any(folder.iterdir()):
            raise UserError(f"--out {out}: the folder is not empty; choose another.")
        check_makeable(folder, f"--out {out}")
        if self.model is not None:
            check_model(self.model)
        if self.tokenizer is not None:
            tokenizer_location(self.tokenizer)
        # A task that cannot be evaluated is refused before it is trained on for an hour.
        evaluation = EvaluationSettings(size=self.eval_size, seed=self.seed)
        check_evaluation(task, {}, evaluation)
        prepare_tasks(task, {}, evaluation)
        _check_demos(task)

    def as_json(self) -> dict[str, Any]:
        """The options that decide the training, as the record holds them."""
        names = ("batch_size", "learning_rate", "lr_scheduler_type", "seed", "precision", "optimizer", "compile")
        return {name: getattr(self, name) for name in names}


def _check_demos(task: str) -> None:
    """Check that TRL trains what GRPO samples: prompts of one kind, none of which goes on within a message."""
    kinds: dict[str, str] = {}
    for spec in parse_task_specs(task):
        bound = bind(spec)
        demos = bound.with_options(size=min(bound.config.size or CHECKED_ROWS, CHECKED_ROWS)).demos()
        prompt, _ = next(demos, ("", ""))
        kinds["text" if isinstance(prompt, str) else "messages"] = bound.name
        if not isinstance(prompt, str) and prompt[-1]["role"] == "assistant":
            raise UserError(
                f"task {bound.name!r}: its prompts end in a prefilled message by the assistant, which TRL would close "
                "and not continue. Use a template without a prefill."
            )
    if len(kinds) > 1:
        raise UserError(
            f"prompts of {kinds['text']} are text and those of {kinds['messages']} are messages; fine-tune on one kind "
            "at a time."
        )
