"""The candidate's side of a test: run the program, then answer questions about its functions.

Everything here runs in a process that the program owns: it may patch this module, find the channel and write its own
answers. That gains it nothing, because whatever it writes is only ever taken for the value of one call, and what the
value ought to be never enters this process.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from grpo_tasks_code.sandbox.inside.passing import Passing, compiled
from grpo_tasks_code.sandbox.inside.proxies import library_member
from grpo_tasks_code.sandbox.inside.values import NotPlainError, encode
from grpo_tasks_code.sandbox.inside.wire import Channel

if TYPE_CHECKING:
    import asyncio  # programs that need it are few

MAX_TEXT = 300
"""Of an exception's text that is handed on."""


def answer(code: types.CodeType, namespace: dict[str, Any], channel: Channel) -> None:
    """Run set-up, say "prepared", run the program, say "ready", and answer until nobody asks any more.

        ["begin", source, classes]                    set-up that the program may see, and what of it travels by value
        ["call", id, target, values, keywords, …]     a function; the last values have these keywords; whether what
                                                      it makes stays here, even if it inherits from plain data
        ["get", id, target, name]                     an attribute
        ["set", id, target, name, values]             likewise
        ["define", id, source, names]                 classes of a test, whose instances travel by value from now on
        ["run", id, target]                           what awaiting something gives, and whether it ends an iteration
        ["take", id, target, count]                   items of an iterator, and whether there are no more
        ["value", id, name]                           a global name
        ["returned", id, values]                      of a function of the test's that the program called,
        ["failed", id, exception, text]               or what it raised

    A target is ["name", name], ["object", number] or ["library", module, name]. An answer is [id, "value", values],
    those of a call with its arguments afterwards, [id, "raised", classes, text] or [id, "callback", number, values,
    keywords], which waits to be answered itself. Each has the id of the last message.
    """
    _, source, classes = channel.receive()
    try:
        exec(compiled(source), namespace)
    except Exception as error:  # whatever keeps set-up from its end; the program has not run, and cannot have said this
        channel.send(["failed", f"{type(error).__name__}: {_text(error)}"])
        return
    channel.send(["prepared"])
    before = dict(namespace)
    exec(code, namespace)  # this is what the sandbox is for
    channel.send(["ready"])
    answers = Answers(namespace, before, classes, channel)
    while (question := channel.receive()) is not None:
        answers.respond(question)


