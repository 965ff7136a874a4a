"""Calling an author's function with the arguments it asks for by name."""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from functools import lru_cache, wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from grpo_sdk.distributions import missing
from grpo_sdk.errors import DataError, GrpoError, UserError, near_match

P = ParamSpec("P")
R = TypeVar("R")

LARGEST_REWARD = 1e30
"""Sums and squares of rewards below it are finite, so means and standard deviations are too."""

BOUNDS = f"between -{LARGEST_REWARD:g} and {LARGEST_REWARD:g}"
"""Words for messages."""

_OURS = "grpo_sdk"
_SPECS = map(find_spec, (_OURS, "grpo_core"))  # which imports nothing
_FOLDERS = tuple(f"{Path(spec.origin).parent}{os.sep}" for spec in _SPECS if spec and spec.origin)
_STANDARD_LIBRARY = f"{sysconfig.get_path('stdlib')}{os.sep}"

_TRL_ARGUMENTS = frozenset(("prompts", "completions", "completion_ids", "trainer_state"))
_TRL_HINT = (
    " A reward function of TRL takes lists and returns a list. Here a reward takes one completion as text, and its "
    "row, and returns a number; a @group_reward takes the texts of a prompt."
)

GATHERING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def remembered(compute: Callable[P, R]) -> Callable[P, R]:
    """Cache what is computed from a function, the first argument; a callable without a hash is looked at each time."""
    cached = lru_cache(maxsize=1024)(compute)

    @wraps(compute)
    def look_up(*args: P.args, **options: P.kwargs) -> R:
        try:
            return cached(*args, **options)  # type: ignore[arg-type] # the others are names and a number
        except TypeError:  # the function has no hash, e.g. that of a dataclass that is not frozen
            return compute(*args, **options)

    return look_up


