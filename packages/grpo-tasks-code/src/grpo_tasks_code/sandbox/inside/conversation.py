"""The judge's conversation with the candidate: questions, answers, and the values in them."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Generator, Iterable
from typing import Any, NoReturn

from grpo_tasks_code.sandbox.inside.passing import Parcel, Passing
from grpo_tasks_code.sandbox.inside.proxies import Asker, Awaitable, Proxy, exception_of, reference_to_library
from grpo_tasks_code.sandbox.inside.surroundings import SharedFolder, Surroundings
from grpo_tasks_code.sandbox.inside.values import MAX_ITEMS, NotPlainError
from grpo_tasks_code.sandbox.inside.wire import Channel

_MOST_AT_ONCE = 64
"""Items of an iterator that are requested before the test needs them."""
MAX_TEXT = 300
"""Characters of an explanation."""


class Undecidable(BaseException):
    """The candidate's behaviour decides the test, with (status, reason).

    It is no `Exception`, so that the test's own handlers do not catch it.
    """


class Conversation(Asker):
    """Base of `judging.Session`: asks the candidate questions, through the process that started both.

    Args:
        channel: Channel to that process.
        namespace: Global names of the test.
        surroundings: What the test and the candidate share besides calls.

    Attributes:
        namespace: Global names of the test.
        classes: Classes whose instances travel by value, by name.
        undecidable: Decision about the test, once there is one.
        has_answer: Whether the candidate has answered anything; later failures may be its doing.
    """

    def __init__(self, channel: Channel, namespace: dict[str, Any], surroundings: Surroundings) -> None:
        self._channel, self.namespace, self._surroundings = channel, namespace, surroundings
        self._passing = Passing(self._refer, self._resolve)
        self.classes = self._passing.classes
        self._functions: list[Any] = []
        self._iterators: dict[int, tuple[Generator[Any], list[Any]]] = {}
        self.undecidable: Undecidable | None = None
        self.has_answer = False

    def ask(self, question: list[Any]) -> list[Any]:
        """Ask a question and return the values of the answer; the candidate may call the test's functions meanwhile."""
        for module, name, value in self._surroundings.news():
            self._answered(["replace", module, name, self.pack([value])])
        folder = self._surroundings.folder
        if folder is None:
            return self._answered(question)
        self._exchange_files(folder)
        try:
            return self._answered(question)
        finally:
            self._exchange_files(folder)

    def _exchange_files(self, folder: SharedFolder) -> None:
        match self._answered(["files", self.pack(folder.news())]):
            case [dict(changed), list(gone)]:
                folder.apply(changed, gone)
            case _:
                self.stop("failed", "it answers with no files")

    def _answered(self, question: list[Any]) -> list[Any]:
        reply = self._exchange(question)
        while True:
            match reply:
                case ["value", parcel]:
                    self.has_answer = True
                    return self._unpack(parcel)
                case ["raised", list(names), str(text), parcel]:
                    self.has_answer = True
                    raise exception_of(names, text, self.namespace, *self._unpack(parcel))
                case ["callback", int(number), parcel, list(names)]:
                    self.has_answer = True
                    reply = self._exchange(self._called_back(number, parcel, names))
                case [str(status), str(reason)]:
                    self.stop(status, reason)
                case _:
                    self.stop("sandbox_error", "nobody answers")

    def pack(self, values: Iterable[Any]) -> Parcel:
        """Pack values of the test for the candidate; a value that cannot be packed decides the test."""
        try:
            return self._passing.pack(list(values))
        except NotPlainError as error:
            self._fail(f"the test hands the program what is not plain data: {error}")

    def unstarted(self, argument: Any) -> list[Any] | None:
        """Return the target of a candidate's iterator that was not begun here; None for any other argument."""
        iterator, target = self._iterators.get(id(argument), (None, []))
        is_unstarted = iterator is not None and inspect.getgeneratorstate(iterator) == inspect.GEN_CREATED
        return target if is_unstarted else None

    def stop(self, status: str, reason: str) -> NoReturn:
        """Decide the test."""
        self.undecidable = self.undecidable or Undecidable(status, reason)
        raise self.undecidable

    def _refer(self, value: Any) -> Any:
        """Return the reference to send for a value that is not plain data."""
        if isinstance(value, Proxy):
            self.use(value)
            return value.__target__
        if known := reference_to_library(value):
            return known
        if not callable(value) or isinstance(value, type):
            raise NotPlainError(type(value).__name__)
        self._functions.append(value)
        return ["function", len(self._functions) - 1]

    def _resolve(self, content: Any) -> Any:
        match content:
            case ["object", int(number), str(kind)]:
                return Proxy(self, ["object", number], kind[:MAX_TEXT])
            case ["awaitable", int(number), str(kind)]:
                return Awaitable(self, ["object", number], kind[:MAX_TEXT])
            case ["library", "builtins", str(name)] if isinstance(getattr(builtins, name, None), type):
                return getattr(builtins, name)
            case ["function", int(number)] if 0 <= number < len(self._functions):
                return self._functions[number]
            case ["iterator", int(number)]:
                target = ["object", number]
                iterator = self._items(target)
                self._iterators[id(iterator)] = iterator, target
                return iterator
        raise ValueError("a reference to nothing")

    def _items(self, target: list[Any]) -> Generator[Any]:
        """Yield items of an iterator, which may be endless and slow, requesting few more than the test needs."""
        left, count = MAX_ITEMS, 1
        while True:
            match self.ask(["take", target, count]):
                case [list(items), bool(is_over)] if len(items) <= count:
                    pass
                case _:
                    self.stop("failed", "it answers with no items")
            yield from items[:left]
            left, count = left - len(items), min(2 * count, _MOST_AT_ONCE)
            if left < 0:
                raise ValueError(f"the test wants more than {MAX_ITEMS} items of an iterator")
            if is_over:
                return

    def _exchange(self, message: list[Any]) -> Any:
        if self.undecidable is not None:  # the test caught it and went on
            raise self.undecidable
        try:
            self._channel.send(["ask", message])
        except ValueError as error:
            self._fail(f"the test hands the program too much: {error}")
        return self._channel.receive()

    def _fail(self, reason: str) -> NoReturn:
        """Decide a test that cannot go on; after an answer, the candidate may be the cause."""
        self.stop("failed" if self.has_answer else "sandbox_error", reason)

    def _unpack(self, parcel: Any, least: int = 1) -> list[Any]:
        try:
            values = self._passing.unpack(parcel)
        except (ValueError, RecursionError, OverflowError, MemoryError):
            self.stop("failed", "it answers with what is no value")
        return values if len(values) >= least else self.stop("failed", "it answers with no value")

    def _called_back(self, number: int, parcel: Any, names: list[str]) -> list[Any]:
        """Call a function of the test for the candidate; return its result or exception as a message."""
        arguments = self._unpack(parcel, len(names))
        split = len(arguments) - len(names)
        try:
            result = self._functions[number](*arguments[:split], **dict(zip(names, arguments[split:], strict=True)))
            return ["returned", self.pack([result])]
        except AssertionError as error:  # the candidate must not be able to swallow it
            self.stop("failed", str(error) or "an assertion in a function of the test does not hold")
        except Exception as error:  # any exception is passed to the caller
            return ["failed", type(error).__name__, str(error)[:MAX_TEXT]]
