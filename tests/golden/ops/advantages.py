"""Advantages, token rewards, GAE, and the groups that teach something."""

from __future__ import annotations

from typing import Any

import torch
from compare import padded, padded_mask, ragged
from torch import Tensor

from grpo_core.algorithms.advantages import baselines, normalised, per_token
from grpo_core.algorithms.advantages.groups import kept_indices, zero_std_fraction
from grpo_core.algorithms.kl import kl_penalty
from grpo_core.plugins import variants as registry

Inputs = dict[str, Any]

CENTERS = {"loo": "leave_one_out", "rloo": "leave_one_out", "mean": "group_mean", "group": "group_mean"}
"""A case's name of a baseline, where the product has another."""

SCALES: dict[str | None, normalised.Scale] = {None: "none", "std": "group"}
"""A case's name of a scale, where the product has another."""


def rewards_of(inputs: Inputs, name: str = "rewards") -> Tensor:
    """[N]; float64 whatever the run's dtype, as the trainer computes advantages."""
    return torch.tensor(inputs[name], dtype=torch.float64)


def groups_of(inputs: Inputs) -> Tensor:
    """[N] indices of groups that a case may name by anything, in any order; one group where it names none."""
    given = inputs.get("groups")
    if given is None:
        return torch.zeros(len(inputs["rewards"]), dtype=torch.long)
    index = {name: position for position, name in enumerate(dict.fromkeys(given))}
    return torch.tensor([index[name] for name in given], dtype=torch.long)


def options(inputs: Inputs, **renamed: str) -> dict[str, Any]:
    """The product's options that a case gives: option=its name in the case."""
    return {option: inputs[name] for option, name in renamed.items() if inputs.get(name) is not None}


def centered(inputs: Inputs, center: str, scale: str | None) -> Inputs:
    """A baseline by name, and a division by the standard deviation."""
    rewards, groups = rewards_of(inputs), groups_of(inputs)
    # The cases' word for verl's treatment of a group of one; the default is 0.
    raw = {"singleton": "raw"} if inputs.get("singleton") not in (None, "zero") else {}
    name = CENTERS.get(center, center)
    own = registry.arguments("advantage", name)
    advantages = registry.resolve("advantage", name)(
        rewards, groups, **{option: choice for option, choice in raw.items() if option in own}
    )
    kind: Any = SCALES.get(scale, scale)
    return {
        "adv": normalised.scale_advantages(
            advantages, rewards, groups, kind, **options(inputs, epsilon="eps", ddof="ddof")
        )
    }


