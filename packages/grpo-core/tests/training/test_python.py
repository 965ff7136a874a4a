"""`train`, `evaluate` and `resume` as a person calls them from a script or a notebook."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import grpo_core
from grpo_core import Row, Task, TaskConfig, UserError, reward
from grpo_core.callbacks import Callback, StepRecord
from grpo_core.config import EvalConfig, RunConfig, TrainerConfig, resolve
from grpo_core.errors import UnknownNameError
from grpo_core.evaluation.runs import evaluate_run
from grpo_core.training.result import RunResult


class Sum(Row):
    prompt: str


def load(config: TaskConfig) -> Iterable[Sum]:
    for a in range(20):
        for b in range(10):
            if ((a + b) % 2 == 0) == (config.split == "train"):
                yield Sum(id=f"{a}+{b}", prompt=f"{a} + {b} =", gold=str(a + b))


def made() -> Task:
    """A task that no file holds, whose reward is a closure."""
    least = 0.0

    @reward()
    def right(answer: str, row: Sum) -> float:
        return max(least, float(answer == row.gold))

    return Task("closed", load, lambda row: row.prompt, lambda text: text.strip(), [right])


SMALL: dict[str, Any] = {
    "model": "tiny",
    "max_steps": 2,
    "prompts_per_step": 2,
    "num_generations": 2,
    "progress": False,
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    folder = tmp_path_factory.mktemp("runs")
    return grpo_core.train(made(), **SMALL, eval={"size": 4}, output_dir=folder)


def test_a_task_object_is_trained_on(result: RunResult) -> None:
    assert result.summary["steps"] == 2
    assert result.summary["tasks"]["python.closed"]["final"]["n"] == 4
    assert "\ntask: python.closed" in (result.run_dir / "config.yaml").read_text()


def test_the_result_is_a_short_table(result: RunResult) -> None:
    headline, columns, row = repr(result).splitlines()
    assert headline.startswith(f"{result.run_dir}: after 2 steps, ")
    assert columns.split()[:3] == ["task", "solved", "before"]
    assert row.startswith("python.closed   0.")
    assert "<td>python.closed</td>" in result._repr_html_()


def test_the_metrics_are_records_and_frames(result: RunResult) -> None:
    assert [record["step"] for record in result.metrics] == [1, 2]
    assert list(result.metrics.to_pandas()["step"]) == [1, 2]
    with pytest.raises(UserError, match="pip install polars"):
        result.metrics.to_polars()


def test_the_completions_can_be_read(result: RunResult) -> None:
    assert {rollout.task for rollout in result.rollouts(step=2)} == {"python.closed"}


def test_the_trained_model_is_evaluated_on_the_same_task(result: RunResult) -> None:
    again = result.evaluate(size=4, progress=False)
    final = result.summary["tasks"]["python.closed"]["final"]
    assert again["python.closed"]["solved_rate"] == final["solved_rate"]
    assert again["python.closed"]["identity"] == grpo_core.load_task(made(), split="test", size=4).identity
    assert repr(again).splitlines()[1].startswith("python.closed   0.")


def test_metrics_are_plotted(result: RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    assert result.plot("reward", "solved_rate")._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(UnknownNameError, match="Did you mean"):
        result.plot("rewrad")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # as where matplotlib is not installed
    assert "solved_rate" in repr(result.plot("reward", "solved_rate"))


@pytest.mark.slow  # two imports of torch in processes of their own
def test_checkpoints_of_a_run_on_an_object_are_evaluated_in_their_own_process(
    result: RunResult, tmp_path: Path
) -> None:
    (task,) = result.objects
    evaluation = evaluate_run(result.run_dir, task=task, steps="final", with_base=False, output_dir=tmp_path)
    assert evaluation.failures == {}
    assert evaluation.results["python.closed"]["step_final"]["n"] == 4


def test_a_run_on_an_object_is_resumed_with_the_object(result: RunResult) -> None:
    more = {"additional_steps": 1, "progress": False}
    with pytest.raises(UserError, match=r"is none of other\."):
        grpo_core.resume(result.run_dir, task=replace(made(), name="other"), **more)  # type: ignore[arg-type]
    resumed = grpo_core.resume(result.run_dir, task=made(), **more)  # type: ignore[arg-type]
    assert resumed.summary["steps"] == 3


def test_another_process_says_how_to_resume_it(result: RunResult) -> None:
    command = [sys.executable, "-m", "grpo_core", "resume", str(result.run_dir), "--additional-steps", "1"]
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert printed.returncode == 2
    assert "grpo_core.resume(run, task=closed)" in printed.stderr
    assert len(printed.stderr.splitlines()) == 1


class Steps(Callback):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_step(self, record: StepRecord) -> None:
        self.seen.append(record.step)


def test_a_mixture_of_objects_and_specs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps()
    settings = {**SMALL, "progress": True, "max_steps": 1, "prompts_per_step": 3, "at_start": False, "at_end": False}
    mixed = [replace(made(), name="mixed"), ("math.arithmetic?size=20", 2)]
    result = grpo_core.train(mixed, [steps], **settings, output_dir=tmp_path)
    assert result.summary["task"] == "python.mixed,math.arithmetic:2?size=20"
    assert steps.seen == [1]
    printed = capsys.readouterr()
    assert "task python.mixed (100 train / 0 held-out rows)" in printed.err
    assert "next: result.evaluate()" in printed.err
    assert printed.out == ""


CONFIG = RunConfig(trainer=TrainerConfig(max_steps=7), eval=EvalConfig(size=3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"max_step": 1}, "no setting 'max_step'. Did you mean 'trainer.max_steps'?"),
        ({"enabled": True}, "enabled= is a setting of several sections: write lora={'enabled': …} or curriculum="),
        ({"trainer": 3}, "trainer= is a section of settings: give a mapping, as in trainer={"),
        ({"learning_rate": "x"}, "trainer.learning_rate=x (python): must be a number"),
        ({"callbacks": "tiny"}, "train() takes a model by name: model='tiny'."),
        ({"task": RunConfig(), "config": RunConfig()}, "two configurations"),
        ({"config": resolve(RunConfig()), "seed": 1}, "a resolved configuration is taken as it is: set seed before"),
        ({"task": 3}, "a task is a spec, a Task or a list of these; got 3."),
        ({"eval_task": "math.nothing"}, "math.nothing"),
    ],
)
def test_mistakes_are_one_line_before_anything_starts(call: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as mistake:
        grpo_core.train(**{"output_dir": tmp_path, **call} if "seed" not in call else call)
    assert message in str(mistake.value)
    assert not list(tmp_path.iterdir())
    assert mistake.value._render_traceback_() == [f"{type(mistake.value).__name__}: {mistake.value}"]


def test_a_model_is_warmed_up_on_an_object(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    demos = [("1 + 1 =", " 2"), ("2 + 2 =", " 4")]
    task = replace(made(), name="warmed", demos=lambda config: demos, max_completion_length=4)
    record = grpo_core.warm_start(task, tmp_path / "warm", preset="tiny", max_steps=1, batch_size=2, eval_size=2)
    assert record["evaluation"]["python.warmed"]["n"] == 2
    printed = capfd.readouterr().err
    assert {line.split(" ")[0] for line in printed.splitlines()} <= {"result", "working"}, printed


def test_two_threads_train_at_once(tmp_path: Path) -> None:
    results: list[RunResult] = []

    def run() -> None:
        results.append(grpo_core.train(made(), **SMALL, at_start=False, at_end=False, output_dir=tmp_path))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.summary["steps"] for result in results] == [2, 2]


def test_training_within_an_event_loop(tmp_path: Path) -> None:
    async def main() -> RunResult:
        return grpo_core.train(made(), **SMALL, at_start=False, at_end=False, output_dir=tmp_path)

    assert asyncio.run(main()).summary["steps"] == 2


SCRIPT = """\
from grpo_core import Row, Task, reward, train
class Sum(Row):
    prompt: str
