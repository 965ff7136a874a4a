"""The ways that docs/explanation/architecture.md follows are those that are taken."""

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from click.testing import CliRunner

from grpo_core import train
from grpo_core.cli.run import run
from grpo_sdk import Row, Scorer, Task, load_task
from grpo_sdk import reward as grade
from grpo_sdk.scoring import wire

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "architecture.md"
WAYS = {
    name: [line.split()[0] for line in lines.splitlines()]
    for name, lines in re.findall(r"```calls-(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
}

TASK = load_task("math.arithmetic?size=1")
ROW = TASK.rows()[0]
SMALL = {"model": "tiny", "max_steps": 1, "prompts_per_step": 2, "num_generations": 2}
EVAL = {"at_start": False, "at_end": False}
REQUEST = wire.encode({"op": "grade", "row": ROW.model_dump_json(), "text": ROW.gold})


@contextmanager
def called() -> Iterator[dict[str, int]]:
    """Functions of ours that are called, in the order of their first calls."""
    first: dict[str, int] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("grpo_"):
            first.setdefault(f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}", len(first))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield first
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def completion(tmp_path: Path) -> None:
    with Scorer(TASK, workers=1) as scorer:
        assert scorer.submit(str(ROW.gold), ROW).result().solved


def worker(tmp_path: Path) -> None:
    assert wire.decode(wire.handler_of(TASK)(REQUEST))["solved"]


def spin(text: str, row: Row) -> str:
    while True:
        pass


@grade()
def right(answer: str) -> float:
    return 1.0


def hanging(tmp_path: Path) -> None:
    task = Task("spin", lambda: [Row(id="a")], lambda row: "?", spin, (right,), row=Row, on_timeout="fail")
    with Scorer(task, workers=1, timeout_s=0.2) as scorer:
        score = scorer.submit("x", Row(id="a")).result()
    assert (score.value, score.valid) == (0.0, False)


def setting(tmp_path: Path) -> None:
    sizes = [f"{name}={value}" for name, value in SMALL.items()] + [f"eval.{name}=false" for name in EVAL]
    arguments = ["--task", "math.arithmetic", "learning_rate=1e-5", f"output_dir={tmp_path}", *sizes]
    assert CliRunner().invoke(run, arguments).exit_code == 0


def reward(tmp_path: Path) -> None:
    train("math.arithmetic", output_dir=tmp_path, progress=False, eval=EVAL, **SMALL)


@pytest.mark.parametrize("follow", [completion, worker, hanging, setting, reward])
def test_each_way_is_as_the_page_says(follow: Callable[[Path], None], tmp_path: Path) -> None:
    with called() as first:
        follow(tmp_path)
    expected = WAYS[follow.__name__]
    assert set(expected) <= first.keys()
    assert expected == sorted(expected, key=first.__getitem__)


def test_the_files_that_the_page_names_are_there(root: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    files = {
        path.relative_to(root).as_posix()
        for part in ("packages", "tests", "docs", "examples")
        for path in (root / part).rglob("*.*")
    }
    named = re.findall(r"`((?:\w+/)+\w+\.\w+)`", text)
    assert [name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)] == []
