"""Policy losses, their accumulation over shards, value losses, and a whole step."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from compare import padded, padded_mask, ragged
from torch import Tensor

from grpo_core.algorithms.aggregation import Aggregation, token_weights, weighted_sum
from grpo_core.algorithms.corrections import rollout_weights
from grpo_core.algorithms.kl import k3, kl_penalty
from grpo_core.algorithms.losses import cispo, dppo, dro, policy_loss, ppo_clip, reinforce, sapo, value_loss
from grpo_core.algorithms.sequence_losses import gmpo, gspo, gspo_token, seq_ppo, vespo
from ops import advantages as advantage_ops

OBJECTIVES = {
    "pg": reinforce,
    "ppo": ppo_clip,
    "gspo": gspo,
    "gspo_token": gspo_token,
    "seq_ppo": seq_ppo,
    "cispo": cispo,
    "sapo": sapo,
    "gmpo": gmpo,
    "dro": dro,
    "vespo": vespo,
    "dppo": dppo,
}

AGGREGATIONS: dict[str, Aggregation] = {
    "seq_mean_token_mean": "sequence_mean",
    "token_mean": "token_mean",
    "seq_mean_token_sum_norm": "constant",
    "seq_mean_token_sum": "sequence_sum",
    "token_sum": "token_sum",
}

OPTIONS = {
    "eps_low": "epsilon",
    "eps_high": "epsilon_high",
    "delta": "delta",
    "dual": "dual_clip",
    "cap": "max_ratio",
    "tau_pos": "temperature_pos",
    "tau_neg": "temperature_neg",
    "beta_dro": "beta",
}
"""The cases' parameter -> the product's option."""

CISPO_OPTIONS = {"cap": "epsilon_high"}
"""CISPO's bound has TRL's name."""

EPSILON = 0.2
"""The cases' clip range where they give none; some objectives of the product have another default."""

ADVANTAGE = {"eps": 1e-4, "ddof": 1, "f_norm": 1.0}
"""What a step's advantages use unless the case says otherwise."""


def options(kind: str, params: dict[str, Any]) -> dict[str, Any]:
    """A case's parameters as those options that the objective has."""
    accepted = inspect.signature(OBJECTIVES[kind]).parameters
    given: dict[str, Any] = {}
    if "epsilon" in accepted:
        low = params.get("eps_low", EPSILON)
        given = {"epsilon": low, "epsilon_high": low}
    if kind != "vespo":  # whose clamp is part of its definition
        given["max_log_ratio"] = params.get("clamp")
    names = CISPO_OPTIONS if kind == "cispo" else OPTIONS
    given |= {names[key]: value for key, value in params.items() if key in names and value is not None}
    return {name: value for name, value in given.items() if name in accepted}


def weights(mask: Tensor, mode: str, agg: dict[str, Any]) -> Tensor:
    """Token weights of a case."""
    return token_weights(
        mask,
        AGGREGATIONS[mode],
        max_completion_length=agg.get("l_max") or 1,
        count_empty=agg.get("count_empty") is not False,
    )


def advantages(values: list[Any], dtype: torch.dtype) -> Tensor:
    """Per row, or per token."""
    return padded(values, dtype) if values and isinstance(values[0], list) else torch.tensor(values, dtype=dtype)


def loss_of(inputs: dict[str, Any]) -> Callable[..., Tensor]:
    """The policy loss of a case, of the arguments that `policy_loss` has behind the objective."""
    own = options(inputs["kind"], inputs.get("params") or {})
    return partial(policy_loss, OBJECTIVES[inputs["kind"]], **own)


def run_policy_loss(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """`policy_loss`: loss and gradient of one batch."""
    params, mask = inputs.get("params") or {}, padded_mask(inputs["mask"])
    logp, old = padded(inputs["logp"], dtype).requires_grad_(), padded(inputs["old"], dtype)
    shares = weights(mask, inputs["mode"], inputs.get("agg") or {})
    if params.get("row_keep") is not None:
        shares = shares * torch.tensor(params["row_keep"], dtype=torch.float64)[:, None]
    correction = None if params.get("weights") is None else padded(params["weights"], dtype)
    loss = loss_of(inputs)(logp, old, advantages(inputs["adv"], dtype), mask, shares, correction=correction)
    return _result(loss, logp, inputs["mask"])


def run_accumulate(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """`accumulate`: the split into ranks and micro-batches, and the mistake of averaging micro-batch means."""
    mask, agg = padded_mask(inputs["mask"]), {"l_max": inputs.get("l_max")}
    old, given = padded(inputs["old"], dtype), advantages(inputs["adv"], dtype)
    shares, loss, n_ranks = weights(mask, inputs["mode"], agg), loss_of(inputs), len(inputs["shards"])

    def accumulated(naive: bool) -> dict[str, Any]:
        logp = padded(inputs["logp"], dtype).requires_grad_()

        def part(rows: list[int]) -> Tensor:
            own = weights(mask[rows], inputs["mode"], agg) if naive else shares[rows]
            return loss(logp[rows], old[rows], given[rows], mask[rows], own)

        ranks = [torch.stack([part(rows) for rows in micro_batches]) for micro_batches in inputs["shards"]]
        # DDP averages over ranks, so a sum over ranks is scaled up by their number.
        losses = [rank.mean() if naive else rank.sum() * n_ranks for rank in ranks]
        return _result(torch.stack(losses).mean(), logp, inputs["mask"])

    wrong = accumulated(naive=True)
    return {**accumulated(naive=False), "naive_loss": wrong["loss"], "naive_grad": wrong["grad"]}


def run_value_loss(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """`value_loss`."""
    mask = padded_mask(inputs["mask"])
    values = padded(inputs["v"], dtype).requires_grad_()
    targets = padded(inputs["v_old"], dtype), padded(inputs["returns"], dtype)
    per_token = value_loss(values, *targets, mask, clip=inputs.get("clip"))
    agg = inputs.get("agg") or {"l_max": inputs.get("l_max")}
    return _result(weighted_sum(per_token, mask, weights(mask, inputs["mode"], agg)), values, inputs["mask"])


def run_step(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """`step`: rewards to advantages to a loss with truncated importance weights and β·k3."""
    mask = padded_mask(inputs["mask"])
    given = advantage_ops.OPERATIONS[inputs["adv_op"]]({**ADVANTAGE, **inputs}, dtype)["adv"]
    logp = padded(inputs["logp"], dtype).requires_grad_()
    old, rollout, ref = (padded(inputs[name], dtype) for name in ("old", "rollout", "ref"))
    correction = rollout_weights(old, rollout, mask, mode="token_truncate", maximum=inputs["tis_cap"], minimum=None)
    shares = weights(mask, inputs["mode"], inputs.get("agg") or {})
    loss = loss_of(inputs)(logp, old, torch.as_tensor(given, dtype=dtype), mask, shares, correction=correction)
    penalty = weighted_sum(kl_penalty(k3, logp, ref, mask), mask, shares)
    return {"adv": given, **_result(loss + inputs["beta"] * penalty, logp, inputs["mask"])}


def _result(loss: Tensor, parameter: Tensor, like: list[list[Any]]) -> dict[str, Any]:
    (gradient,) = torch.autograd.grad(loss, parameter)
    return {"loss": float(loss.detach()), "grad": ragged(gradient, like)}


OPERATIONS = {
    "policy_loss": run_policy_loss,
    "accumulate": run_accumulate,
    "value_loss": run_value_loss,
    "step": run_step,
}
