"""How prompts divide among ranks, and a rank's among its forward passes."""

from dataclasses import dataclass

import pytest
import torch

from grpo_core.config import RunConfig, TrainerConfig
from grpo_core.errors import UserError
from grpo_core.policy import ranks as ranks_module
from grpo_core.policy.ranks import Ranks, _buckets
from grpo_core.policy.sharding import ShardLayout
from grpo_core.training.random_state import gathered_random_state, restore_rank, seed_everything
from grpo_core.training.rank_shares import accumulation, check_shares, check_sharing, shard_size
from grpo_core.training.starting_policy import shard_layout


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


@pytest.mark.parametrize(
    ("options", "ranks", "message"),
    [
        ({}, 5, r"5 ranks cannot share the 12 prompts of an optimizer step: 12 / 5 = 2\.4\. Use 1, 2, 3 or 4 of them"),
        (
            {"steps_per_generation": 4},
            2,
            r"the 3 prompts .*: 12 prompts_per_step / 4 steps_per_generation = 3 / 2 = 1\.5\. Use 1 of them, or let",
        ),
        (
            {"micro_batch_prompts": 4},
            2,
            r"micro_batch_prompts=4 does not divide .*: 12 / 2 ranks = 6, 6 / 4 = 1\.5\. Use 1, 2, 3 or 6\.",
        ),
        (
            {"micro_batch_size": 16},
            4,
            r"micro_batch_size=16 does not divide .*: 12 prompts x 4 generations / 4 ranks = 12, 12 / 16 = 0\.75\. Use",
        ),
        ({"sharding": "full"}, 1, r"sharding=full shares a model among processes.*--nproc N.*sharding=none"),
        (
            {"sharding": "full", "micro_batch_size": "auto"},
            2,
            r"micro_batch_size=auto with trainer.sharding=full.*number",
        ),
    ],
)
def test_what_does_not_divide_is_refused_with_the_arithmetic(options: dict, ranks: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_shares(trainer(**options), ranks, ranks)


@pytest.mark.parametrize(
    ("options", "ranks", "node", "message"),
    [
        ({}, 1, 1, r"sharding=hybrid shares a model among processes, and this is the only one"),
        (
            {},
            4,
            4,
            r"the 4 of each machine: it is one group of all 4 processes.*Use trainer\.shard_size=2, or sharding=",
        ),
        ({}, 2, 2, r"which is trainer\.sharding=full\. Use trainer\.sharding=full\."),
        ({}, 2, 1, r"the 1 of each machine: one process shares with nobody, which is trainer\.sharding=none"),
        ({"shard_size": 1}, 4, 2, r"shard_size=1: one process shares with nobody"),
        (
            {"shard_size": 8},
            12,
            6,
            r"shard_size=8: 12 processes cannot be divided into .*12 / 8 = 1\.5\. Use .*2, 3, 4 or 6,",
        ),
    ],
)
def test_groups_that_share_a_model_must_divide_the_ranks(options: dict, ranks: int, node: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_shares(trainer(sharding="hybrid", **options), ranks, node)


def test_a_group_that_shares_a_model_is_a_machine_or_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shard_size(trainer(sharding="full"), 12, 4) == 12
    assert shard_size(trainer(sharding="hybrid"), 12, 4) == 4
    assert shard_size(trainer(sharding="hybrid", shard_size=6), 12, 4) == 6
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert shard_layout(run_of(sharding="hybrid"), Gathering(size=12)) == ShardLayout(4, from_first_rank=True)
    assert shard_layout(run_of(), Gathering(size=12)) is None


def test_machines_with_different_numbers_of_processes_must_be_told_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(UserError, match=r"different numbers of processes, 2 and 4.*Set trainer\.shard_size"):
        shard_layout(run_of(sharding="hybrid"), Gathering(size=12, others=(b"2",)))


def test_a_run_on_a_cpu_has_nothing_to_offload() -> None:
    with pytest.raises(UserError, match=r"cpu_offload=true: this run computes on the CPU.*nothing to offload"):
        shard_layout(run_of(sharding="full", cpu_offload=True), Gathering(size=2))
    on_gpu = shard_layout(run_of(sharding="full", cpu_offload=True), Gathering(size=2, device=torch.device("cuda", 0)))
    assert on_gpu is not None and on_gpu.is_offloaded


@pytest.mark.parametrize(
    ("options", "precision", "message"),
    [
        (
            {"off_policy_steps": 1},
            "auto",
            r"off_policy_steps=1 with trainer\.sharding=full: on GPUs two threads cannot",
        ),
        ({"cpu_offload": True}, "float16", r"cpu_offload=true with precision=float16.*Use precision=bfloat16"),
    ],
)
def test_what_a_sharded_model_cannot_do_on_a_gpu(options: dict, precision: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_sharing(run_of(sharding="full", **options), "cuda", precision)


def test_what_is_not_sharded_or_samples_from_a_server_may_be_ahead_on_a_gpu() -> None:
    check_sharing(run_of(off_policy_steps=1), "cuda", "auto")
    server = RunConfig(engine={"name": "vllm"}, trainer=trainer(sharding="full", off_policy_steps=1))
    check_sharing(server, "cuda", "auto")
    check_sharing(run_of(sharding="full", cpu_offload=True), "cuda", "bfloat16")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 12])
def test_accumulation_is_computed_and_exact(ranks: int) -> None:
    # Micro-batches x their size x ranks are the step's 12 prompts, or 48 completions.
    for options, whole in (({"micro_batch_prompts": 1}, 12), ({"micro_batch_size": 4}, 48)):
        check_shares(trainer(**options), ranks, ranks)
        (choice,) = accumulation(trainer(**options), Ranks(size=ranks))
        count = int(choice.value.split()[0])
        assert count * ranks * next(iter(options.values())) == whole
    assert accumulation(trainer(), Ranks(size=ranks)) == []  # filled by tokens, as many as it takes


def test_accumulation_says_the_arithmetic() -> None:
    (choice,) = accumulation(trainer(micro_batch_size=8), Ranks(size=2))
    assert (choice.what, choice.value) == ("gradient accumulation", "3 micro-batches")
    assert choice.why == "48 completions of an optimizer step / 2 ranks / micro_batch_size 8"


def test_shares_are_disjoint_and_whole() -> None:
    for n, size in ((8, 2), (7, 3), (1, 4), (0, 2)):
        shares = [Ranks(rank=rank, size=size).share(n) for rank in range(size)]
        assert [index for share in shares for index in share] == list(range(n))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_buckets_are_bounded_and_of_one_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks_module, "BUCKET_BYTES", 40)  # ten numbers of float32
    sizes = [4, 6, 1, 30, 2]
    tensors = [torch.zeros(size) for size in sizes] + [torch.zeros(1, dtype=torch.float64)]
    assert [[each.numel() for each in bucket] for bucket in _buckets(tensors)] == [[4, 6], [1], [30], [2], [1]]


def numbers() -> list[float]:
    return torch.rand(3).tolist()


def test_a_rank_that_was_not_there_gets_numbers_of_its_own() -> None:
    seed_everything(7)
    state = gathered_random_state(Ranks())
    expected = numbers()
    restore_rank(0, *state, seed=7, step=2)
    assert numbers() == expected
    drawn = []
    for rank, step in ((1, 2), (2, 2), (1, 3)):
        restore_rank(rank, *state, seed=7, step=step)
        drawn.append(numbers())
        restore_rank(rank, *state, seed=7, step=step)
        assert numbers() == drawn[-1]
    seed_everything(7 + 1)  # what the rank would have begun a run with
    assert len({tuple(each) for each in (*drawn, expected, numbers())}) == 5
