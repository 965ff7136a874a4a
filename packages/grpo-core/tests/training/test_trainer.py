import json
import os
import signal
import threading
from pathlib import Path

import pytest
import torch
import yaml

from grpo_core import train
from grpo_core.callbacks import Callback, RunInfo
from grpo_core.config import EvalConfig, LoraConfig, RunConfig, TrainerConfig, resolve
from grpo_core.errors import AbstentionLimitError, UserError
from grpo_core.policy.fresh import fresh_model

TASKS = """
from collections.abc import Iterable
from grpo_core import Invalid, Opponent, Row, Task, TaskConfig, reward

class Letter(Row):
    letter: str

def load(config) -> Iterable[Letter]:
    offset = {"train": 0, "validation": 8, "test": 16}[config.split]
    for index in range(8):
        letter = chr(97 + offset + index)
        yield Letter(id=letter, letter=letter, gold=letter, difficulty=1.0 + index // 4)

def prompt(row):
    return f"{row.letter}{row.letter}"

def validate(text, row):
    if not text:
        raise Invalid("nothing")
    return text

@reward(1.0)
def printable(answer):
    return sum(32 <= ord(character) < 127 for character in answer) / len(answer)

@reward(1.0)
def crashes(answer):
    return 1 / 0

letters = Task("letters", load, prompt, validate, (printable,), max_completion_length=4, default_model="tiny")
other = Task("other", load, prompt, validate, (printable,), max_completion_length=4, default_model="tiny")
@reward(1.0)
def unpredicted(answer, predictions):
    assert len(predictions) == 2
    return float(answer not in predictions)

def many(config) -> Iterable[Letter]:
    for index in range(80):
        gold = "x" * (1 + 2 * (index % 4 == 3))
        name = f"{config.split}{index}"
        yield Letter(id=name, letter=name, gold=gold, difficulty=1.0 + index % 2)

@reward(1.0)
def always(text):
    return 1.0

climb = Task("climb", many, prompt, lambda text, row: text, (always,), max_completion_length=2, order="ladder")

def ask(answer):
    return f"what follows {answer[:4]!r}?"

duel = Task("duel", load, prompt, validate, (unpredicted,), max_completion_length=4,
            opponent=Opponent(prompt=ask, samples=2, max_completion_length=3))
broken = Task("broken", load, prompt, validate, (printable, crashes), max_completion_length=4)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trainer")
    model, tokenizer = fresh_model("tiny", seed=0)
    model.save_pretrained(path / "model")
    tokenizer.save_pretrained(path / "model")
    (path / "tasks.py").write_text(TASKS)
    return path


def config(folder: Path, out: Path, task: str = "letters", **trainer: object) -> RunConfig:
    options = {"max_steps": 2, "prompts_per_step": 4, "num_generations": 4, "max_completion_length": 4, **trainer}
    return RunConfig(
        task=",".join(f"{folder / 'tasks.py'}:{name}" for name in task.split(",")),
        model=str(folder / "model"),
        output_dir=str(out),
        device="cpu",
        trainer=TrainerConfig(**options),
        eval=EvalConfig(size=8),
    )


def log(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "logs" / "train_log.jsonl").read_text().splitlines()]


class Choices(Callback):
    """Remembers what was chosen for the run."""

    def on_run_start(self, info: RunInfo) -> None:
        self.choices = info.choices


TIMING = {
    "tokens_per_s", "generate_s", "update_s", "generate_tokens_per_s", "update_tokens_per_s", "step_s",
    "peak_memory_mib", "memory/generate_mib", "memory/update_mib",
}  # fmt: skip


def test_a_run_leaves_everything_that_was_promised(folder: Path, tmp_path: Path) -> None:
    result = train(config(folder, tmp_path))
    run = result.run_dir
    assert run.parent == tmp_path and run.name.startswith("run_")
    assert yaml.safe_load((run / "config.yaml").read_text())["trainer"]["num_generations"] == 4
    assert "GPU profile cpu: " in (run / "config.yaml").read_text().partition("\n\n")[0]
    assert len(log(run)) == 2
    assert (run / "logs" / "train.log").read_text().splitlines()[0].startswith("step=1 reward=")
    assert (run / "training_state" / "step_final" / "model" / "model.safetensors").is_file()
    summary = json.loads((run / "summary.json").read_text())
    entry = summary["tasks"]["tasks.letters"]
    for phase in ("initial", "final"):
        assert {"solved_rate", "ci_low", "ci_high", "n", "mean_reward"} <= entry[phase].keys()
        assert entry[phase]["n"] == 8
    assert {"delta", "delta_ci_low", "delta_ci_high"} <= entry["final"].keys()
    assert {"steps", "seconds", "tokens", "peak_memory_mib", "versions", "seed"} <= summary.keys()
    for phase in ("memory/generate_mib", "memory/update_mib"):
        assert summary[phase] == max(step[phase] for step in log(run))
        assert 0 < summary[phase] <= summary["peak_memory_mib"]
    rollouts = [json.loads(line) for line in (run / "logs" / "rollouts.jsonl").read_text().splitlines()]
    assert len(rollouts) == 2 * 4 * 4
    assert rollouts[0]["score"]["parts"].keys() == {"printable"}
    assert rollouts[0]["identity"] == entry["identity"]


def test_a_resolved_configuration_is_not_resolved_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = config(folder, tmp_path, max_steps=1)
    made = made.model_copy(update={"eval": EvalConfig(size=8, at_start=False, at_end=False)})
    resolved, seen = resolve(made), Choices()
    monkeypatch.setattr("grpo_core.training.trainer.resolve", lambda *_: pytest.fail("resolved again"))
    run = train(resolved, callbacks=[seen]).run_dir
    assert "trainer.scale_rewards" in {choice.what for choice in resolved.choices}
    assert [choice for choice in seen.choices if choice in resolved.choices] == list(resolved.choices)
    assert yaml.safe_load((run / "config.yaml").read_text()) == resolved.config.model_dump(mode="json")


def test_the_same_seed_gives_the_same_run_bit_for_bit_and_another_does_not(folder: Path, tmp_path: Path) -> None:
    runs = [train(config(folder, tmp_path)) for _ in range(2)]
    first, second = (
        [{name: value for name, value in step.items() if name not in TIMING} for step in log(run.run_dir)]
        for run in runs
    )
    assert first == second
    other = train(config(folder, tmp_path).model_copy(update={"seed": 1}))
    assert log(other.run_dir)[0]["reward"] != log(runs[0].run_dir)[0]["reward"]


def test_on_policy_the_ratio_is_one_and_the_sampler_agrees_with_the_trainer(folder: Path, tmp_path: Path) -> None:
    for temperature in (1.0, 0.7):
        result = train(config(folder, tmp_path, temperature=temperature))
        for step in log(result.run_dir):
            assert step["ratio_mean"] == 1.0
            assert step["clip_ratio/low"] == step["clip_ratio/high"] == 0.0
            assert step["sampler_mismatch"] < 1e-5


def test_kl_is_zero_at_the_first_step(folder: Path, tmp_path: Path) -> None:
    run = config(folder, tmp_path, beta=0.05, learning_rate=1e-3)
    for changed in (run, run.model_copy(update={"lora": LoraConfig(enabled=True, r=4)})):
        steps = log(train(changed).run_dir)
        assert steps[0]["kl"] == pytest.approx(0, abs=1e-9)
        assert steps[1]["kl"] > 0


def test_a_mixture_keeps_exact_quotas_and_logs_each_task(folder: Path, tmp_path: Path) -> None:
    run = config(folder, tmp_path, task="letters,other:3")
    result = train(run)
    assert {"task/tasks.letters/reward", "task/tasks.other/reward"} <= log(result.run_dir)[0].keys()
    lines = [json.loads(line) for line in (result.run_dir / "logs" / "rollouts.jsonl").read_text().splitlines()]
    first = [line["task"].rpartition(":")[2] for line in lines if line["step"] == 1]
    assert (first.count("letters"), first.count("other")) == (4, 12)


def test_too_many_abstentions_end_the_run_and_name_the_task(folder: Path, tmp_path: Path) -> None:
    run = config(folder, tmp_path, task="broken").model_copy(update={"eval": EvalConfig(at_start=False, at_end=False)})
    with pytest.raises(AbstentionLimitError, match=r"tasks\.broken.*ZeroDivisionError"):
        train(run)
    (run_dir,) = tmp_path.iterdir()  # and nothing is lost: the evidence and the model are there
    assert "ZeroDivisionError" in (run_dir / "logs" / "rollouts.jsonl").read_text()
    assert (run_dir / "training_state" / "step_latest" / "model" / "model.safetensors").is_file()


class StopAfter(Callback):
    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_step(self, record) -> None:
        if record.step == self.steps:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
def test_ctrl_c_stops_cleanly_and_saves(folder: Path, tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)
    result = train(config(folder, tmp_path, max_steps=50), callbacks=[StopAfter(2)])
    assert result.interrupted
    assert result.summary["steps"] == 2
    assert (result.run_dir / "training_state" / "step_latest").resolve().name == "step_2"
    assert (result.run_dir / "training_state" / "step_2" / "model" / "model.safetensors").is_file()
    assert json.loads((result.run_dir / "summary.json").read_text())["interrupted"] is True
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_completion_longer_than_the_context_is_refused_with_the_arithmetic(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"context is 512 tokens, 512 - 512 = 0"):
        train(config(folder, tmp_path, max_completion_length=512))


def test_long_prompts_are_dropped_and_said(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="max_prompt_length"):
        train(config(folder, tmp_path, max_prompt_length=1))


def test_training_moves_the_weights_and_a_zero_learning_rate_does_not(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    before = load_file(folder / "model" / "model.safetensors")
    for rate, moves in ((1e-3, True), (0.0, False)):
        run = train(config(folder, tmp_path, learning_rate=rate))
        after = load_file(run.run_dir / "training_state" / "step_final" / "model" / "model.safetensors")
        assert any(not torch.equal(before[name], after[name]) for name in before) is moves


def test_the_pass_rate_curriculum_is_updated_and_saved(folder: Path, tmp_path: Path) -> None:
    from grpo_core.config import CurriculumConfig

    run = config(folder, tmp_path).model_copy(update={"curriculum": CurriculumConfig(enabled=True, ema_alpha=0.5)})
    result = train(run)
    state = json.loads((result.run_dir / "training_state" / "step_final" / "trainer_state.json").read_text())
    assert state["step"] == 2
    (order,) = state["mixture"]["orders"].values()
    assert len(order["pass_rate"]) == 8  # every row was drawn once in two steps of four
    assert any(rate != 0.5 for rate in order["pass_rate"].values())


def test_a_stateful_baseline_is_kept_and_saved(folder: Path, tmp_path: Path) -> None:
    result = train(config(folder, tmp_path, baseline="ema", num_generations=1))
    state = json.loads((result.run_dir / "training_state" / "step_final" / "trainer_state.json").read_text())
    assert state["baseline"].keys() == {"tasks.letters"}


@pytest.mark.parametrize("lora", [False, True])
def test_an_opponent_answers_the_whole_batch_and_reaches_the_rewards(folder: Path, tmp_path: Path, lora: bool) -> None:
    run = config(folder, tmp_path, task="duel").model_copy(update={"lora": LoraConfig(enabled=lora, r=4)})
    result = train(run)
    for step in log(result.run_dir):
        assert step["abstained"] == 0
        assert "task/tasks.duel/part/unpredicted" in step
    assert result.summary["tasks"]["tasks.duel"]["final"]["n"] == 8


class Rows(Callback):
    counts: tuple[int, int]

    def on_run_start(self, info) -> None:
        (self.counts,) = info.tasks.values()


def test_a_ladder_climbs_on_held_out_rows_and_long_golds_are_dropped(folder: Path, tmp_path: Path) -> None:
    from grpo_core.config import CurriculumConfig

    run = config(folder, tmp_path, task="climb", max_gold_length=1).model_copy(
        update={"curriculum": CurriculumConfig(ladder_eval_steps=1), "eval": EvalConfig(size=80)}
    )
    seen = Rows()
    result = train(run, callbacks=[seen])
    state = json.loads((result.run_dir / "training_state" / "step_final" / "trainer_state.json").read_text())
    (order,) = state["mixture"]["orders"].values()
    assert (order["rung"], order["mastered"]) == (2.0, True)  # one rung a step: everything is solved
    assert seen.counts == (60, 80)  # every fourth gold has three tokens
