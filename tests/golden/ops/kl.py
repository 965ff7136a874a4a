"""Divergences, entropies and log-probs, and the expected gradients of every estimator."""

from collections.abc import Callable
from typing import Any

import torch
from compare import padded, padded_mask, ragged
from torch import Tensor

from grpo_core.algorithms import kl
from grpo_core.algorithms.advantages.per_token import returns_to_go
from grpo_core.algorithms.aggregation import weighted_sum
from grpo_core.algorithms.kl import full_kl, k1, k2, k3, kl_penalty, ratio_factor
from grpo_core.algorithms.logprobs import full_entropy, linear_logprob, selective_logprob
from grpo_core.algorithms.losses import importance_ratio, reinforce
from ops.losses import weights

ESTIMATORS = {name: getattr(kl, name) for name in ("k1", "k2", "k3", "abs", "fkl", "fkl_k3", "jeffreys")}


def kl_loss(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """An estimator in the loss, times ρ where the case says so, and its gradient."""
    logp, ref = padded(inputs["logp"], dtype).requires_grad_(), padded(inputs["ref"], dtype)
    mask = padded_mask(inputs["mask"])
    # k2 is its own straight-through form.
    straight = {"straight_through": True} if inputs.get("straight_through") and inputs["kind"] != "k2" else {}
    penalty = kl_penalty(ESTIMATORS[inputs["kind"]], logp, ref, mask, **straight)
    if inputs.get("ratio_weight"):
        old = padded(inputs["old"], dtype).where(mask, 0.0)
        penalty = ratio_factor(logp.where(mask, 0.0), old, is_constant=bool(straight)) * penalty
    loss = weighted_sum(penalty, mask, weights(mask, inputs["mode"], inputs.get("agg") or {}))
    (grad,) = torch.autograd.grad(loss, logp)
    return {"loss": loss, "grad": ragged(grad, inputs["logp"])}


def kl_point(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """An estimator at one token, and its slope."""
    ref = torch.tensor(inputs["ref"], dtype=dtype)
    return _with_gradient(lambda logp: ESTIMATORS[inputs["kind"]](logp, ref), inputs["logp"], dtype)


def exact_kl(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """KL over the vocabulary, and its gradient in the policy's logits."""
    ref = torch.tensor(inputs["zref"], dtype=dtype)
    return _with_gradient(lambda z: full_kl(z, ref, direction=inputs["kind"]), inputs["z"], dtype)


def exact_entropy(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Entropy over the vocabulary, and its gradient."""
    return _with_gradient(full_entropy, inputs["z"], dtype)


def logprob_of_one(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Log-prob of one token, and its gradient."""
    return _with_gradient(lambda z: selective_logprob(z, torch.tensor(inputs["index"])), inputs["z"], dtype)


def logprobs_of_head(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Log-probs and entropies of a head in chunks of one position, and the gradients of their weighted sum."""
    h, w = (torch.tensor(inputs[name], dtype=dtype).requires_grad_() for name in ("h", "w"))
    logp, entropy = linear_logprob(
        h, w, torch.tensor(inputs["ids"]), temperature=inputs["temperature"], with_entropy=True, chunk=1
    )
    assert entropy is not None
    of_logp, of_entropy = (torch.tensor(inputs[name], dtype=dtype) for name in ("up_logp", "up_ent"))
    dh, dw = torch.autograd.grad((of_logp * logp).sum() + (of_entropy * entropy).sum(), (h, w))
    return {"logp": logp, "entropy": entropy, "dh": dh, "dw": dw}


def expected_kl_grad(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Expected gradient of every placement of every estimator: each token once, weighted by who sampled it."""
    z = torch.tensor(inputs["z"], dtype=dtype).requires_grad_()
    ref_z, old_z = (torch.tensor(inputs[name], dtype=dtype) for name in ("zref", "zold"))
    logp, ref, old = (x.log_softmax(0)[:, None] for x in (z, ref_z, old_z))  # [V, 1]: a row of one token for each

    def expected(objective: Tensor, sampler: Tensor) -> Tensor:
        return _gradient((sampler.detach().exp() * objective).sum(), z)

    found = {
        "true_reverse": _gradient(full_kl(z, ref_z, direction="reverse"), z),
        "true_forward": _gradient(full_kl(z, ref_z, direction="forward"), z),
    }
    for name, estimator in (("k1", k1), ("k2", k2), ("k3", k3)):
        value = estimator(logp, ref)
        found[f"{name}_loss"] = expected(value, logp)
        found[f"{name}_reward"] = expected(_as_reward(logp, value), logp)
        found[f"{name}_loss_ratio"] = expected(importance_ratio(logp, old) * value, old)
    return found


def sequence_kl_grad_tree(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Expected gradients in the first token's logits, over all sequences of two tokens."""
    z = torch.tensor(inputs["z1"], dtype=dtype).requires_grad_()
    logp, ref = (
        _tree(first, torch.tensor(second, dtype=dtype))
        for first, second in ((z, inputs["z2"]), (torch.tensor(inputs["zr1"], dtype=dtype), inputs["zr2"]))
    )  # [sequences, 2] each
    probability = logp.detach().sum(1).exp()
    to_go = returns_to_go(k1(logp, ref), torch.ones_like(logp, dtype=torch.bool), gamma=1.0)
    return {
        "true": _gradient(full_kl(logp.sum(1), ref.sum(1), direction="reverse"), z),
        "token_k2_loss": _gradient((probability * k2(logp, ref).sum(1)).sum(), z),
        "k1_reward_to_go": _gradient((probability * _as_reward(logp, to_go).sum(1)).sum(), z),
    }


def _tree(first: Tensor, second: Tensor) -> Tensor:
    """Log-probs [V1·V2, 2] of both tokens of every sequence."""
    one, two = first.log_softmax(0), second.log_softmax(1)
    return torch.stack((one[:, None].expand_as(two), two), dim=-1).flatten(0, 1)


def _as_reward(logp: Tensor, penalty: Tensor) -> Tensor:
    """The objective whose gradient is the policy gradient of the reward −penalty; all [B, T]."""
    return reinforce(logp, logp.detach(), -penalty.detach(), torch.ones_like(logp, dtype=torch.bool))


def _gradient(scalar: Tensor, of: Tensor) -> Tensor:
    return torch.autograd.grad(scalar, of, retain_graph=True)[0]


def _with_gradient(function: Callable[[Tensor], Tensor], at: Any, dtype: torch.dtype) -> dict[str, Any]:
    x = torch.tensor(at, dtype=dtype).requires_grad_()
    value = function(x)
    return {"value": value, "grad": _gradient(value, x)}


OPERATIONS = {
    "kl_loss": kl_loss,
    "kl_point": kl_point,
    "full_kl": exact_kl,
    "full_entropy": exact_entropy,
    "selective_logprob": logprob_of_one,
    "linear_logprob": logprobs_of_head,
    "expected_kl_grad": expected_kl_grad,
    "sequence_kl_grad_tree": sequence_kl_grad_tree,
}
