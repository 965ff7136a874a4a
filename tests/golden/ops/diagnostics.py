"""Diagnostics, controllers and the gradient noise scale."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from compare import padded, padded_mask

from grpo_core.algorithms import controllers
from grpo_core.algorithms import diagnostics as product
from grpo_core.algorithms import noise_scale as noise
from grpo_core.evaluation import results
from ops.advantages import options
from ops.losses import advantages


def ess(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Effective sample size of log weights."""
    size, share = product.effective_sample_size(torch.tensor(inputs["log_w"], dtype=dtype))
    return {"ess": size, "ess_frac": share}


def clip_fractions(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Shares of tokens clipped below, above and either way."""
    mask, bounds = padded_mask(inputs["mask"]), {"epsilon": inputs["eps_low"], "epsilon_high": inputs["eps_high"]}
    logp, old = padded(inputs["logp"], dtype), padded(inputs["old"], dtype)
    counts = product.clip_fractions(logp, old, advantages(inputs["adv"], dtype), mask, **bounds)
    return {name: count / max(1, int(mask.sum())) for name, count in counts._asdict().items()}


def pass_at_k(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Unbiased pass@k."""
    return {"value": results.pass_at_k(inputs["n"], inputs["c"], inputs["k"])}


def run_of(controller: Callable[..., float], **names: str) -> Callable[..., dict[str, Any]]:
    """The operation of a controller that is driven by a run's KL: option=its name in the case."""

    def operation(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
        return {"betas": _run(controller, inputs["beta"], inputs["kls"], options(inputs, **names))}

    return operation


def kl_warmup(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """β at a step of its warm-up."""
    return {"beta": controllers.kl_warmup(inputs["beta"], inputs["step"], warmup_steps=inputs["warm"])}


def adaptive_entropy(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """The coefficient that applied at each step of a run, and the one that is kept at its end."""
    rule, entropies = controllers.adaptive_entropy, inputs["entropies"]
    given = options(inputs, target="target", delta="delta", minimum="lo", maximum="hi")
    kept = [inputs["coef"], *_run(rule, inputs["coef"], entropies, given)]
    applied = [controllers.applied(rule, kept[step], entropies[:step], **given) for step in range(len(entropies))]
    return {"applied": applied, "coef": kept[-1]}


def gns_pair(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Noise scale from two batch sizes."""
    g2, trace = noise.gns_pair(inputs["g2_small"], inputs["g2_big"], b_small=inputs["b_small"], b_big=inputs["b_big"])
    return {"g2": g2, "trace": trace}


def gns_from_micro(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Noise scale from the gradients of micro-batches."""
    gradients, size = torch.tensor(inputs["grads"], dtype=dtype).double(), inputs["b_small"]
    small_sq, big_sq = float(gradients.square().sum(1).mean()), float(gradients.mean(0).square().sum())
    g2, trace = noise.gns_pair(small_sq, big_sq, b_small=size, b_big=size * len(gradients))
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
    "adaptive_kl": run_of(controllers.proportional, target="target", horizon="horizon", n_steps="n_steps", clip="clip"),
    "adaptive_kl_ppo": run_of(controllers.ppo_rule, target="target"),
    "adaptive_kl_bang": run_of(controllers.step_rule, target="target", minimum="lo", maximum="hi"),
    "kl_warmup": kl_warmup,
    "adaptive_entropy": adaptive_entropy,
    "gns_pair": gns_pair,
    "gns_from_micro": gns_from_micro,
    "gns_ema": gns_ema,
}
