"""Presets: sizes of a run under one name. A recipe says how the update is made, a preset how much of everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from grpo_sdk.errors import unknown_name

SOURCE = "pippa's runs of TRL on GSM8K"


@dataclass(frozen=True, slots=True)
class Preset:
    """Sizes of a run.

    A TRL run of `batch` completions a device and `accumulation` passes takes batch x accumulation / generations prompts
    in a step, which is what `prompts_per_step` counts.

    Attributes:
        name: What `--preset` takes.
        summary: One line.
        samples: Training rows.
        epochs: Passes over them.
        learning_rate: Peak learning rate.
        batch: Completions in a forward pass.
        prompts: Prompts in an optimizer step.
        generations: Completions of a prompt.
        more: Further settings: dotted key -> value.
        note: What differs from the source; may be empty.
    """

    name: str
    summary: str
    samples: int
    epochs: int
    learning_rate: float
    batch: int
    prompts: int
    generations: int
    more: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def options(self, steps_per_generation: int = 1) -> dict[str, Any]:
        """Dotted key -> value; as in TRL, a batch is that of one optimizer step, however many a generation gives."""
        return {
            "trainer.train_size": self.samples,
            "trainer.num_train_epochs": float(self.epochs),
            "trainer.learning_rate": self.learning_rate,
            "trainer.micro_batch_size": self.batch,
            "trainer.prompts_per_step": self.prompts * steps_per_generation,
            "trainer.num_generations": self.generations,
            **self.more,
        }


_LONG = {"trainer.max_prompt_length": 512, "trainer.max_completion_length": 256}

_ALL = (
    Preset("baseline", "A first run: small steps of 4 prompts, 2 forward passes each", 100, 20, 5e-5, 8, 4, 4),
    Preset("aggressive", "Few rows, a high rate: learns fast or breaks", 50, 50, 1e-4, 16, 4, 4),
    Preset("memory_optimized", "Large batches at moderate lengths", 100, 30, 5e-5, 32, 8, 4, _LONG),
    Preset(
        "ultra_small", "Twenty rows, one prompt a step", 20, 100, 2e-4, 4, 1, 8,
        note="There a step has 4 completions, half a group of 8, which TRL refuses: here two passes of 4 make one.",
    ),
    Preset(
        "max_gpu", "Fills a large GPU", 100, 30, 1e-4, 64, 8, 8, {**_LONG, "trainer.warmup_ratio": 0.01},
        note="There it took 60 to 70 GB with a model of half a billion parameters.",
    ),
    Preset(
        "overfit", "Learns its own 100 rows by heart, and is evaluated on them",
        100, 20, 5e-5, 8, 4, 4, {"eval.split": "train", "eval.size": 100},
        note="The sizes are baseline's; the source's script leaves them to TRL.",
    ),
)  # fmt: skip

PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _ALL})
"""Every preset by name."""


def preset(name: str) -> Preset:
    """A preset by name.

    Raises:
        UnknownNameError: there is none; says the near match.
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return PRESETS[name]
