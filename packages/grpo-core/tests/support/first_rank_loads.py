"""Sharded policies whose weights the first rank alone reads: `python first_rank_loads.py FOLDER OUT` starts two ranks.

FOLDER has `model`, `adapter` and `large`; OUT receives what `test_first_rank` judges, a JSON object by case. The ranks
are forks where that is safe, which import nothing.
"""

import json
import multiprocessing
import os
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch

from grpo_core.config import LoraConfig, RunConfig, TrainerConfig
from grpo_core.policy import pretrained
from grpo_core.policy.parts import gathered_state
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks, joined
from grpo_core.training.starting_policy import shard_layout, starting_policy
from grpo_sdk.errors import UserError

IDS = torch.tensor([[10, 20, 30, 40, 50, 60]])

CASES: dict[str, dict[str, Any]] = {
    "full": {"trainer": {"beta": 0.1, "value_head": True, "baseline": "value"}},
    "ahead": {"trainer": {"off_policy_steps": 1}},
    "float64": {"precision": "float64"},
    "fresh LoRA": {"trainer": {"beta": 0.1}, "lora": LoraConfig(enabled=True, r=2)},
    "loaded LoRA": {"trainer": {"beta": 0.1}, "adapter": "adapter"},
}


def config_of(folder: Path, *, model: str = "model", sharding: str = "full", **given: Any) -> RunConfig:
    trainer = TrainerConfig(prompts_per_step=4, num_generations=4, sharding=sharding, **given.pop("trainer", {}))
    if "adapter" in given:
        given["adapter"] = str(folder / given["adapter"])
    return RunConfig(model=str(folder / model), device="cpu", trainer=trainer, **given)


def logprobs(policy: Policy) -> list[float]:
    with torch.no_grad(), policy.in_step():
        states = policy.states(IDS, torch.tensor([2]), torch.tensor([4]), [(0,)])
        return [float(value) for value in states.logprobs()[0].flatten()]


def passes(policy: Policy) -> dict[str, list[float]]:
    """Log-probs of everything that has weights: the policy, its reference, its copy that samples, its value head."""
    found = {"policy": logprobs(policy)}
    if policy.sampled is not None:
        found["sampled"] = logprobs(policy.sampled)
    if policy.anchor is not None:
        with policy.reference() as reference:
            found["reference"] = logprobs(reference)
    if policy.value_head is not None:
        found["value head"] = [float(each.double().sum()) for each in gathered_state(policy.value_head).values()]
    return found


def loaded(config: RunConfig, ranks: Ranks) -> Policy:
    return starting_policy(config, None, ranks, shard_layout(config, ranks))


def compared(folder: Path, case: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    """The passes of every rank, and of one process with the whole model."""
    policy = loaded(config_of(folder, **case), ranks)
    by_rank = [json.loads(each) for each in ranks.gather(json.dumps(passes(policy)).encode())]
    tensors = [*policy.model.parameters(), *policy.model.buffers()]
    alone = loaded(config_of(folder, **{**case}, sharding="none"), Ranks())
    return {
        "ranks": by_rank,
        "alone": passes(alone),
        "on meta": ranks.any(any(tensor.is_meta for tensor in tensors)),
        "eos": [int(each) for each in ranks.gather(str(policy.model.generation_config.eos_token_id).encode())],
        "choices": {choice.what: [choice.value, choice.why] for choice in policy.choices},
    }


@contextmanager
def without_structure() -> Iterator[None]:
    """No model can be made without its weights."""

    def refuse(*_: object) -> None:
        raise pretrained.StructureError("it computes with its weights")

    made, pretrained._structure = pretrained._structure, refuse
    try:
        yield
    finally:
        pretrained._structure = made


def growth(folder: Path, ranks: Ranks) -> list[float]:
    """Host memory that loading takes at its peak, as a share of the model, by rank."""
    loaded(config_of(folder), ranks)  # libraries are imported now
    before = psutil.Process().memory_info().rss
    policy = loaded(config_of(folder, model="large"), ranks)
    size = 4 * sum(parameter.numel() for parameter in policy.model.parameters())
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return [float(each) for each in ranks.gather(str((peak - before) / size).encode())]


def error_of(folder: Path, model: str, ranks: Ranks) -> list[str]:
    """What each rank raises."""
    try:
        loaded(config_of(folder, model=model), ranks)
    except UserError as error:
        message = str(error)
    return [each.decode() for each in ranks.gather(message.encode())]


def work(rank: int, folder: Path, out: Path) -> None:
    os.environ["RANK"] = str(rank)
    with joined("cpu", 60) as ranks:
        found: dict[str, Any] = {"memory": growth(folder, ranks)}
        found |= {name: compared(folder, case, ranks) for name, case in CASES.items()}
        with without_structure():
            found["no structure"] = compared(folder, CASES["loaded LoRA"], ranks)
        found["damaged"] = error_of(folder, "damaged", ranks)
        found["missing"] = error_of(folder, "missing", ranks)
        if ranks.is_main:
            out.write_text(json.dumps(found))


if __name__ == "__main__":
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    os.environ.update(WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=str(port))
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    ranks = [context.Process(target=work, args=(rank, *map(Path, sys.argv[1:]))) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(any(process.exitcode for process in ranks))