def load(config) -> list[Sum]:
    start = 0 if config.split == "train" else 50
    return [Sum(id=str(n), prompt=f"{n} + 1 =", gold=str(n + 1)) for n in range(start, start + 50)]
right = reward()(lambda text, row: float(text.strip() == row.gold))
add = Task("add", load, lambda row: row.prompt, lambda text: text, [right])
result = train(add, model="tiny", max_steps=2, prompts_per_step=2, eval={"size": 4})
print(result, result.evaluate(size=4), sep="\\n")
"""


# Over 5 s, like the notebook below: a fresh interpreter imports torch, as it does for a user.
def test_a_script_of_ten_lines_without_a_guard(tmp_path: Path) -> None:
    assert len(SCRIPT.splitlines()) == 10
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert printed.returncode == 0, printed.stderr
    shown = printed.stdout.splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["task", "script.add", "task", "script.add"]
    labels = {line.split(" ")[0] for line in printed.stderr.splitlines()} - {"", "working"}  # by how slow it is
    assert labels == {"grpo-run", "why", "initial", "sample", "step", "final", "saved", "report", "result"}


CELLS = (
    """\
import grpo_core
from grpo_core import Row, Task, reward

class Sum(Row):
    prompt: str

def load(config) -> list[Sum]:
    numbers = [n for n in range(90) if (n % 3 > 0) == (config.split == "train")]
    return [Sum(id=str(n), prompt=f"{n} + 1 =", gold=str(n + 1)) for n in numbers]

@reward()
def right(answer, row):
    while answer == "hang":
        pass
    return float(answer == row.gold)

add = Task("add", load, lambda row: row.prompt, lambda text: text.strip(), [right], timeout_s=1.0)
""",
    """\
row = grpo_core.load_task(add).rows()[0]
[grpo_core.score(add, text, row).value for text in (row.gold, "0", "hang")]
""",
    """\
result = grpo_core.train(add, model="tiny", max_steps=2, prompts_per_step=2, eval={"size": 4})
result
""",
    "result.evaluate(size=4)",
)


def test_a_notebook_of_four_cells(tmp_path: Path) -> None:
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    nbformat.validate(notebook)
    outputs = [cell.outputs for cell in notebook.cells]
    kinds = [[output.output_type for output in each] for each in outputs]
    # Nothing of a library's: no warning, no bar.
    assert kinds == [[], ["execute_result"], *[["display_data", "execute_result"]] * 2]
    assert outputs[1][0].data["text/plain"] == "[1.0, 0.0, None]"
    progress, shown = outputs[2]
    assert "step      2/2  reward" in progress.data["text/html"]
    assert "next: result.evaluate()" in progress.data["text/plain"]
    assert "<td>python.add</td>" in shown.data["text/html"]
    assert "<td>python.add</td>" in outputs[3][1].data["text/html"]
