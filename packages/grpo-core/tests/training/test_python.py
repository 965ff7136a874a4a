"""`train`, `evaluate` and `resume` as a person calls them from a script or a notebook."""

from __future__ import annotations

import asyncio
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import grpo_core
from grpo_core.config import RunConfig, resolve
from grpo_sdk import Row, Task, TaskConfig, UserError, reward
from grpo_sdk.cli.main import main
from grpo_sdk.errors import UnknownNameError
from grpo_sdk.plugins import task_objects

if TYPE_CHECKING:  # a process that scores may import this module, and needs no torch
    from grpo_core.training.result import RunResult

PROGRAMS = Path(__file__).parent / "programs"


def load(config: TaskConfig) -> list[Row]:
    first = 0 if config.split == "train" else 1
    return [Row(id=f"{n} + {n}", gold=str(2 * n)) for n in range(first, 100, 2)]


def made() -> Task:
    """A task that no file holds, whose reward is a closure."""
    least = 0.0

    @reward()
    def right(answer: str, row: Row) -> float:
        return max(least, float(answer == row.gold))

    return Task("closed", load, lambda row: f"{row.id} =", lambda text: text.strip(), [right])


SMALL: dict[str, Any] = {"model": "tiny", "max_steps": 2, "prompts_per_step": 2, "num_generations": 2}
QUIET: dict[str, Any] = {**SMALL, "progress": False, "at_start": False, "at_end": False}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return grpo_core.train(
        made(), **SMALL, progress=False, eval={"size": 4}, output_dir=tmp_path_factory.mktemp("runs")
    )


def test_a_task_object_is_trained_on(result: RunResult) -> None:
    assert result.summary["steps"] == 2
    assert result.summary["tasks"]["python.closed"]["final"]["n"] == 4
    assert "\ntask: python.closed" in (result.run_dir / "config.yaml").read_text()
    assert {rollout.task for rollout in result.rollouts(step=2)} == {"python.closed"}


def test_the_result_is_a_short_table(result: RunResult) -> None:
    headline, columns, row = repr(result).splitlines()
    assert headline.startswith(f"{result.run_dir}: after 2 steps, ")
    assert columns.split()[:3] == ["task", "solved", "before"]
    assert row.startswith("python.closed   0.")
    assert "<td>python.closed</td>" in result._repr_html_()


def test_the_metrics_are_records_frames_and_plots(result: RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [record["step"] for record in result.metrics] == [1, 2]
    assert list(result.metrics.to_pandas()["step"]) == [1, 2]
    with pytest.raises(UserError, match="pip install polars"):
        result.metrics.to_polars()
    assert result.plot("reward", "solved_rate")._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(UnknownNameError, match="Did you mean"):
        result.plot("rewrad")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # as where matplotlib is not installed
    assert "solved_rate" in repr(result.plot("reward", "solved_rate"))


def test_the_trained_model_is_evaluated_on_the_same_task(result: RunResult) -> None:
    again = result.evaluate(size=4, progress=False)
    final = result.summary["tasks"]["python.closed"]["final"]
    assert again["python.closed"]["solved_rate"] == final["solved_rate"]
    assert again["python.closed"]["identity"] == grpo_core.load_task(made(), split="test", size=4).identity
    assert repr(again).splitlines()[1].startswith("python.closed   0.")


def test_a_run_on_an_object_is_resumed_with_the_object(
    result: RunResult, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(task_objects, "_objects", {})  # as in another process
        assert main(["resume", str(result.run_dir), "--additional-steps", "1"]) == 2
    assert "grpo_core.resume(run, task=closed)" in capsys.readouterr().err
    more: dict[str, Any] = {"additional_steps": 1, "progress": False}
    with pytest.raises(UserError, match=r"is none of other\."):
        grpo_core.resume(result.run_dir, task=replace(made(), name="other"), **more)
    assert grpo_core.resume(result.run_dir, task=made(), **more).summary["steps"] == 3


@pytest.mark.parametrize(("call", "message"), [
    ({"max_step": 1}, "no setting 'max_step'. Did you mean 'trainer.max_steps'?"),
    ({"enabled": True}, "enabled= is a setting of several sections: write lora={'enabled': …} or curriculum="),
    ({"trainer": 3}, "trainer= is a section of settings: give a mapping, as in trainer={"),
    ({"callbacks": "tiny"}, "train() takes a model by name: model='tiny'."),
    ({"task": RunConfig(), "config": RunConfig()}, "two configurations"),
    ({"config": resolve(RunConfig())}, "a resolved configuration is taken as it is: set output_dir before"),
])  # fmt: skip
def test_mistakes_are_one_line_before_anything_starts(call: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as mistake:
        grpo_core.train(**{"output_dir": tmp_path, **call})
    assert message in str(mistake.value)
    assert not list(tmp_path.iterdir())
    assert mistake.value._render_traceback_() == [f"{type(mistake.value).__name__}: {mistake.value}"]


def test_a_model_is_warmed_up_on_an_object(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    demos = [("1 + 1 =", " 2"), ("2 + 2 =", " 4")]
    task = replace(made(), name="warmed", demos=lambda config: demos, max_completion_length=4)
    record = grpo_core.warm_start(task, tmp_path / "warm", preset="tiny", max_steps=1, batch_size=2, eval_size=2)
    assert record["evaluation"]["python.warmed"]["n"] == 2
    labels = {line.split(" ")[0] for line in capfd.readouterr().err.splitlines()}
    assert labels <= {"result", "working", "warning", ""}  # the warning is of two held-out rows


def test_two_threads_train_at_once_and_so_does_an_event_loop(tmp_path: Path) -> None:
    def run(_: int = 0) -> RunResult:
        return grpo_core.train(made(), **QUIET, output_dir=tmp_path)

    async def looped() -> RunResult:
        return run()

    with ThreadPoolExecutor(2) as threads:
        results = [*threads.map(run, range(2)), asyncio.run(looped())]
    assert [result.summary["steps"] for result in results] == [2, 2, 2]


def test_a_script_without_a_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(PROGRAMS / "script.py"), run_name="__main__")
    printed = capfd.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()[1:]] == ["task", "script.add"] * 2
    labels = {line.split(" ")[0] for line in printed.err.splitlines()} - {"", "working"}  # by how slow it is
    assert labels - {"warning", "warned"} == {  # of few held-out rows
        *("grpo-run", "why", "initial", "sample", "step", "final", "saved", "report", "result")
    }
