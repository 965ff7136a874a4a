"""Whole runs with each baseline, loss, penalty and sampling rule, on rewards that depend on the completion's text."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from grpo_core import train
from grpo_core.callbacks import Callback, StepRecord
from grpo_core.config import EvalConfig, LoraConfig, RunConfig, ScoringConfig, TrainerConfig
from grpo_core.policy.fresh import fresh_model
from grpo_core.training.trainer import RunResult

TASKS = """
from collections.abc import Iterable
from grpo_core import Invalid, Row, Task, reward

def load(config) -> Iterable[Row]:
    for index in range(12):
        yield Row(id=f"{config.split}{index}", gold="x")

def validate(text, row):
    return text

@reward(1.0)
def printable(answer):
    return sum(32 <= ord(character) < 127 for character in answer) / max(1, len(answer))

@reward(0.5)
def short(answer):
    return float(len(answer) < 4)

@reward(1.0)
def sometimes(answer, row):
    return 1.0 if row.id[-1] in "02468" else float(len(answer) % 2)

@reward(1.0)
def odd(answer):
    return float(sum(map(ord, answer)) % 2)

def prompt(row):
    return row.id

letters = Task("letters", load, prompt, validate, (printable, short), max_completion_length=6)
coins = Task("coins", load, prompt, validate, (odd,), max_completion_length=6)
halves = Task("halves", load, prompt, validate, (sometimes,), max_completion_length=6)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("algorithms")
    model, tokenizer = fresh_model("tiny", seed=0)
    model.save_pretrained(path / "model")
    tokenizer.save_pretrained(path / "model")
    (path / "tasks.py").write_text(TASKS)
    return path


def run(
    folder: Path,
    out: Path,
    task: str = "letters",
    *,
    lora: bool = False,
    callbacks: Sequence[Callback] = (),
    **trainer: object,
) -> list[dict]:
    """Train two steps and return the log."""
    options = {"max_steps": 2, "prompts_per_step": 4, "num_generations": 4, "max_completion_length": 6, **trainer}
    result = train(
        RunConfig(
            task=f"{folder / 'tasks.py'}:{task}",
            model=str(folder / "model"),
            output_dir=str(out),
            device="cpu",
            trainer=TrainerConfig(**{"learning_rate": 1e-3, **options}),
            lora=LoraConfig(enabled=lora, r=2),
            scoring=ScoringConfig(workers=1),
            eval=EvalConfig(at_start=False, at_end=False),
        ),
        callbacks=callbacks,
    )
    lines = [json.loads(line) for line in (result.run_dir / "logs" / "train_log.jsonl").read_text().splitlines()]
    for line in lines:
        assert all(value is None or math.isfinite(value) for value in line.values())
        assert line["skipped_updates"] == 0
    return lines


BASELINES = [
    "group_mean", "leave_one_out", "batch_mean", "ema", "adaptive", "adaptive_shrink", "role", "pass_at_k",
    "pass_at_k_best", "maxrl", "bnpo", "reinforce_pp", "reinforce_pp_baseline", "gpg", "opo", "remax", "gdpo",
]  # fmt: skip


@pytest.mark.parametrize("baseline", BASELINES)
def test_every_baseline_trains(folder: Path, tmp_path: Path, baseline: str) -> None:
    # Rewards that are 0 or 1 and depend on the completion suit every one of them.
    lines = run(folder, tmp_path, "coins", baseline=baseline, scale_rewards="none", num_generations=6)
    assert max(line["grad_norm"] for line in lines) > 0


LOSSES = [
    "bnpo", "rloo", "reinforce", "gpg", "cispo", "sapo", "dro", "dppo", "gspo", "gspo_token", "gmpo", "luspo", "vespo",
    "seq_ppo",
]  # fmt: skip


@pytest.mark.parametrize("loss_type", LOSSES)
def test_every_loss_trains_and_its_ratio_is_one_on_policy(folder: Path, tmp_path: Path, loss_type: str) -> None:
    first, _ = run(folder, tmp_path, loss_type=loss_type)
    assert first["grad_norm"] > 0
    assert first["ratio_mean"] == first["ratio_max"] == 1.0
    assert first["ess"] == pytest.approx(1.0)
    assert first.get("clip_ratio/region", 0.0) == 0.0


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("kl", ["k1", "k2", "k3", "abs", "fkl", "fkl_k3", "jeffreys", "full"])
def test_every_kl_is_zero_at_the_first_step_in_the_loss(folder: Path, tmp_path: Path, kl: str, lora: bool) -> None:
    first, second = run(folder, tmp_path, beta=0.05, kl=kl, lora=lora)
    assert first["kl"] == pytest.approx(0.0, abs=1e-6)
    assert second["kl"] != 0.0
    if kl in ("k2", "k3", "abs", "fkl_k3", "jeffreys", "full"):
        assert second["kl"] > 0


