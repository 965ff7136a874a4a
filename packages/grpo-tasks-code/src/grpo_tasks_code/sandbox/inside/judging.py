"""The judge: runs set-up and tests in a clean process, with proxies for the names of the program.

A call of a proxy sends the values of its arguments to the program's process, and its result arrives as plain data of
the built-in types before the test touches it. So every operator, method and built-in function of a test is this
process's own, and expected values never leave it.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import enum
import inspect
import os
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import tee
from typing import Any, NoReturn

from grpo_tasks_code.sandbox.inside import pytest_names
from grpo_tasks_code.sandbox.inside.conversation import MAX_TEXT, Conversation
from grpo_tasks_code.sandbox.inside.mutations import Mutations
from grpo_tasks_code.sandbox.inside.passing import compiled
from grpo_tasks_code.sandbox.inside.proxies import ENUMERATIONS, Made, Proxy, exception_of, forwarding, is_raised
from grpo_tasks_code.sandbox.inside.surroundings import SharedFolder, Surroundings
from grpo_tasks_code.sandbox.inside.values import shown_difference
from grpo_tasks_code.sandbox.inside.wire import Channel

_OF_DATA = frozenset(dir(str)) | frozenset(dir(set))
_AMBIGUOUS = frozenset({"find", "index", "intersection", "union"})
"""Methods that other objects have too, and whose arguments tell what the answer must hold."""


class Looks:
    """Records what objects report in one test."""

    def __init__(self) -> None:
        self._seen: dict[int, dict[tuple[str, Any], Any]] = {}
        self._used: dict[int, set[str]] = {}

    def watch(self, number: int) -> None:
        """Watch an object that a function returned."""
        self._used.setdefault(number, set())

    def use(self, number: int, name: str = "") -> None:
        """Note that an object is passed on, changed, or asked for an attribute: its content may change from now on."""
        self._seen.pop(number, None)
        if number in self._used:
            self._used[number].add(name)

    def look(self, number: int, name: str, key: Any, ask: Callable[[], Any]) -> Any:
        """Return what an object's method reports, or reported before."""
        if type(key) not in (int, str, type(None)):  # a slice, or what the program would compare
            return ask()
        seen = self._seen.setdefault(number, {})
        if name == "__iter__":
            items = seen[name, key] if (name, key) in seen else ask()
            if not isinstance(items, Iterable):
                return items
            seen[name, key], items = tee(items)
            return items
        if (name, key) not in seen:
            seen[name, key] = ask()
        return seen[name, key]

    @property
    def lies(self) -> bool:
        """Whether the reports of an object contradict each other, or an object was used as only data should be."""
        return any(map(_is_contradictory, self._seen.values())) or any(
            used & _AMBIGUOUS and used <= _OF_DATA for used in self._used.values()
        )


def _is_contradictory(seen: dict[tuple[str, Any], Any]) -> bool:
    if len(seen) < 2 or ("__iter__", None) not in seen:
        return False
    items = list(seen["__iter__", None])
    for (name, key), value in seen.items():
        if name == "__len__" and value != len(items):
            return True
        if name == "__getitem__" and type(key) is int and type(value) in _SCALARS and not _holds(items, key, value):
            return True
    return False


_SCALARS = (int, float, str, bool, type(None))
"""Types that are compared here; objects inside data would decide their comparison themselves."""


def _holds(items: list[Any], key: int, value: Any) -> bool:
    """Return whether a value fits its key, in a sequence of these items or in a mapping of these keys."""
    if any(type(item) is int and item == key for item in items):
        return True
    item_there = items[key] if -len(items) <= key < len(items) else items
    return type(item_there) in _SCALARS and bool(item_there == value)


VALUE, IN_PLACE, BEGIN, END = "__value__", "__in_place__", "__begin__", "__end__"
RAISED, CHECKED, EQUAL, END_CHECKS = "__raised__", "__checked__", "__equal__", "__end_checks__"
"""Functions that prepared tests call; see `rewriting`."""
_MODULE_NAME = "__main__"
"""Module name of a test, so that what stands behind `if __name__ == "__main__"` runs, and may assert."""


