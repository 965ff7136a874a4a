"""Tasks that a user's own file defines, without a plugin.

A run keeps the text of the file that it began with: its workers are sent it, so that an edit of the file changes no
score of the run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import linecache
import sys
from pathlib import Path
from types import ModuleType

from grpo_sdk.errors import GrpoError, UserError, near_match
from grpo_sdk.paths import kind_of, user_path
from grpo_sdk.task.calling import prints_to_stderr, where_raised
from grpo_sdk.task.game import Game, game_task
from grpo_sdk.task.task import Task

MAX_BYTES = 8 << 20
"""Largest task file: its text is sent to every worker."""

_SOURCE = "__grpo_source__"
"""Attribute of a file's module: the text that it was made of."""


def is_file(name: str) -> bool:
    """Whether the name in a spec is a file without the task: `./rhyme.py`."""
    return "/" in name and name.endswith(".py")


def task_from_file(name: str, source: str = "") -> tuple[Task, str, str]:
    """The task that a spec's name says, `./rhyme.py:couplet`.

    Args:
        name: File and name.
        source: Text to take in place of the file's present one.

    Returns:
        (task, the name that logs call it by: `rhyme.couplet`, the text of the file).

    Raises:
        UserError: there is no such file, it fails while it is imported, it has no such task, or none is named.
    """
    if is_file(name):
        tasks, _ = _tasks_and_source(name, f"task {name!r}")
        raise UserError(
            f"task {name!r} is a file: name one of its tasks, as in {name}:{min(tasks, default='task')}. "
            f"It has: {', '.join(sorted(tasks)) or '(none)'}"
        )
    file, _, attribute = name.rpartition(":")
    tasks, source = _tasks_and_source(file, f"task {name!r}", source)
    if attribute not in tasks:
        raise UserError(
            f"{file} has no Task or Game {attribute!r}.{near_match(attribute, tasks)} "
            f"It has: {', '.join(sorted(tasks)) or '(none)'}"
        )
    return tasks[attribute], f"{Path(file).stem}.{tasks[attribute].name}", source


def tasks_of_file(file: str, who: str) -> dict[str, Task]:
    """The tasks of a file by the names of its variables; games as the tasks that they are.

    Args:
        file: Path, as the user wrote it.
        who: What asks for it, for messages.

    Raises:
        UserError: there is no such file, it is too large, or it fails while it is imported.
    """
    return _tasks_and_source(file, who)[0]


def _tasks_and_source(file: str, who: str, source: str = "") -> tuple[dict[str, Task], str]:
    path = user_path(file, f"{who}:").resolve()
    source = source or _read(path, file, who)
    # A name that nothing else has: a file called random.py must not replace the module that everybody imports.
    name = f"grpo_task_file_{hashlib.blake2b(str(path).encode(), digest_size=6).hexdigest()}"
    module = sys.modules.get(name)
    if module is None or module.__dict__.get(_SOURCE) != source:  # a notebook whose user has edited the file
        module = _imported(name, path, source, file)
    tasks = {
        key: game_task(value) if isinstance(value, Game) else value
        for key, value in vars(module).items()
        if isinstance(value, Task | Game)
    }
    return tasks, source


def _read(path: Path, file: str, who: str) -> str:
    if (kind := kind_of(path)) != "a file":
        what = f"{file} is {kind}, not a file" if kind else f"there is no file {file}"
        raise UserError(f"{who}: {what}.")
    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{who}: {file} cannot be read: {error.strerror or error}.") from None
    if len(content) > MAX_BYTES:
        raise UserError(f"{who}: {file} has more than {MAX_BYTES >> 20} MiB: keep rows in a file of their own.")
    return content.decode("utf-8", "surrogateescape")


def _imported(name: str, path: Path, source: str, file: str) -> ModuleType:
    from grpo_sdk.killable.importing import importing  # starting processes takes much that a task does not

    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__[_SOURCE] = source
    # Tracebacks and `inspect` read the text that is imported, not what the file holds by then: without a time of change
    # nothing looks for a newer one.
    linecache.cache[str(path)] = (len(source), None, io.StringIO(source, newline=None).readlines(), str(path))
    content = source.encode("utf-8", "surrogateescape")  # which may declare another encoding
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        with importing(path), prints_to_stderr():
            exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:  # the user's own file may raise anything while it is imported
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise UserError(_import_problem(error, file, path)) from error
    return module


def _import_problem(error: BaseException, file: str, path: Path) -> str:
    """Why a file cannot be imported, in one line, with the line of the file."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{file}: {type(error).__name__}: {error.msg} ({path.name}:{error.lineno})"
    kind = "" if isinstance(error, GrpoError) else f"{type(error).__name__}: "
    text = f"{file}: {kind}{' '.join(str(error).split())} ({where_raised(error)})"
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name and ((path.parent / f"{name}.py").is_file() or (path.parent / name).is_dir()):
        text += (
            f". {name} is beside the file, but a task file's folder is not on Python's path: set "
            f"PYTHONPATH={path.parent}, or make a package of both with grpo new"
        )
    elif name == "grpo_core":
        text += ". pip install grpo-core, or import from grpo_sdk what a task needs"
    return text