class Callback:
    """A function of the test's, which runs in its process."""

    def __init__(self, answers: Answers, number: int) -> None:
        self._answers, self._number = answers, number

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call it there."""
        return self._answers.call_back(self._number, [*arguments, *keywords.values()], list(keywords))


class Answers:
    """One method for each kind of question.

    Args:
        namespace: The program's.
        before: What it held before the program ran.
        classes: Names of classes of the set-up.
        channel: To whoever asks.
    """

    def __init__(
        self, namespace: dict[str, Any], before: dict[str, Any], classes: Sequence[str], channel: Channel
    ) -> None:
        self._namespace, self._before, self._channel = namespace, before, channel
        self._passing = Passing(self._refer, self._resolve)
        # By now they may be the program's own.
        self._passing.classes = {name: namespace[name] for name in classes if isinstance(namespace.get(name), type)}
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._raised: dict[int, BaseException] = {}
        self._last = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def respond(self, question: list[Any]) -> None:
        """Answer a question."""
        kind, number, *details = question
        self._last = number
        try:
            answer = ["value", getattr(self, kind)(*details)]
        except BaseException as error:  # whatever a tested function raises is the answer
            answer = ["raised", [base.__name__ for base in type(error).__mro__], _text(error)]
        try:
            self._channel.send([self._last, *answer])
        except ValueError as error:  # too long
            self._channel.send([self._last, "raised", ["ValueError"], _text(error)])

    def call_back(self, function: int, values: Sequence[Any], keywords: Sequence[str]) -> Any:
        """Have the test call one of its functions; meanwhile it may ask more."""
        self._channel.send([self._last, "callback", function, self._passing.pack(values), list(keywords)])
        while (message := self._channel.receive()) is not None:
            match message:
                case ["returned", number, values]:
                    self._last = number
                    return self._passing.unpack(values)[0]
                case ["failed", number, name, text]:
                    self._last = number
                    raise getattr(builtins, name, RuntimeError)(text)
            self.respond(message)
        raise SystemExit

    def call(self, target: list[Any], values: Any, keywords: list[str], is_object: bool = False) -> Any:
        """What a function returns, and its arguments afterwards: a test may look at what it did to them."""
        arguments = self._passing.unpack(values)
        before = values[0]
        split = len(arguments) - len(keywords)
        function = self._resolve(target)
        result = function(*arguments[:split], **dict(zip(keywords, arguments[split:], strict=True)))
        after = [None if _is_as_before(value, data) else value for value, data in zip(arguments, before, strict=True)]
        return self._give([_Whole(result) if is_object and type(result) is function else result, *after])

    def get(self, target: list[Any], name: str) -> Any:
        """An attribute."""
        return self._give([getattr(self._resolve(target), name)])

    def set(self, target: list[Any], name: str, values: Any) -> Any:
        """Set an attribute."""
        setattr(self._resolve(target), name, self._passing.unpack(values)[0])
        return self._give([None])

    def value(self, name: str) -> Any:
        """A global name's."""
        return self._give([self._resolve(["name", name])])

    def define(self, source: str, names: list[str]) -> Any:
        """Classes, apart from the program's names."""
        namespace = dict(self._before)
        exec(compiled(source), namespace)
        self._passing.classes |= {name: namespace[name] for name in names}
        return self._give([None])

    def run(self, target: list[Any]) -> Any:
        """What awaiting it gives; all in one event loop, which may hold what the program made in it."""
        import asyncio

        self._loop = self._loop or asyncio.new_event_loop()

        async def wait() -> Any:
            return await self._resolve(target)

        try:
            return self._give([self._loop.run_until_complete(wait()), False])
        except StopAsyncIteration:
            return self._give([None, True])

    def take(self, target: list[Any], count: int) -> Any:
        """The next items of an iterator, and whether it has ended; what it raises, it raises after those before."""
        iterator = self._resolve(target)
        items: list[Any] = []
        if id(iterator) in self._raised:
            raise self._raised.pop(id(iterator))
        try:
            while len(items) < count:
                items.append(next(iterator))
        except StopIteration:
            return self._give([items, True])
        except BaseException as error:  # whatever it is, the test gets it
            if not items:
                raise
            self._raised[id(iterator)] = error
        return self._give([items, False])

    def _give(self, values: Sequence[Any]) -> Any:
        return self._passing.pack(list(map(_in_its_wrapper, values)), _Whole)

    def _refer(self, value: Any) -> Any:
        if isinstance(value, Callback):
            return ["function", value._number]
        kind = "iterator" if isinstance(value, _Items) else "object"
        if isinstance(value, (_Whole, _Items)):
            value = value.value
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        name = [] if kind == "iterator" else [type(value).__name__[:MAX_TEXT]]
        if kind == "object" and isinstance(value, Awaitable):
            kind = "awaitable"
        return [kind, self._numbers[id(value)], *name]

    def _resolve(self, content: Any) -> Any:
        match content:
            case ["name", str(name)]:
                if name in self._namespace:
                    return self._namespace[name]
                raise NameError(f"name {name!r} is not defined", name=name)
            case ["object", int(number), *_]:
                return self._objects[number]
            case ["function", int(number)]:
                return Callback(self, number)
            case ["library", str(module), str(name)]:
                return library_member(module, name)
        raise ValueError("a reference to nothing")


class _Whole:
    """Data with something in it that no reference can stand for, as an object that stays here."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Items:
    """An iterator, which the test takes items of when it wants them."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _in_its_wrapper(value: Any) -> Any:
    """What can be awaited is an iterator too, in part, and is not taken for one."""
    if isinstance(value, Awaitable):
        return _Whole(value)
    return _Items(value) if isinstance(value, Iterator) else value


def _is_as_before(argument: Any, data: Any) -> bool:
    if isinstance(argument, Iterator):  # it may be endless, and no test looks at what is left of it
        return True
    try:
        return bool(encode(argument) == data)
    except NotPlainError:
        return False


def _text(error: BaseException) -> str:
    try:
        return str(error)[:MAX_TEXT]
    except BaseException:  # its __str__ is the program's code too
        return ""
