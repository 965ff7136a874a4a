"""What a model answers to eight prompts, by which its other forms (a reference, a merged copy) are held to be it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grpo_core.algorithms.causal_lm import evaluating, special_settings
from grpo_core.errors import UserError

N_PROMPTS, LENGTH = 8, 32
"""Prompts that are compared, and their tokens, which are spread over the whole vocabulary."""

TOLERANCE = 1e-4
"""Difference of logits, as a share of the largest or of 1: products in another order differ by far less in float32."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Logits of a model, as it was.

    Attributes:
        logits: [N_PROMPTS, LENGTH, V] in float32, on the CPU.
        began: When they were asked for.
        settings: What its adapter is, for errors.
    """

    logits: Tensor
    began: float
    settings: str

    @classmethod
    def of(cls, model: Any) -> Answers:
        """Ask a PEFT model that is whole on this rank."""
        began = time.monotonic()
        config = model.peft_config[model.active_adapter]
        shown = special_settings(config) | {"target_modules": config.target_modules}
        return cls(_logits(model), began, ", ".join(f"{name}={value}" for name, value in shown.items()))

    def check(self, model: Any, what: str, cure: str) -> str:
        """Check that another form of the model answers alike.

        Args:
            model: The other form.
            what: What it is, for the error.
            cure: What to do then.

        Returns:
            By how much they differ, and how long it took.

        Raises:
            UserError: it answers something else.
        """
        scale = max(1.0, float(self.logits.abs().max()))
        difference = float((_logits(model) - self.logits).abs().max())
        if not difference <= TOLERANCE * scale:  # nor is NaN
            raise UserError(
                f"the adapter ({self.settings:.200}): {what} is another model than the one trained: its "
                f"logits differ by {difference:.2g}, of {scale:.2g}. {cure}."
            )
        return f"within {difference:.0e} on {N_PROMPTS} prompts, {time.monotonic() - self.began:.1f} s"


def _logits(model: Any) -> Tensor:
    device = next(model.parameters()).device
    vocabulary = model.get_input_embeddings().weight.shape[0]
    ids = torch.linspace(0, vocabulary - 1, N_PROMPTS * LENGTH, device=device).long().view(N_PROMPTS, LENGTH)
    with evaluating(model):
        return torch.cat([model(input_ids=row, use_cache=False).logits.float().cpu() for row in ids.split(1)])
