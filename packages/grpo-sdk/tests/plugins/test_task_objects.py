"""`Task` objects wherever a spec is taken: their names, and how they reach the processes that score."""

import functools
import gc
import importlib.util
import pickle
import shutil
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hackable_tasks
import pytest

import grpo_core
from grpo_sdk import Row, Scorer, Task, TaskConfig, UserError, load_task, reward
from grpo_sdk.errors import UnknownNameError
from grpo_sdk.interop.trl import dataset, reward_funcs
from grpo_sdk.plugins.task_objects import name_tasks, take_names


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
ROW = Sum(id="1", a=1, b=1, gold="2")


def values(task: Any, *texts: str) -> list[float | None]:
    return [grpo_core.score(task, text, ROW).value for text in texts]


def test_options_are_keyword_arguments() -> None:
    assert [len(load_task(add, **options).rows()) for options in ({}, {"top": 1})] == [9, 3]
    assert load_task(load_task(add, top=1)).config.top == 1
    with pytest.raises(UserError, match=r"no option 'tpo'\. Did you mean 'top'"):
        load_task(add, tpo=1)


def test_an_object_of_a_file_or_a_plugin_has_its_name_there() -> None:
    bound = load_task(add)
    assert (bound.spec, bound.name) == (f"{Path(__file__).resolve()}:add", "test_task_objects.add")
    other = load_task(f"./{Path(__file__).resolve().relative_to(Path.cwd())}:add")
    assert (bound.is_object, other.is_object) == (True, False)
    assert bound.identity == other.identity
    assert load_task(load_task("math.arithmetic").task).spec == "math.arithmetic"


def test_an_object_that_no_file_holds_has_a_name_while_it_is_there() -> None:
    task = made(right)
    assert (load_task(task).spec, load_task(task).name) == ("python.add", "python.add")
    assert load_task("python.add").task is task
    assert values(task, "2", "3") == [1.0, 0.0]
    with pytest.raises(UnknownNameError, match=r"was a Task object .*resume\(run, task=gone\).*./file.py:gone"):
        load_task("python.gone")


def test_two_tasks_of_one_name_are_two_tasks() -> None:
    first, second = (replace(made(function), name="twin") for function in (right, reward()(lambda text: 0.5)))
    named = name_tasks([first, (second, 3), "core.some?size=2"])
    assert named.spec == "python.twin,python.twin_2:3,core.some?size=2"
    with Scorer(first, workers=1) as one, Scorer(second, workers=1) as two:
        assert [scorer.score(["2"], [ROW])[0].value for scorer in (one, two)] == [1.0, 0.5]
    assert load_task(second).name == "python.twin"
    del first, second, named, one, two
    gc.collect()
    assert load_task(replace(made(right), name="twin")).spec == "python.twin"


@pytest.mark.parametrize(("tasks", "message"), [
    (3, "a task is a spec, a Task or a list of these; got"),
    ([(add, 0)], "weight 0 must be a number above 0"),
    ([add, add], "appears twice"),
])  # fmt: skip
def test_what_is_no_task(tasks: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        name_tasks(tasks)


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


def test_functions_of_every_kind_reach_the_workers() -> None:
    partial = functools.update_wrapper(functools.partial(right), right)
    task = made(lambda text, row: float(text == row.gold), Close(0), closure([7]), partial)
    assert values(task, "2", "3") == [4.0, 0.0]


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


LOCK, TABLE = threading.Lock(), bytes(40 << 20)


def locked(config: Sums) -> Iterable[Sum]:
    with LOCK:
        yield from load(config)


def test_only_what_scoring_needs_is_sent_as_it_is_now() -> None:
    factor = [1.0]
    task = replace(made(lambda text: factor[0]), load=locked, row=Sum)
    assert values(task, "2") == [1.0]
    factor[0] = 0.5
    assert values(task, "2") == [0.5]


def uses(thing: Any) -> Callable[..., float]:
    return reward()(lambda text: float(bool(thing)))


@pytest.mark.parametrize(("function", "message"), [
    (uses(LOCK), r"^.*'thing' of reward '<lambda>' \(lock\) cannot be sent to the processes .*: cannot pickle.*$"),
    (uses(TABLE), "it is larger than 32 MiB"),
    (reward()(lambda text: float(len(TABLE))), r"'TABLE' of reward '<lambda>' \(bytes\) cannot be sent"),
    (uses(sys.__stderr__), "it is an open file"),
])  # fmt: skip
def test_what_no_worker_can_get_is_refused_in_one_line(function: Callable[..., float], message: str) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        load_task(made(function))
    assert "\n" not in str(refusal.value)


def test_a_tensor_that_no_worker_can_get_is_refused() -> None:
    import torch  # not above: the workers import this file

    with pytest.raises(UserError, match="it is a tensor on meta"):
        load_task(made(uses(torch.empty(1, device="meta"))))


@pytest.mark.parametrize(("name", "is_deleted"), [("loose", False), ("importable", False), ("importable", True)])
def test_a_module_loaded_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_deleted: bool) -> None:
    if name == "importable":
        monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / f"{name}.py"
    shutil.copy(hackable_tasks.__file__, file)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    if is_deleted:
        file.unlink()
    bound = load_task(module.sound_sums)
    assert bound.name == ("python.sound_sums" if is_deleted else f"{name}.sound_sums")
    assert grpo_core.score(bound, bound.rows()[1].gold, bound.rows()[1]).value == 1.0


def test_objects_pickle_with_what_scores_them() -> None:
    with Scorer(made(right), workers=1) as scorer, pickle.loads(pickle.dumps(scorer)) as copy:
        assert copy.score(["2"], [ROW])[0].value == 1.0
    (function,) = reward_funcs([made(right)])
    again = pickle.loads(pickle.dumps(function))
    for each in (function, again):
        assert each(completions=["2", "3"], row=[ROW.model_dump_json()] * 2) == [1.0, 0.0]
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
