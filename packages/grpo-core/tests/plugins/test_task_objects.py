"""`Task` objects wherever a spec is taken: their names, and how they reach the processes that score."""

from __future__ import annotations

import functools
import gc
import importlib.util
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import small_games
import torch

import grpo_core
from grpo_core import BoundTask, Row, Score, Scorer, Task, TaskConfig, UserError, load_task, reward
from grpo_core.errors import UnknownNameError
from grpo_core.interop.trl import dataset, reward_funcs
from grpo_core.plugins.task_objects import name_tasks, take_names


class Sum(Row):
    a: int
    b: int


class Sums(TaskConfig):
    top: int = 3


def load(config: Sums) -> Iterable[Sum]:
    for a in range(config.top):
        for b in range(3):
            yield Sum(id=f"{a}+{b}", a=a, b=b, gold=str(a + b))


@reward()
def right(text: str, row: Sum) -> float:
    return float(text == row.gold)


def made(*rewards: Callable[..., float], **changes: Any) -> Task:
    """A task that no file holds."""
    return Task("add", load, lambda row: f"{row.a}+{row.b}=", lambda text: text, rewards, config=Sums, **changes)


add = made(right)


def scored(task: Any, text: str, **options: Any) -> Score:
    return grpo_core.score(task, text, Sum(id="1", a=1, b=1, gold="2"), **options)


def test_options_are_keyword_arguments() -> None:
    assert len(load_task(add).rows()) == 9
    assert len(load_task(add, top=1).rows()) == 3
    assert load_task(load_task(add, top=1)).config.top == 1
    with pytest.raises(UserError, match=r"no option 'tpo'\. Did you mean 'top'"):
        load_task(add, tpo=1)


def test_an_object_of_a_file_is_the_task_of_that_file() -> None:
    bound = load_task(add)
    assert bound.spec == f"{Path(__file__).resolve()}:add"
    assert bound.is_object
    assert bound.name == "test_task_objects.add"
    other = load_task(f"./{Path(__file__).resolve().relative_to(Path.cwd())}:add")
    assert not other.is_object
    assert bound.identity == other.identity


def test_an_object_that_no_file_holds() -> None:
    task = made(right)
    assert (load_task(task).spec, load_task(task).name) == ("python.add", "python.add")
    assert load_task("python.add").task is task
    assert scored(task, "2").value == 1.0
    assert scored(task, "3").value == 0.0


def test_the_name_of_an_object_that_is_gone() -> None:
    with pytest.raises(
        UnknownNameError, match=r"was a Task object .*grpo_core.resume\(run, task=gone\).*./file.py:gone"
    ):
        load_task("python.gone")


def test_two_tasks_of_one_name_are_two_tasks() -> None:
    first, second = (replace(made(function), name="twin") for function in (right, reward()(lambda text: 0.5)))
    named = name_tasks([first, (second, 3), "core.some?size=2"])
    assert named.spec == "python.twin,python.twin_2:3,core.some?size=2"
    with Scorer(first, workers=1) as one, Scorer(second, workers=1) as two:
        rows = [Sum(id="1", a=1, b=1, gold="2")]
        assert [scorer.score(["2"], rows)[0].value for scorer in (one, two)] == [1.0, 0.5]
    assert load_task(second).name == "python.twin"
    del first, second, named, one, two
    gc.collect()
    assert load_task(replace(made(right), name="twin")).spec == "python.twin"


def test_what_is_no_task() -> None:
    for wrong in (3, [], [add, None], {"add": add}):
        with pytest.raises(UserError, match="a task is a spec, a Task or a list of these; got"):
            name_tasks(wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="weight 0 must be a number above 0"):
        name_tasks([(add, 0)])
    with pytest.raises(UserError, match="appears twice"):
        name_tasks([add, add])


def test_a_plugins_own_task_keeps_its_name() -> None:
    bound = load_task("math.arithmetic")
    assert load_task(bound.task).spec == "math.arithmetic"


class Close:
    """A reward that is an object."""

    __name__ = "close"

    def __init__(self, within: int) -> None:
        self.within = within

    def __call__(self, text: str, row: Sum) -> float:
        return float(abs(int(text) - int(row.gold or 0)) <= self.within)


def closure(limit: list[int]) -> Callable[..., float]:
    @functools.cache
    def cached(text: str) -> int:
        return int(text) + limit[0]

    @reward()
    def below(text: str) -> float:
        return float(cached(text) < 10)

    return below


@pytest.mark.parametrize(
    "function", [lambda text, row: float(text == row.gold), Close(0), closure([7]), functools.partial(right)]
)
def test_functions_of_every_kind_reach_the_workers(function: Callable[..., float]) -> None:
    if isinstance(function, functools.partial):
        functools.update_wrapper(function, right)
    task = made(function)
    assert [scored(task, text).value for text in ("2", "3")] == [1.0, 0.0]


