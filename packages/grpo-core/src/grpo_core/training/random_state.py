"""The global random generators. Sampling uses none of them: its numbers are keyed by prompt and token."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import torch
from safetensors.torch import load, save
from torch import Tensor

from grpo_core.policy.ranks import Ranks


def seed_everything(seed: int) -> None:
    """Seed the global generators: dropout and fresh adapters draw from torch's, a plugin may from the others."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # numpy takes no more
    torch.manual_seed(seed)


def random_state() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of every global generator: (tensors, the rest as JSON)."""
    tensors = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors |= {f"cuda.{index}": state for index, state in enumerate(torch.cuda.get_rng_state_all())}
    version, words, gauss = random.getstate()
    tensors["python"] = torch.tensor(words, dtype=torch.int64)
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    tensors["numpy"] = torch.from_numpy(np.asarray(keys, dtype=np.int64))
    return tensors, {
        "python": {"version": version, "gauss": gauss},
        "numpy": {"position": int(position), "has_gauss": int(has_gauss), "cached": float(cached)},
    }


def gathered_random_state(ranks: Ranks) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """The state of every rank's generators: tensors by "RANK.NAME", and the JSON part by rank."""
    tensors, facts = random_state()
    states = ranks.gather(save(tensors))
    named = {f"{rank}.{name}": tensor for rank, data in enumerate(states) for name, tensor in load(data).items()}
    return named, [orjson.loads(data) for data in ranks.gather(orjson.dumps(facts))]


def restore_rank(
    rank: int, tensors: Mapping[str, Tensor], facts: Sequence[Mapping[str, Any]], *, seed: int, step: int
) -> None:
    """Put back one rank's part of `gathered_random_state`.

    A rank that was not there is seeded by the BLAKE2b of [seed, step, rank]: its own seed would give it the numbers
    again that the run began with.
    """
    if rank >= len(facts):
        digest = hashlib.blake2b(orjson.dumps([seed, step, rank]), digest_size=7)  # torch takes 63 bits
        seed_everything(int.from_bytes(digest.digest(), "little"))
        return
    prefix = f"{rank}."
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    restore_random_state(own, facts[rank])


def restore_random_state(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Put back what `random_state` gave."""
    torch.set_rng_state(tensors["torch"])
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            if f"cuda.{index}" in tensors:
                torch.cuda.set_rng_state(tensors[f"cuda.{index}"], index)
    python, legacy = facts["python"], facts["numpy"]
    random.setstate((python["version"], tuple(tensors["python"].tolist()), python["gauss"]))
    keys = tensors["numpy"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, legacy["position"], legacy["has_gauss"], legacy["cached"]))
