"""The value head: how much reward the policy expects from here on, read off its own hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

VALUE_HEAD_FILE = "value_head.safetensors"


class ValueHead(nn.Module):
    """A two-layer perceptron D → D/2 → 1 on hidden states; it predicts 0 everywhere before it has learnt.

    Its input is not detached: the value loss trains the model as well, by `trainer.value_loss_coef`.

    Args:
        width: Hidden size D of the model.
        seed: Seed of the first layer's weights.
    """

    def __init__(self, width: int, *, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.inner = nn.Linear(width, max(1, width // 2))
        self.outer = nn.Linear(self.inner.out_features, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Values [N] of states [N, D], in float32 at least."""
        dtype = torch.promote_types(states.dtype, torch.float32)
        inner = torch.relu(self.inner(states.to(self.inner.weight.dtype)))
        values: Tensor = self.outer(inner)[:, 0].to(dtype)
        return values

    def save(self, path: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        """Write the weights, or those given in their place, as safetensors."""
        state = self.state_dict() if weights is None else weights
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}, path)

    def load(self, path: Path) -> None:
        """Read weights that `save` wrote."""
        self.load_state_dict(load_file(path))
