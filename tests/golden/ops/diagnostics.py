"""Diagnostics, controllers and the gradient noise scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from compare import padded, padded_mask

from grpo_core.algorithms import controllers
from grpo_core.algorithms import diagnostics as product
from grpo_core.algorithms import noise_scale as noise


def ess(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Effective sample size of log weights."""
    size, share = product.effective_sample_size(torch.tensor(inputs["log_w"], dtype=dtype))
    return {"ess": size, "ess_frac": share}


def clip_fractions(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Shares of tokens clipped below, above and either way."""
    mask = padded_mask(inputs["mask"])
    per_token = inputs["adv"] and isinstance(inputs["adv"][0], list)
    counts = product.clip_fractions(
        padded(inputs["logp"], dtype),
        padded(inputs["old"], dtype),
        padded(inputs["adv"], dtype) if per_token else torch.tensor(inputs["adv"], dtype=dtype),
        mask,
        epsilon=inputs["eps_low"],
        epsilon_high=inputs["eps_high"],
    )
    return {name: count / max(1, int(mask.sum())) for name, count in counts._asdict().items()}


def pass_at_k(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Unbiased pass@k."""
    return {"value": product.pass_at_k(inputs["n"], inputs["c"], inputs["k"])}


def adaptive_kl(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """The proportional controller over a run."""
    options = {name: inputs[name] for name in ("target", "horizon", "n_steps", "clip") if name in inputs}
    return {"betas": _run(controllers.proportional, inputs["beta"], inputs["kls"], options)}


def adaptive_kl_ppo(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """PPO's rule over a run."""
    return {"betas": _run(controllers.ppo_rule, inputs["beta"], inputs["kls"], {"target": inputs["target"]})}


def adaptive_kl_bang(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """The step rule over a run."""
    names = {"target": "target", "lo": "minimum", "hi": "maximum"}
    options = {option: inputs[name] for name, option in names.items() if name in inputs}
    return {"betas": _run(controllers.step_rule, inputs["beta"], inputs["kls"], options)}


def kl_warmup(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """β at a step of its warm-up."""
    return {"beta": controllers.kl_warmup(inputs["beta"], inputs["step"], warmup_steps=inputs["warm"])}


def adaptive_entropy(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """The coefficient that applied at each step of a run, and the one that is kept at its end."""
    names = {"target": "target", "delta": "delta", "lo": "minimum", "hi": "maximum"}
    options = {option: inputs[name] for name, option in names.items() if name in inputs}
    entropies = inputs["entropies"]
    kept = [inputs["coef"], *_run(controllers.adaptive_entropy, inputs["coef"], entropies, options)]
    applied = [
        controllers.applied(controllers.adaptive_entropy, kept[step], entropies[:step], **options)
        for step in range(len(entropies))
    ]
    return {"applied": applied, "coef": kept[-1]}


def gns_pair(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Noise scale from two batch sizes."""
    g2, trace = noise.gns_pair(inputs["g2_small"], inputs["g2_big"], b_small=inputs["b_small"], b_big=inputs["b_big"])
    return {"g2": g2, "trace": trace}


def gns_from_micro(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Noise scale from the gradients of micro-batches."""
    g2, trace = noise.gns_from_micro(torch.tensor(inputs["grads"], dtype=dtype), b_small=inputs["b_small"])
    return {"g2": g2, "trace": trace}


def gns_ema(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Running means of both estimates, divided last."""
    scale = noise.NoiseScale(decay=inputs["decay"])
    ratios = [scale.update(g2, trace) for g2, trace in inputs["pairs"]]
    return {"b_simple": ratios, "g2": scale.g2, "trace": scale.trace}


def _run(
    controller: Callable[..., float], coefficient: float, measured: Sequence[float], options: Mapping[Any, Any]
) -> list[float]:
    """The coefficient after each measurement."""
    found = []
    for step in range(len(measured)):
        coefficient = controller(coefficient, measured[: step + 1], **options)
        found.append(coefficient)
    return found


OPERATIONS = {
    "ess": ess,
    "clip_fractions": clip_fractions,
    "pass_at_k": pass_at_k,
    "adaptive_kl": adaptive_kl,
    "adaptive_kl_ppo": adaptive_kl_ppo,
    "adaptive_kl_bang": adaptive_kl_bang,
    "kl_warmup": kl_warmup,
    "adaptive_entropy": adaptive_entropy,
    "gns_pair": gns_pair,
    "gns_from_micro": gns_from_micro,
    "gns_ema": gns_ema,
}
