"""Tasks that are objects of this process: the specs that name them, and how another process gets them.

A task that is a global of a Python file is named by it, `/home/me/mine.py:add`; any other, as one of a notebook's cell,
`python.add`. Such a spec means the object for as long as the object lives.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from grpo_sdk.errors import UnknownNameError, UserError
from grpo_sdk.plugins.host import PluginHost, default_host
from grpo_sdk.task.bound import BoundTask, bind_config
from grpo_sdk.task.game import Game, game_task
from grpo_sdk.task.spec import TaskSpec, parse_task_specs
from grpo_sdk.task.task import Task

AnyTask = str | Task | Game | BoundTask
"""A task: its spec, or the object."""

Tasks = AnyTask | Sequence[AnyTask | tuple[AnyTask, float]]
"""One task or a mixture of several, each with its weight or 1."""

PREFIX = "python."
"""Begins the spec of an object that no file holds."""

_objects: WeakValueDictionary[str, Task] = WeakValueDictionary()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class NamedTasks:
    """Tasks by their spec.

    Attributes:
        spec: Spec of all of them; it means the objects as long as they live.
        objects: The objects among them, which this keeps alive.
    """

    spec: str
    objects: tuple[Task, ...] = ()


def name_tasks(tasks: Tasks, host: PluginHost | None = None) -> NamedTasks:
    """Find or make the spec of tasks, and check that the objects among them can be sent to other processes.

    Raises:
        UserError: an object cannot be sent, or is no task; no task at all, or one twice.
    """
    if isinstance(tasks, str):
        return NamedTasks(tasks)
    if isinstance(tasks, Task | Game | BoundTask):
        tasks = (tasks,)
    if not isinstance(tasks, Sequence) or not tasks:
        raise UserError(f"a task is a spec, a Task or a list of these; got {tasks!r:.80}.")
    specs, objects = [], []
    for item in tasks:
        task, weight = item if isinstance(item, tuple) and len(item) == 2 else (item, None)
        spec, found = _spec_of(task, host)
        if weight is not None:
            if not isinstance(weight, int | float) or not 0 < weight < float("inf"):
                raise UserError(f"task {spec}: weight {weight!r} must be a number above 0, as in (task, 2).")
            spec = _weighted(spec, float(weight))
        specs.append(spec)
        objects += found
    named = ",".join(specs)
    parse_task_specs(named)
    return NamedTasks(named, tuple(objects))


def bind_object(spec: TaskSpec) -> BoundTask | None:
    """The object that a spec names, with the spec's options; None where it names none.

    Raises:
        UserError: it names an object that this process does not have.
    """
    task = _objects.get(spec.name)
    if task is not None:
        name = f"{_stem(spec.name)}.{task.name}"
        return BoundTask(task, name, bind_config(task, name, spec), spec, is_object=True)
    if spec.name.startswith(PREFIX):
        name = spec.name.removeprefix(PREFIX)
        raise UnknownNameError(
            f"task {spec.name!r} was a Task object of a Python program or notebook, and this process does not have it. "
            f"There, grpo_core.resume(run, task={name}) goes on with a run, and grpo_core.evaluate({name}, model) "
            f"evaluates one; for commands, put it into a file and name that: ./file.py:{name}."
        )
    return None


def is_object(spec: TaskSpec) -> bool:
    """Whether a spec names an object of this process."""
    return spec.name in _objects


def take_names(tasks: Tasks, spec: str) -> NamedTasks:
    """Have a spec that another process wrote mean objects of this one.

    Args:
        tasks: The objects, each called as in the spec. What a file holds has its name already.
        spec: Spec with `python.NAME` for objects that no file held.

    Returns:
        The objects, for as long as the spec is to mean them.

    Raises:
        UserError: as for `name_tasks`; or the spec has a name that none of the tasks has.
    """
    named = name_tasks(tasks)
    for recorded in (each.name for each in parse_task_specs(spec) if each.name.startswith(PREFIX)):
        name = recorded.removeprefix(PREFIX)
        called = {task.name: task for task in named.objects}
        task = called.get(name) or called.get(re.sub(r"_\d+$", "", name))
        if task is None:
            raise UserError(f"the run's task {recorded!r} is none of {', '.join(called) or 'those that are given'}.")
        with _lock:
            _objects[recorded] = task
    return named


def send(task: BoundTask, *, with_rows: bool = False) -> tuple[str, ...]:
    """What another process needs to make a task, by `received_task`.

    That is its spec; of an object its pickle, too; of a task in a file an empty pickle and the text of the file.

    Args:
        task: The task.
        with_rows: Whether that process loads rows, too.

    Raises:
        UserError: the object holds something that cannot be sent.
    """
    if task.is_object:
        return task.spec, _pickled(task.task, with_rows=with_rows)
    return (task.spec, "", task.source) if task.source else (task.spec,)


def receive(spec: str, pickled: str) -> BoundTask:
    """Make the object again that `send` was called with."""
    from grpo_sdk.plugins.task_pickles import loads

    sent = loads(pickled)
    (named,) = parse_task_specs(spec)
    task = _objects[named.name] = game_task(sent) if isinstance(sent, Game) else sent
    bound = bind_object(named)
    assert bound is not None and bound.task is task
    return bound


def _spec_of(task: object, host: PluginHost | None) -> tuple[str, list[Task]]:
    """The spec of one task, and the object if it is one."""
    if isinstance(task, str):
        return task, []
    if isinstance(task, BoundTask):
        if not task.is_object:
            return task.spec, []
        _pickled(task.task)
        named = parse_task_specs(task.spec)[0]
        return str(TaskSpec(_name_of(task.task), 1.0, named.options)), [task.task]
    if isinstance(task, Game):
        task = game_task(task)
    if not isinstance(task, Task):
        raise UserError(f"a task is a spec, a Task or a list of these; got {task!r:.80}.")
    if (spec := _plugin_spec(task, host)) is not None:
        return spec, []
    _pickled(task)
    return _name_of(task), [task]


def _plugin_spec(task: Task, host: PluginHost | None) -> str | None:
    """The name of a plugin's own task."""
    host = host or default_host()
    source = task.load if task.game is None else task.game.initial
    package = str(getattr(source, "__module__", "")).partition(".")[0]
    for plugin in host.of_package(package):
        name = f"{plugin}.{task.name}"
        with suppress(UserError):  # a broken plugin, or one without a task of this name
            if host.task(name) is task or host.task(name).game is task.game is not None:
                return name
    return None