@remembered
def asked_for(function: Callable[..., Any], available: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the parameters that a call must fill or may fill from `available`, in order.

    A parameter that has a default and is not available keeps its default, so that library functions with settings
    can be used as they are.

    Raises:
        UserError: the function has no signature that Python can read.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some builtins have none
        raise UserError(f"{name_of(function)}() has no signature that can be read; wrap it in a def.") from None
    return tuple(
        parameter.name
        for parameter in parameters
        if parameter.kind not in GATHERING
        and (parameter.name in available or parameter.default is inspect.Parameter.empty)
    )


def known_arguments(who: str, function: Callable[..., Any], available: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the parameters that a call fills, as `asked_for`, all of which must be available.

    Args:
        who: The function in messages: `task 'sums': reward exact()`.
        function: A plain function.
        available: Names of everything it may ask for.

    Raises:
        UserError: it asks for something that is not available.
    """
    names = asked_for(function, available)
    for name in names:
        if name not in available:
            hint = _TRL_HINT if name in _TRL_ARGUMENTS else near_match(name, available)
            raise UserError(f"{who} takes {name!r}; it may take {', '.join(available)}.{hint}")
    return names


def check_mark(decorator: str, weight: Any, maximum: Any) -> None:
    """Check the arguments of a decorator that marks a function as a reward.

    Raises:
        UserError: it was written without parentheses, or one of its numbers is beyond `LARGEST_REWARD`.
    """
    if callable(weight):
        name = name_of(weight)
        raise UserError(f"@{decorator} without parentheses on {name}(); write @{decorator}() or @{decorator}(0.5).")
    if not (in_bounds(weight) and in_bounds(maximum)):
        raise UserError(f"{decorator}(weight={weight}, maximum={maximum}): both must be numbers {BOUNDS}.")


def in_bounds(number: Any) -> bool:
    """Return whether it is a number that a reward may be: not NaN, and not beyond `LARGEST_REWARD`."""
    try:
        return bool(-LARGEST_REWARD <= number <= LARGEST_REWARD)
    except (TypeError, ValueError):  # ValueError: an array of several
        return False


@remembered
def binding_of(function: Callable[..., Any], available: tuple[str, ...], positional: int = 0) -> Mapping[str, str]:
    """Map each parameter of a function to the name in `available` that it gets.

    Args:
        function: A plain function.
        available: Names of everything it may ask for, the customary ones first.
        positional: How many are customary: an author may rename these, and parameters of unknown names
            get the customary values that are not asked for by name, in order.

    Raises:
        UserError: it asks for something that is not available.
    """
    names = asked_for(function, available)
    unknown = [name for name in names if name not in available]
    customary = [name for name in available[:positional] if name not in names]
    if unknown and len(unknown) != len(customary):
        near = near_match(unknown[0], available)
        order = "" if near or len(customary) < 2 else f" Names of your own are taken for all of {', '.join(customary)}."
        raise UserError(f"{name_of(function)}() takes {unknown[0]!r}; it may take {', '.join(available)}.{near}{order}")
    return {**{name: name for name in names if name in available}, **dict(zip(unknown, customary, strict=False))}


def check_function(who: str, function: Any, available: tuple[str, ...], positional: int) -> None:
    """Check that an author's function can be called with what there is; see `binding_of`.

    Args:
        who: The function in messages: `task 'sums': load`.
        function: What the author gave.
        available: Names of everything it may ask for.
        positional: How many of them an author may rename.

    Raises:
        UserError: it is no function, or asks for something else.
    """
    if not callable(function):
        raise UserError(f"{who}={function!r:.80} must be a function.")
    try:
        binding_of(function, available, positional)
    except UserError as error:
        raise UserError(f"{who}: {error}") from None


def call_by_name(function: Callable[..., Any], available: Mapping[str, Any], *, positional: int = 0) -> Any:
    """Call `function` with those of `available` that it asks for; see `binding_of`."""
    bound = binding_of(function, tuple(available), positional)
    return function(**{parameter: available[name] for parameter, name in bound.items()})


def name_of(function: Callable[..., Any]) -> str:
    """Name of a function in messages; the class of a callable object."""
    return str(getattr(function, "__name__", type(function).__name__))


def where_raised(error: BaseException) -> str:
    """Where an author's code raised: `file.py:12`, the innermost line that is not of a library.

    Where there is none, because the author's code is installed, too, it is that of the package that was called first.
    """
    frames = traceback.extract_tb(error.__traceback__)
    held = [(frame, _package_of(frame.filename)) for frame in frames if not frame.filename.startswith("<")]
    packages = [package for _, package in held]
    called = "" if "" in packages else next((package for package in packages if package != _OURS), _OURS)
    last = next((frame for frame, package in reversed(held) if package == called), frames[-1])
    return f"{Path(last.filename).name}:{last.lineno}"


def _package_of(file: str) -> str:
    """The library that a file belongs to; empty for an author's own file."""
    if file.startswith(_FOLDERS):
        return _OURS
    _, installed, inside = file.replace("dist-packages", "site-packages").rpartition(f"site-packages{os.sep}")
    if installed:
        return inside.partition(os.sep)[0]
    return "python" if file.startswith(_STANDARD_LIBRARY) else ""


def raised(error: BaseException) -> str:
    """What an author's code raised, as messages say it: `raised KeyError (file.py:12): 'word'`; see also `missing`."""
    said = f"raised {type(error).__name__} ({where_raised(error)}): {' '.join(str(error).split())}"
    return missing(error) or said.removesuffix(": ")


@contextmanager
def errors_named(where: str, *, but: type[Exception] | None = None) -> Iterator[None]:
    """Turn what an author's code raises into an error of one line; our own errors, and those of a class, stay.

    Args:
        where: What is called, as the message names it.
        but: The class.

    Raises:
        DataError: for everything else.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, (GrpoError, but or GrpoError)):
            raise
        raise DataError(f"{where} {raised(error)}") from error


class _Diversion:
    """Diverts stdout to stderr while at least one thread wants it: the first diverts, the last restores."""

    def __init__(self) -> None:
        self._users = 0
        self._undo = ExitStack()
        self.renew_lock()

    def renew_lock(self) -> None:
        """In a forked child: the lock may have been held by a thread that does not exist there."""
        self._lock = threading.RLock()  # re-entrant: a signal's handler may load a module

    def begin(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._undo.enter_context(redirect_stdout(sys.stderr))
                with suppress(OSError):  # this process has no stdout, or no stderr
                    stdout = os.dup(1)
                    self._undo.callback(os.close, stdout)
                    self._undo.callback(os.dup2, stdout, 1)
                    os.dup2(2, 1)

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._undo.close()


_diversion = _Diversion()
os.register_at_fork(after_in_child=_diversion.renew_lock)


@contextmanager
def prints_to_stderr() -> Iterator[None]:
    """Send what is printed meanwhile to stderr, also by programs that are started: stdout is for results."""
    _diversion.begin()
    try:
        yield
    finally:
        _diversion.end()
