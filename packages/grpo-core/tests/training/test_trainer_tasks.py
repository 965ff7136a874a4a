"""What a task says about its scores, its batches and its evaluation, from its own file to the logs of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_core import UserError, train
from grpo_core.callbacks import Callback, ResolvedDefault, RunInfo
from grpo_core.cli.main import main
from grpo_core.config import EvalConfig, RunConfig, ScoringConfig, TrainerConfig, resolve
from grpo_core.evaluation.evaluate import Candidate, evaluate, evaluate_as
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.evaluation.setup import ModelOptions
from grpo_core.interop.trl import EvaluationCallback
from grpo_core.policy.fresh import fresh_model
from grpo_core.tracking.rollouts import read_rollouts
from grpo_core.training.provenance import config_hash, data_hash, versions
from grpo_core.training.resume import resume

TASKS = """
import json, os
from collections.abc import Iterable
from grpo_core import EvaluationDefaults, Row, Task, TaskConfig, reward

class Options(TaskConfig):
    crash: bool = False

def load(config) -> Iterable[Row]:
    for index in range(8):
        yield Row(id=f"{config.split}{index}", gold="x")

@reward(1.0)
def printable(answer):
    return sum(32 <= ord(character) < 127 for character in answer) / max(1, len(answer))

@reward(0.0)
def characters(text):
    return len(text)

@reward(1.0)
def held_out(config):
    return config.split != "train"

def conditions(config):
    return {"sandbox": os.environ["LEVEL"]}

def metrics(scores):
    return {"execution/total": len(scores), "execution/characters": sum(s.parts["characters"] for s in scores)}

def broken(scores):
    return {"execution/broken": 1 / 0 if scores else 0}

def report(found):
    with open(found.folder / f"report_{found.phase}_{found.step}.json", "w") as file:
        json.dump([[each.row.id, each.prompt, each.completion, each.score.value] for each in found.records], file)
    return {f"mbpp_eval/{found.phase}_rate": found.results["solved_rate"], "mbpp_eval/seconds": found.seconds}

def evaluation(config):
    return EvaluationDefaults(size=3, num_completions=2, temperature=1.0, interval_steps=2, report=report)

def prompt(row):
    return row.id

rest = dict(max_completion_length=4, default_model="tiny", config=Options)
code = Task("code", load, prompt, lambda text, row: text, (printable, characters), conditions=conditions,
            metrics=metrics, evaluation=evaluation, **rest)
plain = Task("plain", load, prompt, lambda text, row: text, (printable,), metrics=broken, **rest)
by_split = Task("by_split", load, prompt, lambda text, row: text, (held_out,), **rest)
clashing = Task("clashing", load, prompt, lambda text, row: text, (printable, characters), metrics=metrics, **rest)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks")
    model, tokenizer = fresh_model("tiny", seed=0)
    model.save_pretrained(path / "model")
    tokenizer.save_pretrained(path / "model")
    (path / "tasks.py").write_text(TASKS)
    return path


@pytest.fixture(autouse=True)
def level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVEL", "L3: seccomp")


class Ears(Callback):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.chosen: list[ResolvedDefault] = []

    def on_run_start(self, info: RunInfo) -> None:
        self.chosen += info.choices

    def on_choices(self, choices: Sequence[ResolvedDefault]) -> None:
        self.chosen += choices

    def on_warning(self, message: str) -> None:
        self.said.append(message)


def config(folder: Path, out: Path, tasks: str, *, held: dict[str, Any] | None = None, **trainer: Any) -> RunConfig:
    return RunConfig(
        task=",".join(f"{folder / 'tasks.py'}:{name}" for name in tasks.split(",")),
        model=str(folder / "model"),
        output_dir=str(out),
        device="cpu",
        trainer=TrainerConfig(
            **{"max_steps": 3, "prompts_per_step": 2, "num_generations": 2, "max_completion_length": 4, **trainer}
        ),
        scoring=ScoringConfig(workers=1),
        eval=EvalConfig(**{"surprisal": False, "size": 4, **(held or {})}),
    )