def test_classes_that_are_defined_in_a_function() -> None:
    class Local(Row):
        n: int

    class Options(TaskConfig):
        factor: int = 2

    def rows(config: Options) -> Iterable[Local]:
        yield Local(id="1", n=config.factor)

    task = Task(
        "local", rows, lambda row: "", lambda text: int(text), [lambda answer, config: answer / config.factor],
        config=Options, row=Local,
    )  # fmt: skip
    bound = load_task(task, factor=3)
    assert grpo_core.score(bound, "3", bound.rows()[0]).value == 1.0


def test_only_what_scoring_needs_is_sent() -> None:
    lock = threading.Lock()

    def locked(config: Sums) -> Iterable[Sum]:
        with lock:
            yield from load(config)

    assert scored(replace(made(right), load=locked, row=Sum), "2").value == 1.0


LOCK, TABLE = threading.Lock(), bytes(40 << 20)


def uses(thing: Any) -> Callable[..., float]:
    return reward()(lambda text: float(bool(thing)))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (uses(LOCK), "'thing' of reward '<lambda>' (lock) cannot be sent to the processes that score: cannot pickle"),
        (uses(TABLE), "it is larger than 32 MiB"),
        (reward()(lambda text: float(len(TABLE))), "'TABLE' of reward '<lambda>' (bytes) cannot be sent"),
        (uses(torch.empty(1, device="meta")), "it is a tensor on meta"),
    ],
)
def test_what_no_worker_can_get_is_refused_in_one_line(function: Callable[..., float], message: str) -> None:
    with pytest.raises(UserError) as refusal:
        load_task(made(function))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_open_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "words").open("w+") as file, pytest.raises(UserError, match="it is an open file"):
        load_task(made(uses(file)))


FILE = """
from grpo_core import Row, Task, reward

class Word(Row):
    length: int

def load() -> list[Word]:
    return [Word(id=word, length=len(word)) for word in ("a", "bc")]

def count(text):
    return len(text)

@reward()
def fits(text, row):
    return float(count(text) == row.length)

words = Task("words", load, lambda row: row.id, lambda text: text, [fits])
"""


def module_of(path: Path, name: str) -> ModuleType:
    path.write_text(FILE)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["not_on_the_path", "importable"])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_module_loaded_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_deleted: bool) -> None:
    if name == "importable":
        monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / f"{name}.py"
    task = module_of(file, name).words
    if is_deleted:
        file.unlink()
    bound = load_task(task)
    assert bound.name == ("python.words" if is_deleted else f"{name}.words")
    assert grpo_core.score(bound, "xy", bound.rows()[1]).value == 1.0
    del sys.modules[name]


def test_a_reward_that_hangs_is_killed() -> None:
    def hangs(text: str) -> float:
        while text:
            time.sleep(0.01)
        return 1.0

    score = scored(made(hangs, timeout_s=0.3), "x")
    assert (score.value, score.fault) == (None, "timeout")


def test_a_function_that_changed_is_scored_as_it_is_now() -> None:
    factor = [1.0]
    task = made(lambda text: factor[0])
    assert scored(task, "2").value == 1.0
    factor[0] = 0.5
    assert scored(task, "2").value == 0.5


def test_a_game_is_an_object_too() -> None:
    bound = load_task(small_games.HEAP, size=2)
    assert bound.is_object
    with Scorer(bound, workers=1) as scorer:
        assert scorer.score(["nonsense"], bound.rows()[:1])[0].valid is False


def test_a_scorer_of_an_object_pickles() -> None:
    with Scorer(made(right), workers=1) as scorer:
        copy = pickle.loads(pickle.dumps(scorer))
    with copy:
        assert isinstance(copy.task, BoundTask)
        assert copy.score(["2"], [Sum(id="1", a=1, b=1, gold="2")])[0].value == 1.0


def test_an_object_in_another_trainer() -> None:
    (function,) = reward_funcs([made(right)])
    row = Sum(id="1", a=1, b=1, gold="2").model_dump_json()
    assert function(completions=["2", "3"], row=[row, row]) == [1.0, 0.0]
    copy = pickle.loads(pickle.dumps(function))
    assert copy(completions=["2"], row=[row]) == [1.0]
    for each in (function, copy):
        each.close()
    assert dataset(made(right))[0]["prompt"] == "0+0="


def test_objects_take_the_names_of_another_process() -> None:
    first, second = made(right), replace(made(right), name="mul")
    kept = take_names([second, first], "python.add_7:2,math.arithmetic,python.mul")
    assert load_task("python.add_7").task is first
    assert load_task("python.mul").task is second
    assert len(kept.objects) == 2
    with pytest.raises(UserError, match=r"the run's task 'python.sub' is none of mul\."):
        take_names(second, "python.sub")