def _name_of(task: Task) -> str:
    """The name in a spec that means an object from now on."""
    with _lock:
        for name, known in _objects.items():
            if known is task:
                return name
        place = _place_of(task)
        own = PREFIX + task.name
        number = 1
        name = place or own
        while place is None and name in _objects:  # another object that is called so is still in use
            number += 1
            name = f"{own}_{number}"
        _objects[name] = task
        return name


def _place_of(task: Task) -> str | None:
    """The file and the name there of a task that a module holds; see the module."""
    functions: tuple[Any, ...] = (task.load, task.prompt, task.validate, *task.rewards)
    names = dict.fromkeys([getattr(function, "__module__", None) for function in functions] + ["__main__"])
    for module in (sys.modules.get(name) for name in names if name):
        file = Path(str(getattr(module, "__file__", None) or ""))
        if file.suffix != ".py" or not file.is_file():
            continue
        for attribute, value in list(vars(module).items()):
            if value is task or (task.game is not None and value is task.game):
                place = f"{file.resolve()}:{attribute}"
                with suppress(UserError):  # a path that a spec cannot hold
                    if [spec.name for spec in parse_task_specs(place)] == [place]:
                        return place
    return None


def _stem(name: str) -> str:
    return Path(name.rpartition(":")[0]).stem if ".py:" in name else PREFIX.rstrip(".")


def _weighted(spec: str, weight: float) -> str:
    specs = parse_task_specs(spec)
    if len(specs) != 1:
        raise UserError(f"{spec!r} is a mixture already: give each of its tasks with its own weight.")
    return replace(specs[0], weight=weight).weighted


def _pickled(task: Task, *, with_rows: bool = False) -> str:
    from grpo_sdk.plugins.task_pickles import dumps

    if task.game is not None:
        return dumps(task.game, task.name, _contributions(task.game))
    # The class of the rows may be known by an annotation only, whose names are not sent along.
    sent = replace(task, row=task.row_type())
    if not with_rows:
        sent = replace(sent, load=no_rows, demos=None, metrics=None, conditions=None, evaluation=None)
    return dumps(sent, task.name, _contributions(sent))


def no_rows() -> Sequence[Any]:
    """`load` of a task in a process that scores: rows come with the completions."""
    raise UserError("a process that scores has no rows of its own.")


def _contributions(task: Task | Game) -> dict[str, Any]:
    """What an author wrote, by the name to call it by in an error."""
    found: dict[str, Any] = {name: getattr(task, name) for name in type(task).__dataclass_fields__}
    for function in found.pop("rewards", ()):
        found[f"reward {getattr(function, '__name__', function)!r}"] = function
    return {name: value for name, value in found.items() if value is not None}
