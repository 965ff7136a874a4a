"""Muon for the matrices of a model's layers, AdamW for everything else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from grpo_core.algorithms.cpu_matmul import emulates_bfloat16


class Float32Muon(torch.optim.Muon):
    """PyTorch's Muon, with the updates orthogonalized in float32.

    PyTorch does it in bfloat16, which takes 20 times as long on a CPU that emulates it. Options, state and their names
    are PyTorch's; `adjust_lr_fn` is "match_rms_adamw".
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every matrix that has a gradient; return what the closure does."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                buffer = self.state[matrix].setdefault("momentum_buffer", torch.zeros_like(matrix.grad))
                buffer.lerp_(matrix.grad, 1 - group["momentum"])
                update = matrix.grad.lerp(buffer, group["momentum"]) if group["nesterov"] else buffer
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(_orthogonal(update, group), alpha=-group["lr"] * 0.2 * math.sqrt(max(matrix.shape)))
        return loss


def _orthogonal(update: Tensor, group: dict[str, Any]) -> Tensor:
    """Orthogonalize a matrix by the quintic Newton-Schulz iteration of Muon (Jordan et al., 2024)."""
    a, b, c = group["ns_coefficients"]
    is_tall = update.shape[0] > update.shape[1]
    wide = update.T if is_tall else update
    wide = wide / wide.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.T if is_tall else wide


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
            muon = Float32Muon if emulates_bfloat16(matrices[0].device) else torch.optim.Muon
            self._parts.append(muon(matrices, lr=learning_rate, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"))
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
