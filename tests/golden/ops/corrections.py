"""Importance weights against the sampler, rows and tokens left out, and the overlong penalty."""

from typing import Any

import torch
from compare import padded, padded_mask, ragged

from grpo_core.algorithms import corrections
from grpo_sdk.rewards import soft_overlong


def run_rollout_weights(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """`rollout_weights`."""
    weights = corrections.rollout_weights(
        padded(inputs["trainer_old"], dtype),
        padded(inputs["rollout"], dtype),
        padded_mask(inputs["mask"]),
        mode=inputs["mode"],
        maximum=inputs.get("c_max"),
        minimum=inputs.get("c_min"),
    )
    return {"weights": ragged(weights, inputs["mask"])}


def run_off_policy_mask(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """`off_policy_mask`."""
    keep = corrections.off_policy_mask(
        torch.tensor(inputs["adv"], dtype=dtype),
        padded(inputs["logp"], dtype),
        padded(inputs["sampler"], dtype),
        padded_mask(inputs["mask"]),
        threshold=inputs["delta"],
    )
    return {"keep": keep}


def run_high_entropy_mask(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """`high_entropy_mask`."""
    kept = corrections.high_entropy_mask(
        padded(inputs["entropy"], dtype), padded_mask(inputs["mask"]), quantile=inputs["rho"]
    )
    return {"mask": ragged(kept.double(), inputs["mask"])}


def run_soft_overlong(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """`soft_overlong`."""
    return {"reward": soft_overlong(inputs["length"], max_length=inputs["l_max"], buffer=inputs["l_cache"])}


OPERATIONS = {
    "rollout_weights": run_rollout_weights,
    "off_policy_mask": run_off_policy_mask,
    "high_entropy_mask": run_high_entropy_mask,
    "soft_overlong": run_soft_overlong,
}