def lines(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "logs" / name).read_text().splitlines()]


SANDBOX = {"sandbox": "L3: seccomp"}


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ears]:
    os.environ["LEVEL"] = "L3: seccomp"
    ears, out = Ears(), tmp_path_factory.mktemp("run")
    # Of eval.*, only surprisal is said: the rest is the task's for `code`, and ours for `plain`.
    held = EvalConfig(surprisal=False)
    made = config(folder, out / "runs", "code,plain").model_copy(update={"eval": held})
    return train(made, (ears,)).run_dir, ears


def test_conditions_are_shown_once_and_stored_everywhere(run: tuple[Path, Ears]) -> None:
    path, ears = run
    sandbox = [choice for choice in ears.chosen if choice.what == "sandbox"]
    assert sandbox == [ResolvedDefault("sandbox", "L3: seccomp", "the scores of tasks.code depend on it")]
    summary = json.loads((path / "summary.json").read_text())["tasks"]
    assert (summary["tasks.code"]["conditions"], summary["tasks.plain"]["conditions"]) == (SANDBOX, {})
    assert summary["tasks.code"]["final"]["conditions"] == SANDBOX
    info = json.loads((path / "training_state" / "step_final" / "training_info.json").read_text())
    assert info["conditions"] == {"tasks.code": SANDBOX}
    found = {record.task.rpartition(":")[2]: record.conditions for record in read_rollouts(path)}
    assert found == {"code": SANDBOX, "plain": None}
    (meta,) = (path.parent.parent / "eval_runs" / f"{path.name}_tasks.code" / "base").rglob("run_meta.json")
    assert json.loads(meta.read_text())["conditions"] == SANDBOX


def test_a_reward_reads_the_split_of_its_row(folder: Path, tmp_path: Path) -> None:
    result = train(config(folder, tmp_path, "by_split"))
    assert [line["reward"] for line in lines(result.run_dir, "train_log.jsonl")] == [0.0] * 3
    assert [line["eval/tasks.by_split/mean_reward"] for line in lines(result.run_dir, "evaluations.jsonl")] == [1.0] * 2


def test_a_batchs_numbers_are_logged_under_their_names(run: tuple[Path, Ears]) -> None:
    path, ears = run
    logged = lines(path, "train_log.jsonl")
    assert [line["execution/total"] for line in logged] == [2.0, 2.0, 2.0], "one prompt of two for each task"
    for line in logged:
        assert line["execution/characters"] == line["task/tasks.code/part/characters"] * 2
    broken = [said for said in ears.said if "metrics()" in said]
    assert len(broken) == 1, "said once, in training and in evaluations"
    assert broken[0].startswith("task 'tasks.plain': metrics() raised ZeroDivisionError (tasks.py:")
    assert not any("execution/broken" in line for line in logged)


def test_a_task_is_evaluated_as_it_wishes(run: tuple[Path, Ears]) -> None:
    path, ears = run
    wishes = [choice.value for choice in ears.chosen if choice.what == "evaluation"]
    assert wishes == ["tasks.code: size=3, n=2, temperature=1.0, interval_steps=2"]
    evaluated = lines(path, "evaluations.jsonl")
    assert [(line["step"], line["phase"]) for line in evaluated] == [(0, "initial"), (2, "interval"), (3, "final")]
    for line in evaluated:
        assert line["eval/tasks.code/n"] == 3.0
        assert "eval/tasks.code/pass@2" in line
        assert line["eval/tasks.code/execution/total"] == 6.0
        low, high = (line[f"eval/tasks.code/execution/characters_ci_{end}"] for end in ("low", "high"))
        assert low <= line["eval/tasks.code/execution/characters"] <= high
    assert ["eval/tasks.plain/n" in line for line in evaluated] == [True, False, True]
    assert evaluated[0]["eval/tasks.plain/n"] == 8.0


