"""Advantages, token rewards, GAE, and the groups that teach something."""

from collections.abc import Callable
from typing import Any

import torch
from compare import padded, padded_mask, ragged
from torch import Tensor

from grpo_core.algorithms.advantages import baselines, normalised, per_token
from grpo_core.algorithms.advantages.groups import kept_indices, zero_std_fraction
from grpo_core.algorithms.kl import kl_penalty
from grpo_sdk.plugins import variants as registry

Inputs = dict[str, Any]
Operation = Callable[[Inputs, torch.dtype], Inputs]

CENTERS = {"loo": "leave_one_out", "rloo": "leave_one_out", "mean": "group_mean", "group": "group_mean"}
"""A case's name of a baseline, where the product has another."""

SCALES = {"std": "group"}
"""A case's name of a scale, where the product has another."""


def tensor(values: Any) -> Tensor:
    """Float64 whatever the run's dtype, as the trainer computes advantages."""
    return torch.tensor(values, dtype=torch.float64)


def groups_of(inputs: Inputs) -> Tensor:
    """[N] indices of groups that a case may name by anything, in any order; one group where it names none."""
    given = inputs.get("groups") or [0] * len(inputs["rewards"])
    index = {name: position for position, name in enumerate(dict.fromkeys(given))}
    return torch.tensor([index[name] for name in given], dtype=torch.long)


def options(inputs: Inputs, **renamed: str) -> dict[str, Any]:
    """The product's options that a case gives: option=its name in the case."""
    given = {option: inputs[name] for option, name in renamed.items() if inputs.get(name) is not None}
    return {option: tensor(value) if isinstance(value, list) else value for option, value in given.items()}


def scale_of(inputs: Inputs) -> Any:
    """The scale that a case asks for."""
    return SCALES.get(inputs.get("scale") or "none", inputs.get("scale") or "none")


def of_rewards(function: Callable[..., Tensor], **renamed: str) -> Operation:
    """The operation of a function of rewards and groups, with the options that a case may give."""

    def operation(inputs: Inputs, dtype: torch.dtype) -> Inputs:
        return {"adv": function(tensor(inputs["rewards"]), groups_of(inputs), **options(inputs, **renamed))}

    return operation


def centered(center: str, scale: str) -> Operation:
    """A baseline by name, and a division by a standard deviation."""

    def operation(inputs: Inputs, dtype: torch.dtype) -> Inputs:
        rewards, groups, name = tensor(inputs["rewards"]), groups_of(inputs), CENTERS.get(center, center)
        raw = inputs.get("singleton") not in (None, "zero")  # verl's treatment of a group of one; the default is 0
        own = {"singleton": "raw"} if raw and "singleton" in registry.arguments("advantage", name) else {}
        advantages = registry.resolve("advantage", name)(rewards, groups, **own)
        spread = options(inputs, epsilon="eps", ddof="ddof")
        return {"adv": normalised.scale_advantages(advantages, rewards, groups, scale, **spread)}  # type: ignore[arg-type] # a name

    return operation


