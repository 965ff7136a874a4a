"""How prompts divide among ranks, and a rank's among its forward passes; settings that ranks agree on."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import torch
from loaded_configs import resolved

from grpo_core.config import ResolvedConfig, RunConfig, TrainerConfig, flatten
from grpo_core.policy.ranks import Ranks
from grpo_core.policy.sharding import ShardLayout
from grpo_core.profiles.accelerator import GIB, Accelerator, detect
from grpo_core.training.new_run import agreed
from grpo_core.training.random_state import gathered_random_state, restore_rank, seed_everything
from grpo_core.training.rank_shares import accumulation, check_shares, check_sharing, shard_size
from grpo_core.training.starting_policy import shard_layout
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.errors import UserError


@dataclass(frozen=True, slots=True)
class Gathering(Ranks):
    """Ranks of which each says the same as this one, and then the others."""

    others: tuple[bytes, ...] = ()

    def gather(self, data: bytes) -> list[bytes]:
        return [data, *([] if data.startswith((b"+", b"-")) else self.others)]


def trainer(**options: object) -> TrainerConfig:
    return TrainerConfig(**{"prompts_per_step": 12, "num_generations": 4, **options})


def run_of(**options: object) -> RunConfig:
    return RunConfig(trainer=trainer(**options))


FULL, HYBRID = {"sharding": "full"}, {"sharding": "hybrid"}


@pytest.mark.parametrize(("options", "ranks", "node", "message"), [
    ({}, 5, 5, r"5 ranks cannot share the 12 prompts.*: 12 / 5 = 2\.4\. Use 1, 2, 3 or 4"),
    ({"steps_per_generation": 4}, 2, 2, r"12 prompts_per_step / 4 steps_per_generation = 3 / 2 = 1\.5\. Use 1"),
    ({"micro_batch_prompts": 4}, 2, 2, r"micro_batch_prompts=4.*: 12 / 2 ranks = 6, 6 / 4 = 1\.5\. Use 1, 2, 3 or 6"),
    (FULL, 1, 1, r"sharding=full shares a model among processes.*--nproc N.*sharding=none"),
    ({**FULL, "micro_batch_size": "auto"}, 2, 2, r"micro_batch_size=auto with trainer.sharding=full.*number"),
    (HYBRID, 4, 4, r"the 4 of each machine: it is one group of all 4.*Use trainer\.shard_size=2, or sharding="),
    (HYBRID, 2, 2, r"which is trainer\.sharding=full\. Use trainer\.sharding=full"),
    (HYBRID, 2, 1, r"the 1 of each machine: one process shares with nobody, which is trainer\.sharding=none"),
    ({**HYBRID, "shard_size": 8}, 12, 6, r"shard_size=8: 12 .*12 / 8 = 1\.5\. Use .*2, 3, 4 or 6"),
])  # fmt: skip
def test_what_does_not_divide_is_told_in_numbers(options: dict[str, Any], ranks: int, node: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_shares(trainer(**options), ranks, node)


def test_a_group_that_shares_a_model_is_a_machine_or_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shard_size(trainer(**FULL), 12, 4) == 12
    assert shard_size(trainer(**HYBRID), 12, 4) == 4
    assert shard_size(trainer(**HYBRID, shard_size=6), 12, 4) == 6
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert shard_layout(run_of(**HYBRID), Gathering(size=12)) == ShardLayout(4, from_first_rank=True)
    assert shard_layout(run_of(), Gathering(size=12)) is None
    with pytest.raises(UserError, match=r"different numbers of processes, 2 and 4.*Set trainer\.shard_size"):
        shard_layout(run_of(**HYBRID), Gathering(size=12, others=(b"2",)))


def test_a_run_on_a_cpu_has_nothing_to_offload() -> None:
    offloaded = run_of(**FULL, cpu_offload=True)
    with pytest.raises(UserError, match=r"cpu_offload=true: this run computes on the CPU.*nothing to offload"):
        shard_layout(offloaded, Gathering(size=2))
    on_gpu = shard_layout(offloaded, Gathering(size=2, device=torch.device("cuda", 0)))
    assert on_gpu is not None and on_gpu.is_offloaded


@pytest.mark.parametrize(("options", "precision", "message"), [
    ({"off_policy_steps": 1}, "auto", r"off_policy_steps=1 with trainer\.sharding=full: on GPUs two threads"),
    ({"cpu_offload": True}, "float16", r"cpu_offload=true with precision=float16.*Use precision=bfloat16"),
])  # fmt: skip
def test_what_a_sharded_model_cannot_do_on_a_gpu(options: dict[str, Any], precision: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_sharing(run_of(**FULL, **options), "cuda", precision)
    check_sharing(run_of(**FULL, cpu_offload=True), "cuda", "bfloat16")
    # What is not sharded or samples from a server may be ahead.
    check_sharing(run_of(off_policy_steps=1), "cuda", "auto")
    check_sharing(RunConfig(engine={"name": "vllm"}, trainer=trainer(**FULL, off_policy_steps=1)), "cuda", "auto")


@pytest.mark.parametrize(("name", "size", "ranks", "count", "rows"), [
    ("micro_batch_prompts", 2, 1, 6, "12 prompts of an optimizer step"),
    ("micro_batch_prompts", 2, 3, 2, "12 prompts of an optimizer step / 3 ranks"),
    ("micro_batch_size", 4, 1, 12, "48 completions of an optimizer step"),
    ("micro_batch_size", 4, 12, 1, "48 completions of an optimizer step / 12 ranks"),
])  # fmt: skip
def test_accumulation_is_computed(name: str, size: int, ranks: int, count: int, rows: str) -> None:
    check_shares(trainer(**{name: size}), ranks, ranks)
    choice = ResolvedDefault("gradient accumulation", f"{count} micro-batches", f"{rows} / {name} {size}")
    assert accumulation(trainer(**{name: size}), Ranks(size=ranks)) == [choice]
    assert accumulation(trainer(), Ranks(size=ranks)) == []  # filled by tokens, as many as it takes


@pytest.mark.parametrize(("n", "size"), [(8, 2), (7, 3), (1, 4), (0, 2)])
def test_shares_are_disjoint_and_whole(n: int, size: int) -> None:
    shares = [Ranks(rank=rank, size=size).share(n) for rank in range(size)]
    assert [index for share in shares for index in share] == list(range(n))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_rank_that_was_not_there_gets_numbers_of_its_own() -> None:
    def numbers() -> tuple[float, ...]:
        return tuple(torch.rand(3).tolist())

    seed_everything(7)
    state = gathered_random_state(Ranks())
    drawn = [numbers()]
    for rank, step in ((0, 2), (1, 2), (2, 2), (1, 3)):
        restore_rank(rank, *state, seed=7, step=step)
        drawn.append(numbers())
        restore_rank(rank, *state, seed=7, step=step)
        assert numbers() == drawn[-1]
    assert drawn[0] == drawn[1]
    seed_everything(7 + 1)  # what the rank would have begun a run with
    assert len({*drawn, numbers()}) == 5


# Accelerators that recommend different settings

A100 = Accelerator("cuda", "NVIDIA A100-SXM4-80GB", int(79.3 * GIB), "8.0")
RTX = Accelerator("cuda", "NVIDIA GeForce RTX 4080", int(15.7 * GIB), "8.9")
T4 = Accelerator("cuda", "Tesla T4", int(14.6 * GIB), "7.5")


def on(monkeypatch: pytest.MonkeyPatch, accelerator: Accelerator, **given: Any) -> ResolvedConfig:
    monkeypatch.setattr("grpo_core.profiles.accelerator.detect", lambda device="auto": accelerator)
    settings = {name.replace("__", "."): value for name, value in given.items()}
    return resolved({"model": "Qwen/Qwen2.5-1.5B-Instruct", "lora.enabled": True, **settings})


def said(config: ResolvedConfig, accelerator: Accelerator) -> bytes:
    recommended = [key for key, source in config.sources.items() if source.kind in ("profile", "default")]
    return orjson.dumps({"accelerator": str(accelerator), "values": flatten(config.config), "recommended": recommended})


def together(
    monkeypatch: pytest.MonkeyPatch, first: Accelerator, *others: Accelerator, **given: Any
) -> tuple[list[ResolvedConfig], ResolvedConfig]:
    """What each resolves by itself, and what the first one then uses."""
    alone = [on(monkeypatch, each, **given) for each in (first, *others)]
    told = tuple(said(config, each) for config, each in zip(alone[1:], others, strict=True))
    monkeypatch.setattr("grpo_core.profiles.accelerator.detect", lambda device="auto": first)
    return alone, agreed(alone[0], Gathering(size=len(alone), others=told))


def test_the_smallest_sizes_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    (large, small), config = together(monkeypatch, A100, RTX)
    assert large.config.engine.max_batch_tokens > small.config.engine.max_batch_tokens
    assert flatten(config.config) == flatten(small.config)
    source = config.sources["engine.max_batch_tokens"]
    why = "the smallest that fits every rank: NVIDIA A100-SXM4-80GB, 79.3 GiB, compute capability 8.0 on rank 0; "
    assert source.kind == "profile" and source.where.startswith(why)
    choice = config.choices[-1]
    assert choice.what == "settings"
    assert f"engine.max_batch_tokens={small.config.engine.max_batch_tokens}" in choice.value
    assert choice.why.endswith("NVIDIA GeForce RTX 4080, 15.7 GiB, compute capability 8.9 on rank 1")
    assert agreed(small, Gathering(size=2, others=(said(large, A100),))).config == config.config, "in any order"
    (first, _), config = together(monkeypatch, A100, A100)
    assert config is first


def test_precisions_that_differ_are_refused_by_all_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = r"bfloat16 \(NVIDIA A100.*8\.0\) on ranks 0, 2; float16 \(Tesla T4.*7\.5\) on rank 1"
    with pytest.raises(UserError, match=rf"precision is another one .*: {apart}\. Set .*precision=float16"):
        together(monkeypatch, A100, T4, A100)
    (_, small), config = together(monkeypatch, A100, T4, precision="float16")
    assert flatten(config.config) == flatten(small.config)


def test_what_was_set_differently_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = on(monkeypatch, A100, trainer__micro_batch_tokens=4096)
    other = on(monkeypatch, A100, trainer__micro_batch_tokens=2048)
    with pytest.raises(UserError, match=r"trainer\.micro_batch_tokens .* 4096 .* on rank 0; 2048 .* on rank 1\. Set"):
        agreed(alone, Gathering(size=2, others=(said(other, A100),)))


def test_a_rank_looks_at_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def properties(index: int) -> SimpleNamespace:
        return SimpleNamespace(name=f"gpu {index}", total_memory=GIB, major=8, minor=0)

    monkeypatch.setattr("grpo_core.profiles.accelerator._may_have_accelerator", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    assert detect("cuda:1").name == "gpu 1"
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert detect("cuda:1").name == "gpu 1", "a single process"
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert (detect("auto").name, detect("cuda:1").name) == ("gpu 3", "gpu 3")