def test_a_task_reports_its_evaluations(run: tuple[Path, Ears]) -> None:
    path, _ = run
    reports = sorted(file.name for file in path.glob("report_*.json"))
    assert reports == ["report_final_3.json", "report_initial_0.json", "report_interval_2.json"]
    records = json.loads((path / "report_initial_0.json").read_text())
    assert [(row, prompt) for row, prompt, *_ in records] == [(f"test{i // 2}", f"test{i // 2}") for i in range(6)]
    evaluated = lines(path, "evaluations.jsonl")
    for line, phase in zip(evaluated, ("initial", "interval", "final"), strict=True):
        assert line[f"mbpp_eval/{phase}_rate"] == line["eval/tasks.code/solved_rate"]
    summary = json.loads((path / "summary.json").read_text())["tasks"]
    assert set(summary["tasks.code"]["initial"]["report"]) == {"mbpp_eval/initial_rate", "mbpp_eval/seconds"}
    assert "report" not in summary["tasks.plain"]["initial"]


def test_what_the_user_says_stands_above_a_tasks_wish(folder: Path, tmp_path: Path) -> None:
    held = {"size": 2, "n": 1, "temperature": 0.0, "interval_steps": None, "at_end": False}
    path = train(config(folder, tmp_path / "runs", "code", held=held, max_steps=2)).run_dir
    (line,) = lines(path, "evaluations.jsonl")
    assert (line["phase"], line["eval/tasks.code/n"]) == ("initial", 2.0)
    assert "eval/tasks.code/pass@2" not in line