def adv_center_scale(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Any baseline and scale."""
    return centered(inputs["center"], scale_of(inputs))(inputs, dtype)


def adv_passk_best(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """What only the single best completion adds."""
    return of_rewards(normalised.pass_at_k_best, scale="scale", epsilon="eps")(
        {**inputs, "scale": scale_of(inputs)}, dtype
    )


def adv_gpg(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Both of its scales."""
    given = tensor(inputs["rewards"]), groups_of(inputs)
    norm = options(inputs, f_norm="f_norm")
    forms = {"adv": "mixed", "adv_verl": "nonzero"}
    return {name: baselines.gpg(*given, alpha=alpha, **norm) for name, alpha in forms.items()}  # type: ignore[arg-type] # a name


def adv_gdpo(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Rewards [B, K] by function."""
    parts, weights = tensor(inputs["rewards"]), tensor(inputs["weights"])
    given = options(inputs, epsilon="eps")
    return {
        "adv": normalised.gdpo(
            parts.nansum(dim=1), groups_of(inputs), reward_parts=parts, part_weights=weights, **given
        )
    }


def adv_ema(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """One call per step; the baseline is what a reward of 0 would be compared with."""
    state: dict[str, float] = {}
    found: Inputs = {"adv": [], "baseline": []}
    given = options(inputs, init="init", order="order", debias="debias")
    for step in inputs["steps"]:
        rewards, groups = tensor(step), torch.zeros(len(step), dtype=torch.long)
        keys = ["task"] * len(step)
        advantages = baselines.ema(rewards, groups, keys=keys, state=state, alpha=1 - inputs["decay"], **given)
        found["adv"].append(advantages.tolist())
        found["baseline"].append(float((rewards - advantages)[0]))
    return found


def adv_rae(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Running means by game and seat."""
    state: dict[str, float] = {}
    games, seats, rewards = zip(*inputs["events"], strict=True)
    roles = [f"{game}|{seat}" for game, seat in zip(games, seats, strict=True)]
    groups = torch.zeros(len(roles), dtype=torch.long)
    given = options(inputs, alpha="alpha", order="order")
    return {"adv": baselines.role(tensor(rewards), groups, roles=roles, state=state, **given), "baselines": state}


def token_rewards(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Scores, less β times an estimate of the KL."""
    mask, estimator = padded_mask(inputs["mask"]), registry.resolve("kl", inputs["kind"])
    kl = kl_penalty(estimator, padded(inputs["logp"], dtype), padded(inputs["ref"], dtype), mask)
    earned = per_token.token_rewards(tensor(inputs["scores"]), mask, inputs["beta"] * kl)
    return {"rewards": ragged(earned, inputs["mask"])}


def gae(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Advantages and returns; the value after a cut may be one for all."""
    mask, last = padded_mask(inputs["mask"]), inputs.get("last_value")
    rewards, values = padded(inputs["rewards"], dtype), padded(inputs["values"], dtype)
    following = None if last is None else torch.as_tensor(last, dtype=dtype).expand(len(mask))
    found = per_token.gae(rewards, values, mask, gamma=inputs["gamma"], lam=inputs["lam"], last_value=following)
    return {name: ragged(each, inputs["mask"]) for name, each in zip(("adv", "returns"), found, strict=True)}


def adv_reinforce_pp(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """The case's token rewards are penalties of the opposite sign, of a score of 0."""
    mask, earned = padded_mask(inputs["mask"]), padded(inputs["rewards"], dtype)
    zero, given = torch.zeros(len(mask), dtype=torch.float64), options(inputs, gamma="gamma", epsilon="eps")
    advantages = per_token.reinforce_pp(zero, zero.long(), mask=mask, token_penalties=-earned, **given)
    returns = per_token.returns_to_go(earned, mask, gamma=inputs["gamma"])
    return {"adv": ragged(advantages, inputs["mask"]), "returns": ragged(returns, inputs["mask"])}


def adv_reinforce_pp_baseline(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Without penalties."""
    mask = padded_mask(inputs["mask"])
    without = {"mask": mask, "token_penalties": torch.zeros(mask.shape), **options(inputs, epsilon="eps")}
    advantages = per_token.reinforce_pp_baseline(tensor(inputs["rewards"]), groups_of(inputs), **without)
    return {"adv": ragged(advantages, inputs["mask"])}


def frac_zero_std(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """The share of groups that teach nothing, and the rows of the others."""
    rewards, groups, limit = tensor(inputs["rewards"]), groups_of(inputs), options(inputs, minimum="tol")
    return {"frac": zero_std_fraction(rewards, groups, **limit), "keep": kept_indices(rewards, groups, **limit)}


OPERATIONS: dict[str, Operation] = {
    "adv_grpo": centered("group_mean", "group"),
    "adv_dr_grpo": centered("group_mean", "none"),
    "adv_rloo": centered("leave_one_out", "none"),
    "adv_lite_ppo": centered("group_mean", "batch"),
    "adv_center_scale": adv_center_scale,
    "adv_maxrl": of_rewards(normalised.maxrl, epsilon="eps"),
    "adv_passk": of_rewards(normalised.pass_at_k, k="k", epsilon="eps"),
    "adv_passk_best": adv_passk_best,
    "adv_gpg": adv_gpg,
    "adv_opo": of_rewards(baselines.opo, lengths="lengths"),
    "adv_remax": of_rewards(baselines.remax, greedy_rewards="greedy"),
    "adv_bnpo_beta": of_rewards(normalised.bnpo),
    "adv_gdpo": adv_gdpo,
    "adv_adaptive": of_rewards(baselines.adaptive, threshold="thresh"),
    "adv_ema": adv_ema,
    "adv_rae": adv_rae,
    "token_rewards": token_rewards,
    "gae": gae,
    "adv_reinforce_pp": adv_reinforce_pp,
    "adv_reinforce_pp_baseline": adv_reinforce_pp_baseline,
    "frac_zero_std": frac_zero_std,
}