class Session(Conversation):
    """One test's use of the candidate: calls, attributes, operators, and what the test learns by them.

    Args:
        channel: Channel to the process that started judge and candidate.
        classes: Names of the candidate that the tests use as classes.
        objects: Those whose objects are not data, even if the class inherits from `list`.
        surroundings: What the test and the candidate share besides calls.

    Attributes:
        shortfall: How the newest check does not hold, if it does not.
    """

    def __init__(
        self, channel: Channel, classes: Sequence[str], objects: Sequence[str], surroundings: Surroundings
    ) -> None:
        module = sys.modules[_MODULE_NAME] = types.ModuleType(_MODULE_NAME)  # where dataclasses look for theirs
        super().__init__(channel, module.__dict__, surroundings)
        self._class_names, self._object_names = frozenset(classes), frozenset(objects)
        self._mutations = Mutations()
        self._looks = Looks()
        self._made: dict[int, Proxy] = {}
        self._unused: dict[int, Proxy] = {}
        self.namespace |= {
            VALUE: self.value,
            IN_PLACE: self.in_place,
            BEGIN: self._mutations.begin,
            END: self._mutations.end,
            RAISED: self.raised,
            CHECKED: self.checked,
            EQUAL: self.equal,
            END_CHECKS: self.end_checks,
        }
        self._checks, self._raised = 0, None
        self._unequal, self.shortfall = "", "it does not hold"
        self._signatures: dict[str, inspect.Signature] = {}

    def share(self, names: Sequence[str]) -> None:
        """Send instances of these classes by value too, as far as the classes are defined."""
        values = {name: self.namespace.get(name) for name in names}
        self.classes |= {name: kind for name, kind in values.items() if isinstance(kind, type)}

    # Functions that prepared tests call

    def value(self, name: str) -> Any:
        """Return the value of a global name of the candidate, or a proxy of it."""
        if isinstance(known := self.namespace.get(name), type):
            return known
        value = self.ask(["value", name])[0]
        return Proxy(self, ["name", name], value.__kind__) if isinstance(value, Proxy) else value

    def in_place(self, function: Any) -> Any:
        """Wrap a function whose result is not used: its changes of arguments are applied to the test's own."""
        if not isinstance(function, Proxy):
            return self._mutations.before_own(function)
        return lambda *arguments, **keywords: self.call(function, arguments, keywords, is_in_place=True)

    def raised(self, error: Any) -> Any:
        """Note an exception that the test itself raises."""
        self._raised = error() if isinstance(error, type) else error
        return self._raised

    def checked(self, value: Any, source: str = "") -> Any:
        """Count a check that has run, and return its value; note what is checked, for where it does not hold."""
        self._checks += 1
        self.shortfall = "it does not hold" if value is True else self._unequal or f"{source} does not hold"
        return value

    def equal(self, came: Any, expected: Any, source: str) -> Any:
        """Compare, and note how the two differ."""
        is_equal = came == expected
        self._unequal = f"{source} {shown_difference(came, expected)}" if is_equal is False else ""
        return is_equal

    def end_checks(self) -> None:
        """At the end of a test that has checks, decide that none has run."""
        if not self._checks:
            self.stop("unchecked", "no check of the test ran")

    def describe(self, names: Sequence[str]) -> None:
        """Define the candidate's enumerations and exceptions here, and learn the parameters of its dataclasses."""
        (described,) = self.ask(["describe", [name for name in names if name[:1].isupper()]])
        for name, kind, content in described:
            if name not in names:
                self.stop("failed", "it describes what nobody asked for")
            if kind == "exception":
                bases = [self.namespace.get(base, getattr(builtins, base, None)) for base in content]
                base = next(base for base in bases if isinstance(base, type) and issubclass(base, Exception))
                self.namespace[name] = type(name, (base,), {"__module__": "solution"})
            elif kind == "dataclass":
                self._signatures[name] = _signature(content)
            elif kind in ENUMERATIONS:
                defined = self._enumeration(name, kind, content)
                if len({*map(id, defined.__members__.values())}) == len(content):  # no alias, and no method
                    self.namespace[name] = self.classes[name] = defined
        self.has_answer = False  # the set-up is still to run

    def _enumeration(self, name: str, kind: str, members: list[Any]) -> Any:
        texts = {member: text for member, _, text in members}

        def get(member: Any, attribute: str) -> Any:
            if attribute.startswith("_"):
                raise AttributeError(attribute)
            return self.ask(["get", ["member", name, member.name], attribute])[0]

        def prepare(namespace: dict[str, Any]) -> None:
            namespace["__getattr__"] = get
            namespace["__str__"] = lambda member: texts[member.name]

        described: Any = types.new_class("Described", (getattr(enum, kind),), exec_body=prepare)
        return described(name, [(member, value) for member, value, _ in members])

    # Operations of proxies

    def call(
        self, function: Proxy, arguments: Sequence[Any], keywords: dict[str, Any], *, is_in_place: bool = False
    ) -> Any:
        """Call a function of the candidate."""
        self.use(function)
        if function.__target__[0] == "name" and (signature := self._signatures.get(function.__target__[1])):
            kind = function.__target__[1]
            with contextlib.suppress(TypeError):  # of wrong arguments, which the program refuses below
                bound = signature.bind(*arguments, **keywords)
                bound.apply_defaults()
                return Made(self, kind, bound.arguments, (arguments, keywords), is_made=kind in self._class_names)
        return self._call(function, arguments, keywords, is_in_place=is_in_place)

    def _call(
        self, function: Proxy, arguments: Sequence[Any], keywords: dict[str, Any], *, is_in_place: bool = False
    ) -> Any:
        own = [*arguments, *keywords.values()]
        kind, name = function.__target__[:2]
        is_object = kind == "name" and name in self._object_names
        question = ["call", function.__target__, self.pack(map(self._own, own)), list(keywords), is_object]
        result, *after = self.ask(question)
        for argument, content in zip(own, after, strict=False):
            if not isinstance(argument, Proxy):
                self._mutations.note(argument, content)
        if is_in_place:
            self._mutations.apply(own)
        if isinstance(result, Proxy) and kind != "object":
            if name in self._class_names:
                # Two results that are one object there are one object here.
                return self._made.setdefault(result.__target__[1], result.as_made())
            if not is_in_place:
                self._unused[id(result)] = result
            self._looks.watch(result.__target__[1])
        return result

    def make(self, kind: str, arguments: Sequence[Any], keywords: dict[str, Any]) -> list[Any]:
        """Construct an object of a dataclass in the candidate; return its target."""
        made = self._call(Proxy(self, ["name", kind], kind), arguments, keywords)
        if not isinstance(made, Proxy):
            self.stop("failed", f"{kind} makes no object")
        target: list[Any] = made.__target__
        self._unused.pop(id(made), None)
        return target

    def fields(self, subject: Proxy) -> list[Any]:
        """Return the name of a dataclass, and an object's fields."""
        self.use(subject)
        try:
            return self.ask(["fields", subject.__target__])
        except TypeError:
            self.refuse(subject, "__eq__")

    def leave(self, manager: Proxy, error: BaseException | None) -> bool:
        """Leave a context. The candidate learns of what it raised and of `raise` in the test, but of no failure.

        A check must run after what it suppresses, or else it could skip the others.
        """
        self.use(manager)
        is_shown = isinstance(error, Exception) and (is_raised(error) or error is self._raised)
        if error is None or not is_shown or isinstance(error, AssertionError):
            self.ask(["leave", manager.__target__, "", ""])
            return False
        details = [type(error).__name__, str(error)[:MAX_TEXT]]
        is_suppressed = self.ask(["leave", manager.__target__, *details])[0] is True
        self._checks *= not is_suppressed
        return is_suppressed

    def get(self, subject: Proxy, name: str) -> Any:
        """Get an attribute of a candidate's object."""
        self.use(subject, name)
        if name == "__signature__":
            return _signature(*self.ask(["signature", subject.__target__]))
        return self.ask(["get", subject.__target__, name])[0]

    def look(self, subject: Proxy, name: str, key: Any = None) -> Any:
        """Ask an object for its content: its length, its items, or one of them."""

        def ask() -> Any:
            method = self.ask(["get", subject.__target__, name])[0]
            return method() if key is None else method(key)

        self._unused.pop(id(subject), None)
        is_answer = subject.__target__[0] == "object" and not subject.__is_made__
        return self._looks.look(subject.__target__[1], name, key, ask) if is_answer else ask()

    def set(self, subject: Proxy, name: str, value: Any) -> None:
        """Set an attribute of a candidate's object."""
        self.use(subject)
        self.ask(["set", subject.__target__, name, self.pack([value])])

    def operate(self, operator: str, operands: Sequence[Any]) -> Any:
        """Apply an operator; operators are tested only on objects that the test itself constructed."""
        proxies = [operand for operand in operands if isinstance(operand, Proxy)]
        is_order = operator.removeprefix("operator.") in ("lt", "le", "gt", "ge")
        are_made = [isinstance(operand, Proxy) and operand.__is_made__ for operand in operands]
        if not (all(are_made) if is_order else any(are_made)):
            answer = next((operand for operand in proxies if not operand.__is_made__), proxies[0])
            self.refuse(answer, operator.partition(".")[2].rstrip("_"))
        result = self.call(Proxy(self, ["library", *operator.split(".")], "function"), operands, {})
        if not isinstance(result, Proxy):
            return result
        self._unused.pop(id(result), None)
        if is_order or operator in ("operator.truth", "operator.index"):
            self.refuse(result)
        return self._made.setdefault(result.__target__[1], result.as_made())

    def run(self, awaitable: Proxy) -> tuple[Any, bool]:
        """Await an object; return the result, and whether an iteration has ended."""
        self.use(awaitable)
        match self.ask(["run", awaitable.__target__]):
            case [result, bool(is_over)]:
                return result, is_over
        self.stop("failed", "it answers with no value")

    def check_use(self) -> None:
        """At the end of a test, check that every result that is not data was used to get data."""
        for answer in self._unused.values():
            self.refuse(answer)
        if self._looks.lies:
            self.stop("failed", "the answer is an object, not plain data, and the test needs data")

    def refuse(self, answer: Proxy, what: str = "") -> NoReturn:
        """Decide the test as failed, since the candidate would judge itself."""
        use = f"; the test needs data for {what}" if what else ""
        self.stop("failed", f"the answer is a {answer.__kind__}, not plain data{use}")

    def use(self, subject: Proxy, name: str = "") -> None:
        """Note that an object is passed on, changed, or asked for an attribute."""
        self._unused.pop(id(subject), None)
        kind, number = subject.__target__[:2]
        if kind == "object":
            self._looks.use(number, name)

    def _own(self, argument: Any) -> Any:
        """Return what to send for an argument; a candidate's iterator that was not begun goes back as it is."""
        target = self.unstarted(argument)
        return self._mutations.current(argument) if target is None else Proxy(self, target, "iterator")