def test_names_that_two_log_are_refused_before_the_model_loads(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_core.training.starting_policy.load_policy", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(UserError, match=r"tasks\.clashing logs 'execution/total', which is tasks\.code's already"):
        train(config(folder, tmp_path, "code,clashing"))


def test_a_resume_keeps_the_wishes_and_refuses_other_conditions(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(out: str, **trainer: Any) -> RunConfig:
        return config(folder, tmp_path / out, "code", held={"size": 2}, **trainer)

    straight = train(made("straight")).run_dir
    stopped = train(made("stopped", stop_after=1)).run_dir
    monkeypatch.setenv("LEVEL", "L2: no namespaces")
    with pytest.raises(
        UserError, match=r"tasks\.code is \{'sandbox': 'L2: .* was \{'sandbox': 'L3.*--allow conditions"
    ):
        resume(stopped)
    monkeypatch.setenv("LEVEL", "L3: seccomp")
    resume(stopped)

    def numbers(path: Path) -> list[dict[str, Any]]:
        timed = ("_s", "seconds", "_mib")
        return [{k: v for k, v in line.items() if not k.endswith(timed)} for line in lines(path, "evaluations.jsonl")]

    assert numbers(stopped) == numbers(straight)
    assert [line["phase"] for line in numbers(stopped)] == ["initial", "interval", "final"]


def test_other_plugin_versions_are_refused_unless_allowed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = config(folder, tmp_path, "plain", held={"at_start": False, "at_end": False}, stop_after=1)
    made = made.model_copy(update={"task": "math.echo?size=8"})
    path = train(made).run_dir
    info = json.loads((path / "training_state" / "step_1" / "training_info.json").read_text())
    assert "grpo-tasks-math" in info["versions"]
    assert info["config_hash"] == config_hash(resolve(made).config)
    host = "grpo_core.plugins.PluginHost.distribution"
    monkeypatch.setattr(host, lambda self, plugin: "grpo-tasks-math 9.9")
    with pytest.raises(UserError, match=r"grpo-tasks-math is 9\.9 now and was .*--allow versions"):
        resume(path)
    assert not resume(path, allow=["versions"]).interrupted


def test_hashes_change_with_what_they_are_of(folder: Path, tmp_path: Path) -> None:
    first = config(folder, tmp_path, "plain")
    assert config_hash(first) == config_hash(config(folder, tmp_path / "elsewhere", "plain", save_every=2))
    assert config_hash(first) != config_hash(config(folder, tmp_path, "plain", learning_rate=1.0))
    from grpo_core import Row

    rows = [Row(id="1"), Row(id="2")]
    hashes = {data_hash({"a": rows}), data_hash({"a": rows[::-1]}), data_hash({"b": rows}), data_hash({"a": rows[:1]})}
    assert len(hashes) == 4
    assert len(data_hash({})) == 16
    assert set(versions()) == {"python", "grpo-core", "torch", "transformers", "peft", "numpy"}


# Beside a training


def test_an_evaluation_alone_follows_the_wishes_and_reports(folder: Path, tmp_path: Path) -> None:
    ears = Ears()
    spec, model = f"{folder / 'tasks.py'}:code", str(folder / "model")
    (result,) = evaluate(spec, model, size=2, surprisal=False, output_dir=tmp_path / "out", callbacks=(ears,)).values()
    assert (result["n"], result["completions_per_row"], result["conditions"]) == (2, 2, SANDBOX)
    assert result["metrics"]["execution/total"] == 4.0
    assert result["report"]["mbpp_eval/final_rate"] == result["solved_rate"]
    assert [choice.what for choice in ears.chosen] == ["sandbox", "evaluation"]
    assert len(list((tmp_path / "out" / "model_tasks.code").glob("report_final_0.json"))) == 1


def test_an_evaluation_that_writes_nothing_gives_a_report_no_folder(folder: Path) -> None:
    ears = Ears()
    found = evaluate_as(
        f"{folder / 'tasks.py'}:code",
        Candidate(model=str(folder / "model")),
        {"size": 2},
        EvaluationSettings(surprisal=False),
        ModelOptions(scoring=ScoringConfig(workers=1)),
        callbacks=(ears,),
    )
    assert found["tasks.code"]["report"] == {}
    assert any("report() raised TypeError" in said for said in ears.said), "its own report writes all the same"


def test_commands_show_the_conditions(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = f"{folder / 'tasks.py'}:code"
    line = "why       sandbox L3: seccomp: the scores of tasks.code depend on it"
    assert main(["sample", spec, "-n", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    assert line in err
    assert json.loads(out)[0]["conditions"] == SANDBOX
    monkeypatch.delenv("LEVEL")
    assert main(["sample", spec]) == 2
    assert "error: task 'tasks.code': conditions() raised KeyError (tasks.py:" in capsys.readouterr().err


def test_a_trainers_callback_follows_the_wishes(folder: Path, tmp_path: Path) -> None:
    from types import SimpleNamespace

    made = EvaluationCallback(f"{folder / 'tasks.py'}:code", loading=ModelOptions(scoring=ScoringConfig(workers=1)))
    model, tokenizer = fresh_model("tiny", seed=0)
    given = {"model": model, "processing_class": tokenizer}
    arguments = SimpleNamespace(bf16=False, fp16=False, world_size=1, output_dir=str(tmp_path))
    state = SimpleNamespace(global_step=0, log_history=[])
    moments: list[Callable[..., None]] = [made.on_train_begin, *[made.on_step_end] * 3, made.on_train_end]
    for step, moment in zip((0, 1, 2, 3, 3), moments, strict=True):
        state.global_step = step
        moment(arguments, state, None, **given)
    assert [(phase, step) for phase, step, _, _ in made.results] == [("initial", 0), ("interval", 2), ("final", 3)]
    assert [entry["eval/tasks.code/n"] for entry in state.log_history] == [3.0] * 3
    assert "mbpp_eval/interval_rate" in state.log_history[1]
    assert [choice.what for choice in made.choices] == ["sandbox", "evaluation"]
    assert torch.is_grad_enabled()
