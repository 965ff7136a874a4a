"""TRL's supervised trainer, which repeats a step in smaller passes when memory runs out. Importing it imports TRL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from trl import SFTTrainer

from grpo_core.policy.pass_budget import PassBudget, PassLimits, PassSize
from grpo_core.policy.threads import computing_with, update_threads
from grpo_core.training.examples import IGNORED

ROWS_ON_CPU = 32
"""Examples of a pass on the CPU; half as many are slower, and more of unlike lengths hold more padding."""


class ExamplePasses(PassBudget):
    """How many examples a pass of supervised fine-tuning may have.

    Args:
        batch_size: Examples of a step, which are one pass at the start.
        device: Device of the model.
        warn: Receives one warning.
    """

    def __init__(self, batch_size: int, device: torch.device, warn: Callable[[str], None]) -> None:
        rows = min(batch_size, ROWS_ON_CPU) if device.type == "cpu" else batch_size
        advice = "Use --precision bfloat16, a smaller model, or shorter prompts and completions."
        super().__init__(PassLimits(rows, 0, None), "supervised fine-tuning", advice, warn, device)

    def parts(self, inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Split a batch into passes that fit, the longest examples first, each pass as wide as its longest."""
        lengths = inputs["attention_mask"].sum(dim=1)
        for chosen in lengths.argsort(descending=True, stable=True).split(self.limits.rows or len(lengths)):
            width = int(lengths[chosen[0]])
            part = {
                name: value[chosen, :width] if isinstance(value, Tensor) else value for name, value in inputs.items()
            }
            self.running = PassSize(len(chosen), len(chosen) * width, len(chosen))
            yield part


class RepeatingTrainer(SFTTrainer):  # type: ignore[misc] # TRL has no types
    """A trainer whose step is one pass, or several that sum the same gradient.

    Args:
        passes: How large a pass may be.
        **options: Arguments of TRL's trainer; a batch is an optimizer step.
    """

    def __init__(self, *, passes: ExamplePasses, **options: Any) -> None:
        super().__init__(**options)
        self._passes = passes
        self._parameters = self.model.num_parameters()

    def training_step(self, model: Any, inputs: Mapping[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Add the gradient of a batch: the mean over its tokens, however many passes it takes."""
        if num_items_in_batch is None:
            num_items_in_batch = (inputs["labels"][:, 1:] != IGNORED).sum()

        def work() -> Tensor:
            losses = [super(RepeatingTrainer, self).training_step(model, part, num_items_in_batch) for part in parts()]
            return torch.stack(losses).sum()

        def parts() -> Iterator[dict[str, Any]]:
            return self._passes.parts(inputs)

        labels = inputs["labels"]
        with computing_with(update_threads(self._parameters, labels.numel(), labels.device)):
            return self._passes.until_it_fits(work, lambda: model.zero_grad(set_to_none=True))