def _signature(parameters: list[list[Any]]) -> inspect.Signature:
    return inspect.Signature([inspect.Parameter(name, kind, **default) for name, kind, default in parameters])


def _warn(names: Sequence[str], text: str) -> None:
    """Give a warning of the candidate here, where the test catches it."""
    error: Any = exception_of(names, text, vars(sys.modules[_MODULE_NAME]), (), (text,))
    warnings.warn(error, stacklevel=2)


def judge(channel: Channel) -> int:
    """Run the tests that arrive and send a verdict for each.

    The first message is ["begin", set-up, names, classes, objects, exceptions, shared classes, [[index, source, its own
    classes, their names], …]]. For each test the judge sends ["test", index], questions ["ask", question], and
    ["verdict", status, reason]; each is answered, so that the asking process keeps the time. The set-up runs anew for
    each test, so that no test sees changes by another test or by the program.
    """
    begin = channel.receive()
    if begin is None:
        return 0
    _, setup, names, classes, objects, exceptions, shared, tests = begin
    sys.modules["pytest"] = pytest_names.module()
    for function in (dataclasses.asdict, dataclasses.astuple, dataclasses.replace):
        setattr(dataclasses, function.__name__, forwarding("dataclasses", function))
    surroundings = Surroundings(_warn)
    with contextlib.suppress(ValueError):  # what the program writes there is no module of ours
        sys.path.remove(os.environ.get("HOME", ""))
    for index, source, before, own in tests:
        channel.send(["test", index])
        channel.receive()
        surroundings.folder = SharedFolder() if _OF_FILES.search(setup + source) else None
        session = Session(channel, classes, objects, surroundings)
        session.namespace |= {name: Proxy(session, ["name", name], name) for name in names}
        session.namespace |= {name: type(name, (Exception,), {}) for name in exceptions}
        channel.send(["verdict", *_verdict([(setup, shared), (before, own)], source, session, names)])
        surroundings.restore()
        channel.receive()
    return 0


_OF_FILES = re.compile(r"\b(?:open|Path|tempfile|os|shutil)\b")


def _verdict(
    before: Sequence[tuple[str, Sequence[str]]], source: str, session: Session, names: Sequence[str]
) -> tuple[str, str]:
    """Run one test and return its verdict; `before` holds sources to run first, each with its shared classes."""
    status, reason, is_set_up = "passed", "", False
    try:
        if any(name[:1].isupper() for name in names):
            session.describe(names)
        for statements, shared in before:
            exec(compiled(statements), session.namespace)
            session.share(shared)
        is_set_up = True
        exec(compiled(source), session.namespace)
        session.check_use()
    except BaseException as error:  # any failure of a test
        is_ours = not session.has_answer and not is_set_up
        has_no_folder = isinstance(error, OSError) and os.environ.get("HOME") == "/"
        is_ours |= (isinstance(error, ImportError) or has_no_folder) and not is_raised(error)
        status = "sandbox_error" if is_ours else "failed"
        reason = f"{type(error).__name__}: {error}".removeprefix("AssertionError: ")[:MAX_TEXT] or session.shortfall
    if session.undecidable is not None:
        status, reason = session.undecidable.args
    return status, reason