def adv_grpo(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_grpo`."""
    return centered(inputs, "group_mean", "group")


def adv_dr_grpo(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_dr_grpo`."""
    return centered(inputs, "group_mean", "none")


def adv_rloo(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_rloo`."""
    return centered(inputs, "leave_one_out", "none")


def adv_lite_ppo(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_lite_ppo`."""
    return centered(inputs, "group_mean", "batch")


def adv_center_scale(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_center_scale`."""
    return centered(inputs, inputs["center"], inputs.get("scale"))


def adv_maxrl(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_maxrl`."""
    return {"adv": normalised.maxrl(rewards_of(inputs), groups_of(inputs), **options(inputs, epsilon="eps"))}


def adv_passk(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_passk`."""
    return {"adv": normalised.pass_at_k(rewards_of(inputs), groups_of(inputs), **options(inputs, k="k", epsilon="eps"))}


def adv_passk_best(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_passk_best`."""
    scale: Any = SCALES.get(inputs.get("scale"), inputs.get("scale"))
    return {
        "adv": normalised.pass_at_k_best(
            rewards_of(inputs), groups_of(inputs), scale=scale, **options(inputs, epsilon="eps")
        )
    }


def adv_gpg(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_gpg`."""
    rewards, groups, given = rewards_of(inputs), groups_of(inputs), options(inputs, f_norm="f_norm")
    return {
        "adv": baselines.gpg(rewards, groups, alpha="mixed", **given),
        "adv_verl": baselines.gpg(rewards, groups, alpha="nonzero", **given),
    }


def adv_opo(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_opo`."""
    return {"adv": baselines.opo(rewards_of(inputs), groups_of(inputs), lengths=torch.tensor(inputs["lengths"]))}


def adv_remax(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_remax`."""
    greedy = rewards_of(inputs, "greedy")
    return {"adv": baselines.remax(rewards_of(inputs), groups_of(inputs), greedy_rewards=greedy)}


def adv_bnpo_beta(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_bnpo_beta`."""
    return {"adv": normalised.bnpo(rewards_of(inputs), groups_of(inputs))}


def adv_gdpo(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_gdpo`."""
    parts = rewards_of(inputs)
    return {
        "adv": normalised.gdpo(
            parts.nansum(dim=1),
            groups_of(inputs),
            reward_parts=parts,
            part_weights=torch.tensor(inputs["weights"], dtype=torch.float64),
            **options(inputs, epsilon="eps"),
        )
    }


def adv_adaptive(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_adaptive`."""
    return {"adv": baselines.adaptive(rewards_of(inputs), groups_of(inputs), **options(inputs, threshold="thresh"))}


def adv_ema(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_ema`: one call per step; the baseline is what a reward of 0 would be compared with."""
    state: dict[str, float] = {}
    advantages, read = [], []
    for step in inputs["steps"]:
        rewards = torch.tensor(step, dtype=torch.float64)
        result = baselines.ema(
            rewards,
            torch.zeros(len(step), dtype=torch.long),
            keys=["task"] * len(step),
            state=state,
            alpha=1 - inputs["decay"],
            **options(inputs, init="init", order="order", debias="debias"),
        )
        advantages.append(result.tolist())
        read.append(float((rewards - result)[0]))
    return {"adv": advantages, "baseline": read}


def adv_rae(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_rae`."""
    state: dict[str, float] = {}
    events = inputs["events"]
    advantages = baselines.role(
        torch.tensor([reward for _, _, reward in events], dtype=torch.float64),
        torch.zeros(len(events), dtype=torch.long),
        roles=[f"{game}|{seat}" for game, seat, _ in events],
        state=state,
        **options(inputs, alpha="alpha", order="order"),
    )
    return {"adv": advantages, "baselines": state}


def token_rewards(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`token_rewards`."""
    mask = padded_mask(inputs["mask"])
    estimator = registry.resolve("kl", inputs["kind"])
    kl = kl_penalty(estimator, padded(inputs["logp"], dtype), padded(inputs["ref"], dtype), mask)
    earned = per_token.token_rewards(rewards_of(inputs, "scores"), mask, inputs["beta"] * kl)
    return {"rewards": ragged(earned, inputs["mask"])}


def gae(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`gae`."""
    mask, last = padded_mask(inputs["mask"]), inputs.get("last_value")
    advantages, returns = per_token.gae(
        padded(inputs["rewards"], dtype),
        padded(inputs["values"], dtype),
        mask,
        gamma=inputs["gamma"],
        lam=inputs["lam"],
        last_value=None if last is None else torch.as_tensor(last, dtype=dtype).expand(len(mask)),
    )
    return {"adv": ragged(advantages, inputs["mask"]), "returns": ragged(returns, inputs["mask"])}


def adv_reinforce_pp(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_reinforce_pp`: the case's token rewards are penalties of the opposite sign, of a score of 0."""
    mask, earned = padded_mask(inputs["mask"]), padded(inputs["rewards"], dtype)
    zero = torch.zeros(len(mask), dtype=torch.float64)
    advantages = per_token.reinforce_pp(
        zero, zero.long(), mask=mask, token_penalties=-earned, **options(inputs, gamma="gamma", epsilon="eps")
    )
    returns = per_token.returns_to_go(earned, mask, gamma=inputs["gamma"])
    return {"adv": ragged(advantages, inputs["mask"]), "returns": ragged(returns, inputs["mask"])}


def adv_reinforce_pp_baseline(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`adv_reinforce_pp_baseline`."""
    mask = padded_mask(inputs["mask"])
    advantages = per_token.reinforce_pp_baseline(
        rewards_of(inputs),
        groups_of(inputs),
        mask=mask,
        token_penalties=torch.zeros(mask.shape, dtype=dtype),
        **options(inputs, epsilon="eps"),
    )
    return {"adv": ragged(advantages, inputs["mask"])}


def frac_zero_std(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """`frac_zero_std`."""
    rewards, groups, limit = rewards_of(inputs), groups_of(inputs), options(inputs, minimum="tol")
    return {"frac": zero_std_fraction(rewards, groups, **limit), "keep": kept_indices(rewards, groups, **limit)}


OPERATIONS = {
    function.__name__: function
    for function in (
        adv_grpo,
        adv_dr_grpo,
        adv_rloo,
        adv_lite_ppo,
        adv_center_scale,
        adv_maxrl,
        adv_passk,
        adv_passk_best,
        adv_gpg,
        adv_opo,
        adv_remax,
        adv_bnpo_beta,
        adv_gdpo,
        adv_adaptive,
        adv_ema,
        adv_rae,
        token_rewards,
        gae,
        adv_reinforce_pp,
        adv_reinforce_pp_baseline,
        frac_zero_std,
    )
}
