"""`trainer.micro_batch_size=auto`: doubling and halving on the real model, and what is remembered."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import resumed_runs
import torch
import yaml
from heard import Heard
from small_policies import model, policy_of, settings

from grpo_core import resume, train
from grpo_core.config import TrainerConfig
from grpo_core.policy.memory import OutOfMemoryError
from grpo_core.policy.memory_meter import MIB
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.training import micro_batch
from grpo_core.training.micro_batch import SizeCache, TriedSize, choose_micro_batch

FIXED, PER_ROW, LIMIT = 100 * MIB, 10 * MIB, 1000 * MIB


STATES = Policy.states


class FakeMeter:
    """Memory of which each completion in the last pass took a part; passes above a size run out of it."""

    def __init__(self, limit: int, most: int) -> None:
        self.rows: list[int] = []
        self._limit, self._most, self._since = limit, most, 0

    def states(self, policy: Policy, ids: torch.Tensor, *rest: Any) -> Any:
        self.rows.append(len(ids))
        if len(ids) > self._most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return STATES(policy, ids, *rest)

    def reset(self) -> None:
        self._since = len(self.rows)

    def peak(self) -> int:
        return FIXED + PER_ROW * max(self.rows[self._since :], default=0)

    def limit(self) -> int:
        return self._limit


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., FakeMeter]:
    """Makes a meter that sees the passes of every policy from then on."""
    monkeypatch.setenv("GRPO_CACHE_DIR", str(tmp_path / "cache"))

    def made(limit: int = LIMIT, out_of_memory_above: int = 10**9) -> FakeMeter:
        meter = FakeMeter(limit, out_of_memory_above)
        monkeypatch.setattr(Policy, "states", lambda *given: meter.states(*given))
        return meter

    return made


def config(**options: Any) -> TrainerConfig:
    sizes = {"num_generations": 4, "prompts_per_step": 24, "max_prompt_length": 8, "micro_batch_size": "auto"}
    return settings(**{**sizes, **options})


def chosen(meter: FakeMeter | None, policy: Policy | None = None, ranks: Ranks | None = None, **options: Any) -> Any:
    """How many completions, and the choice as a run says it."""
    return choose_micro_batch(policy or policy_of(model(0)), config(**options), ranks or Ranks(), meter)


def test_the_largest_divisor_below_the_share_is_found_by_doubling_and_halving(passes: Callable[..., FakeMeter]) -> None:
    rows, choice = chosen(meter := passes())
    # 96 completions: 100 + 10 · 48 MiB fit in 0.8 of 1000. 100 + 10 · 96 are more than there are: not tried, since the
    # system would end the process.
    assert rows == 48
    assert meter.rows == [1, 2, 4, 8, 16, 32, 48]
    assert (choice.what, choice.value) == ("trainer.micro_batch_size", "48")


@pytest.mark.parametrize(("share", "fits"), [(0.8, 64), (0.65, 48), (0.3, 16), (0.125, 2), (0.11, 1), (0.01, 1)])
def test_a_share_of_the_memory_is_kept(passes: Callable[..., FakeMeter], share: float, fits: int) -> None:
    assert chosen(passes(), prompts_per_step=48, micro_batch_memory=share)[0] == fits  # 192 = 64 · 3


@pytest.mark.parametrize("fits", [1, 2, 3, 24, 96])
def test_running_out_of_memory_ends_the_doubling(passes: Callable[..., FakeMeter], fits: int) -> None:
    assert chosen(passes(limit=10**12, out_of_memory_above=fits))[0] == fits


def test_not_even_one(passes: Callable[..., FakeMeter]) -> None:
    with pytest.raises(OutOfMemoryError, match=r"not even one completion fits.*8 \+ 8 tokens.*gradient_checkpointing"):
        chosen(passes(out_of_memory_above=0))


def test_ranks_divide_the_step_and_take_the_smallest(passes: Callable[..., FakeMeter]) -> None:
    class Four(Ranks):
        def gather(self, data: bytes) -> list[bytes]:
            return [data, b"6", b"12", b"24"]

    rows, choice = chosen(passes(limit=10**12), ranks=Four(0, 0, 4))
    assert rows == 6
    assert choice.why.startswith("auto, tried on the model: 24 of 24 completions need")
    assert choice.why.endswith("another rank has room for fewer")


def test_nothing_stays_of_the_trials_with_a_real_meter_too(passes: Callable[..., FakeMeter]) -> None:
    policy = policy_of(model(0))
    policy.model.eval()
    before = [parameter.clone() for parameter in policy.parameters()]
    randomness = torch.get_rng_state()
    chosen(passes(out_of_memory_above=8), policy)
    assert chosen(None, policy, prompts_per_step=1)[0] == 4
    assert all(parameter.grad is None for parameter in policy.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    assert torch.equal(randomness, torch.get_rng_state())
    assert not policy.model.training


# --- What is remembered


def test_a_number_is_found_once_with_its_memory_and_that_of_the_optimizers_moments(
    passes: Callable[..., FakeMeter], tmp_path: Path
) -> None:
    first = chosen(passes())
    again = chosen(meter := passes(), policy_of(model(7)))
    assert (again[0], meter.rows) == (first[0], [])
    assert again[1].why.startswith("auto, remembered from an earlier run")
    (file,) = (tmp_path / "cache").iterdir()
    assert file.name == "micro_batch.json"
    moments = 2 * sum(parameter.nbytes for parameter in model(7).parameters())
    (entry,) = json.loads(file.read_text())["sizes"].values()
    assert entry == {"rows": 48, "peak": FIXED + 48 * PER_ROW + moments}


CHANGED: list[dict[str, Any]] = [
    {"max_prompt_length": 9}, {"max_completion_length": 9}, {"num_generations": 8}, {"micro_batch_memory": 0.7},
    {"gradient_checkpointing": True}, {"entropy_coef": 0.1}, {"prompts_per_step": 1}, {"beta": 0.1, "kl": "full"},
]  # fmt: skip


def test_what_the_memory_depends_on_is_tried_again(passes: Callable[..., FakeMeter]) -> None:
    plain, narrow = policy_of(model(0)), policy_of(model(0).float())
    plain.freeze_reference()
    others = [(narrow, {}), (replace(narrow, autocast=torch.bfloat16), {}), *((plain, each) for each in CHANGED)]
    for policy, changed in [(plain, {}), *others]:
        chosen(meter := passes(), policy, **{"prompts_per_step": 2, **changed})
        assert meter.rows, changed
    chosen(meter := passes(limit=LIMIT + 1), plain, prompts_per_step=2)
    assert meter.rows, "another memory"


@pytest.mark.parametrize("content", [
    "", "null", '{"format": 2, "sizes": {"k": {"rows": 4, "peak": 5}}}', '{"format": 1, "sizes": {"k": 4}}',
    '{"format": 1, "sizes": {"k": {"rows": 5, "peak": 5}}}',
    '{"format": 1, "sizes": {"k": {"rows": "4", "peak": 5}}}',
    '{"format": 1, "sizes": {"k": {"rows": 4, "peak": -5}}}', " " * (2 << 20),
    '{"format": 1, "sizes": {"k": {"rows": true, "peak": 5}}}',
    '{"format": 1, "sizes": {"k": {"rows": 4, "peak": ' + "9" * 4000 + "}}}",
])  # fmt: skip
def test_a_file_is_checked(tmp_path: Path, content: str) -> None:
    path = tmp_path / "micro_batch.json"
    path.write_text(content)
    cache = SizeCache(path)
    assert cache.recall("k", [1, 2, 4]) is None
    cache.remember("k", TriedSize(4, 5))
    assert cache.recall("k", [1, 2, 4]) == TriedSize(4, 5, is_remembered=True)


# --- A run


def test_a_run_has_the_number_and_a_resume_takes_the_same(
    passes: Callable[..., FakeMeter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed_runs.model_and_tasks(tmp_path)
    monkeypatch.setattr(micro_batch, "memory_meter", lambda device: passes(limit=10**12))
    made = resumed_runs.config(tmp_path, tmp_path / "auto", "plain", micro_batch_size="auto", stop_after=2)
    run = train(made, [seen := Heard()]).run_dir
    choice, settings = seen.choices["trainer.micro_batch_size"], run / "config.yaml"
    assert yaml.safe_load(settings.read_text())["trainer"]["micro_batch_size"] == int(choice.value) == 16
    assert seen.choices["gradient accumulation"].value == "1 micro-batches"
    assert seen.settings["trainer.micro_batch_size"] == 16, "which trackers get"
    monkeypatch.setattr("grpo_core.training.hardware.choose_micro_batch", None)
    resume(run)
    note = f"trainer.micro_batch_size 16: {choice.why}"
    assert f"# {note}" in settings.read_text().splitlines(), "a resume keeps it"
    assert note in json.loads((run / "summary.json").read_text())["chosen"]
    plain = train(resumed_runs.config(tmp_path, tmp_path / "plain", "plain", micro_batch_size=16)).run_dir
    resumed_runs.assert_same(run, plain)