@pytest.mark.parametrize("baseline", ["group_mean", "reinforce_pp"])
def test_kl_in_the_reward_changes_the_advantages_once_the_policy_has_moved(
    folder: Path, tmp_path: Path, baseline: str
) -> None:
    options = {"baseline": baseline, "scale_rewards": "none", "learning_rate": 1e-2}
    plain = run(folder, tmp_path / "a", **options)
    penalised = run(folder, tmp_path / "b", beta=0.5, kl="k1", kl_placement="reward", **options)
    assert penalised[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert penalised[1]["kl/k3"] > 0
    assert penalised[0]["grad_norm"] == pytest.approx(plain[0]["grad_norm"], rel=1e-3)
    assert penalised[1]["grad_norm"] != pytest.approx(plain[1]["grad_norm"], rel=1e-3)


def test_the_value_head_learns_and_is_saved(folder: Path, tmp_path: Path) -> None:
    lines = run(
        folder, tmp_path, baseline="value", value_head=True, use_gae=True, value_learning_rate=1e-2, max_steps=8,
        scale_rewards="none",
    )  # fmt: skip
    assert lines[-1]["loss/value"] < lines[0]["loss/value"]
    (path,) = tmp_path.glob("run_*/training_state/step_final/model/value_head.safetensors")
    assert path.stat().st_size > 1000


def test_what_the_length_limit_ends_goes_on_with_its_last_value(folder: Path, tmp_path: Path) -> None:
    gae = {"baseline": "value", "value_head": True, "use_gae": True, "scale_rewards": "none"}
    first, _ = run(folder, tmp_path / "plain", **gae)
    bootstrapped, _ = run(folder, tmp_path / "bootstrapped", gae_bootstrap=True, **gae)
    assert first["completions/truncated_frac"] == 1.0 and first["loss/value"] > 0
    assert bootstrapped["loss/value"] == 0.0  # a new head says 0, and here no reward is the end of anything
    assert bootstrapped["reward"] == first["reward"]


def test_dynamic_sampling_replaces_groups_that_teach_nothing(folder: Path, tmp_path: Path) -> None:
    # Of this task, prompts with an even id always get reward 1: half of all groups are drawn again.
    plain = run(folder, tmp_path / "a", "halves", num_generations=8)
    assert plain[0]["frac_reward_zero_std"] > 0
    lines = run(folder, tmp_path / "b", "halves", num_generations=8, dynamic_sampling=True)
    for line in lines:
        assert line["frac_reward_zero_std"] == 0
        assert line["dynamic_sampling/rejected"] >= 1
        assert line["dynamic_sampling/unfilled"] == 0


def test_dynamic_sampling_gives_up_after_the_last_attempt_and_says_so(folder: Path, tmp_path: Path) -> None:
    lines = run(folder, tmp_path, dynamic_sampling=True, dynamic_sampling_attempts=2, dynamic_sampling_min_std=10.0)
    for line in lines:
        assert line["dynamic_sampling/attempts"] == 2
        assert line["dynamic_sampling/rejected"] == 8  # all 4 groups, twice
        assert line["dynamic_sampling/unfilled"] == 4


def test_the_reference_is_stored_with_the_run(folder: Path, tmp_path: Path) -> None:
    run(folder, tmp_path / "kl", beta=0.1)
    (stored,) = (tmp_path / "kl").glob("run_*/reference/reference.json")
    assert json.loads(stored.read_text())["kind"] == "model"
    run(folder, tmp_path / "plain")
    assert not list((tmp_path / "plain").glob("run_*/reference"))


def evaluated(folder: Path, out: Path, **trainer: object) -> RunResult:
    """A run that does not learn, so that no evaluation is better than the first."""
    options = {"max_steps": 6, "prompts_per_step": 2, "num_generations": 2, "max_completion_length": 6, **trainer}
    return train(
        RunConfig(
            task=f"{folder / 'tasks.py'}:letters",
            model=str(folder / "model"),
            output_dir=str(out / "runs"),
            device="cpu",
            trainer=TrainerConfig(**{"learning_rate": 0.0, **options}),
            scoring=ScoringConfig(workers=1),
            eval=EvalConfig(size=4, interval_steps=1, at_start=False, surprisal=False),
        )
    )


def test_the_best_step_is_saved_and_outlives_the_pruning(folder: Path, tmp_path: Path) -> None:
    result = evaluated(folder, tmp_path, keep_best=True, keep_last=1, save_every=2)
    state = result.run_dir / "training_state"
    assert sorted(path.name for path in state.iterdir()) == ["step_1", "step_6", "step_final", "step_latest"]
    assert result.summary["best"] == {"step": 1, "solved_rate": 0.0, "waited": 5}
    evaluations = (result.run_dir / "logs" / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in evaluations] == [1, 2, 3, 4, 5, 6, 6]  # the last is the final one


def test_a_run_that_gets_no_better_ends_early(folder: Path, tmp_path: Path) -> None:
    result = evaluated(folder, tmp_path, early_stop_patience=2)
    assert (result.summary["steps"], result.interrupted) == (3, False)
    assert (result.run_dir / "training_state" / "step_final").is_dir()


@pytest.mark.parametrize("option", [{"keep_best": True}, {"early_stop_patience": 2}])
def test_what_goes_by_interval_evaluations_needs_some(option: dict) -> None:
    with pytest.raises(ValueError, match=r"trainer\.(keep_best|early_stop_patience)=.*eval\.interval_steps"):
        RunConfig(trainer=TrainerConfig(**option))


class Memory(Callback):
    """Resident memory after each step, in MiB."""

    def __init__(self) -> None:
        self.after: list[float] = []

    def on_step(self, record: StepRecord) -> None:
        self.after.append(psutil.Process().memory_info().rss / 2**20)


@pytest.mark.slow
def test_memory_stays_flat_over_two_hundred_steps(folder: Path, tmp_path: Path) -> None:
    memory = Memory()
    options = {"max_steps": 200, "beta": 0.05, "num_iterations": 2, "entropy_coef": 0.01, "dynamic_sampling": True}
    run(folder, tmp_path, callbacks=[memory], **options)
    assert max(memory.after[150:]) < 1.05 * max(memory.after[20:50])
