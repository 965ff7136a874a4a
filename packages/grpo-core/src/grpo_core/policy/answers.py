"""What a model answers to eight prompts, by which its other forms (a reference, a merged copy) are held to be it."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from grpo_core.algorithms.causal_lm import evaluating
from grpo_sdk.errors import UserError

N_PROMPTS, LENGTH = 8, 32
"""Prompts that are compared, and their tokens, which are spread over the whole vocabulary."""

TOLERANCE = 1e-4
"""Difference of logits, as a share of the largest or of 1: products in another order differ by far less in float32."""


def answers_of(model: Any) -> Tensor:
    """Logits of a model that is whole on this rank: [N_PROMPTS, LENGTH, V] in float32, on the CPU."""
    device = next(model.parameters()).device
    vocabulary = model.get_input_embeddings().weight.shape[0]
    ids = torch.linspace(0, vocabulary - 1, N_PROMPTS * LENGTH, device=device).long().view(N_PROMPTS, LENGTH)
    with evaluating(model):
        return torch.cat([model(input_ids=row, use_cache=False).logits.float().cpu() for row in ids.split(1)])


def check_answers(answers: Tensor, model: Any, what: str, cure: str) -> str:
    """Check that another form of a model answers alike.

    Args:
        answers: Result of `answers_of` for the model.
        model: The other form.
        what: What it is, for the error.
        cure: What to do then.

    Returns:
        By how much they differ, and how long the other form took to answer.

    Raises:
        UserError: it answers something else.
    """
    began = time.monotonic()
    scale = max(1.0, float(answers.abs().max()))
    difference = float((answers_of(model) - answers).abs().max())
    if not difference <= TOLERANCE * scale:  # nor is NaN
        raise UserError(
            f"the adapter: {what} is another model than the one trained: its logits differ by {difference:.2g}, of "
            f"{scale:.2g}. {cure}."
        )
    share, seconds = difference / scale, time.monotonic() - began
    return f"within {share:.0e} of the largest logit on {N_PROMPTS} prompts, {seconds:.1f} s"
