"""Muon for the matrices of a model's layers, AdamW for everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon where it applies, to matrices other than those of the embeddings and the head; AdamW elsewhere.

    Muon's updates are scaled to the size of AdamW's (arXiv 2502.16982), so one learning rate serves both. There is no
    weight decay.

    Args:
        model: The model that is trained.
        learning_rate: Learning rate of both.
    """

    def __init__(self, model: Any, learning_rate: float) -> None:
        tables = [layer.weight for layer in (model.get_input_embeddings(), model.get_output_embeddings()) if layer]
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        super().__init__(trained, {"lr": learning_rate})
        matrices = [each for each in trained if each.ndim == 2 and not any(each is table for table in tables)]
        others = [each for each in trained if not any(each is matrix for matrix in matrices)]
        self._parts: list[torch.optim.Optimizer] = []
        if matrices:
            muon = torch.optim.Muon(matrices, lr=learning_rate, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
            self._parts.append(muon)
        if others:
            self._parts.append(torch.optim.AdamW(others, lr=learning_rate, betas=(0.9, 0.99), weight_decay=0.0))
        self.param_groups = [group for part in self._parts for group in part.param_groups]  # a schedule sets their lr

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step of both; return what the closure does."""
        loss = None if closure is None else closure()
        given = iter(self.param_groups)
        for part in self._parts:
            for group in part.param_groups:  # the same, until load_state_dict replaces ours, as accelerate has it do
                group["lr"] = next(given)["lr"]
            part.step()
        return loss
