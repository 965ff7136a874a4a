"""More layers for a trained model, which computes the same until they are trained."""

from __future__ import annotations

import copy
from typing import Any

from grpo_sdk.errors import UserError

PER_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers")
"""Settings of transformers that list something for each layer."""


def add_layers(model: Any, count: int) -> None:
    """Add layers that pass their inputs on unchanged, spread evenly over the depth; in place.

    Each is a copy of the layer before it whose two output projections are 0, so that the model's outputs are those of
    before, and what is learned afterwards begins from there. Source: Wu et al. 2024, "LLaMA Pro" (arXiv:2401.02415).

    Args:
        model: Causal language model of transformers.
        count: Layers to add, at most as many as there are.

    Raises:
        UserError: more than there are, or layers of another kind than Llama's.
    """
    layers = getattr(model.base_model, "layers", None)
    if layers is None or any(_projections(layer) is None for layer in layers):
        raise UserError(f"--add-layers: {type(model).__name__} has no layers like Llama's, which these have to be.")
    present = len(layers)
    if not 0 < count <= present:
        raise UserError(f"--add-layers {count}: the model has {present} layers; add 1 to {present}.")
    followed = {present * (index + 1) // count - 1 for index in range(count)}
    order = [index for index in range(present) for _ in range(2 if index in followed else 1)]
    deeper: list[Any] = []
    for before, index in zip([-1, *order], order, strict=False):
        deeper.append(_passing_on(layers[index]) if index == before else layers[index])
    model.base_model.layers = type(layers)(deeper)
    for place, layer in enumerate(deeper):
        layer.self_attn.layer_idx = place  # its place in the cache of keys and values
    config = model.config
    for name in PER_LAYER:
        if (values := getattr(config, name, None)) is not None:
            setattr(config, name, [values[index] for index in order])
    config.num_hidden_layers = len(deeper)


def _projections(layer: Any) -> tuple[Any, Any] | None:
    """The projections whose outputs a layer adds to its input; None for a layer of another kind."""
    attention, mlp = getattr(layer, "self_attn", None), getattr(layer, "mlp", None)
    found = getattr(attention, "o_proj", None), getattr(mlp, "down_proj", None)
    return None if None in found else found


def _passing_on(layer: Any) -> Any:
    added = copy.deepcopy(layer)
    for projection in _projections(added) or ():
        for parameter in projection.parameters():
            parameter.data.zero_()
    return added
