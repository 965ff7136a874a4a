"""The candidate's side of a test: runs the program, then answers questions about its functions.

Everything here runs in a process that the program controls: it may patch this module, find the channel and write its
own answers. That gains nothing, because an answer only ever counts as the value of one call, and the expected value
never enters this process.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import inspect
import types
from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from grpo_tasks_code.sandbox.inside.passing import Passing, compiled
from grpo_tasks_code.sandbox.inside.proxies import ENUMERATIONS, library_member
from grpo_tasks_code.sandbox.inside.surroundings import SharedFolder, replace
from grpo_tasks_code.sandbox.inside.values import NotPlainError, encode
from grpo_tasks_code.sandbox.inside.wire import Channel

if TYPE_CHECKING:
    import asyncio  # programs that need it are few

MAX_TEXT = 300
"""Characters of an exception's text that are sent."""


def answer(code: types.CodeType, namespace: dict[str, Any], channel: Channel) -> None:
    """Run set-up, send "prepared", run the program, send "ready", and answer questions until the channel closes.

        ["begin", source, classes]                    run set-up that the program may see; its classes travel by value
        ["call", id, target, values, keywords, …]     call a function; the last values have these keywords; then,
                                                      whether its object stays here even if it inherits from data
        ["get", id, target, name]                     get an attribute
        ["set", id, target, name, values]             set an attribute
        ["define", id, source, names]                 define classes of a test, whose instances then travel by value
        ["run", id, target]                           await an object; the result, and whether an iteration has ended
        ["take", id, target, count]                   take items of an iterator; the items, and whether it has ended
        ["value", id, name]                           get a global name
        ["returned", id, values]                      result of a test's function that the program called, or
        ["failed", id, exception, text]               the exception that it raised

    A target is ["name", name], ["object", number] or ["library", module, name]. An answer is [id, "value", values]
    (after a call with the arguments as they are then), [id, "raised", classes, text] or [id, "callback", number,
    values, keywords], which waits for an answer itself. Each has the id of the last message.
    """
    _, source, classes = channel.receive()
    try:
        exec(compiled(source), namespace)
    except Exception as error:  # any failure of set-up; the program has not run, so it cannot have sent this
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
    """A function of the test, which runs in the judge's process."""

    def __init__(self, answers: Answers, number: int) -> None:
        self._answers, self._number = answers, number

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function there."""
        return self._answers.call_back(self._number, [*arguments, *keywords.values()], list(keywords))


class Answers:
    """Answers questions, with one method for each kind.

    Args:
        namespace: Global names of the program.
        before: Global names before the program ran.
        classes: Names of classes of the set-up.
        channel: Channel to the asking process.
    """

    def __init__(
        self, namespace: dict[str, Any], before: dict[str, Any], classes: Sequence[str], channel: Channel
    ) -> None:
        self._namespace, self._before, self._channel = namespace, before, channel
        self._passing = Passing(self._refer, self._resolve)
        # The program may have replaced them by now.
        self._passing.classes = {name: namespace[name] for name in classes if isinstance(namespace.get(name), type)}
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._raised: dict[int, BaseException] = {}
        self._last = 0
        self._original: dict[tuple[str, str], Any] = {}
        self._folder = SharedFolder()
        self._loop: asyncio.AbstractEventLoop | None = None

    def respond(self, question: list[Any]) -> None:
        """Answer a question."""
        kind, number, *details = question
        self._last = number
        try:
            answer = ["value", getattr(self, kind)(*details)]
        except BaseException as error:  # whatever a tested function raises is the answer
            answer = ["raised", [base.__name__ for base in type(error).__mro__], _text(error), self._details(error)]
        try:
            self._channel.send([self._last, *answer])
        except ValueError as error:  # too long
            self._channel.send([self._last, "raised", ["ValueError"], _text(error), [[], []]])

    def call_back(self, function: int, values: Sequence[Any], keywords: Sequence[str]) -> Any:
        """Have the test call one of its functions; it may ask questions meanwhile."""
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
        """Return the result of a call and its arguments afterwards: a test may check how they changed."""
        arguments = self._passing.unpack(values)
        before = values[0]
        split = len(arguments) - len(keywords)
        function = self._resolve(target)
        result = function(*arguments[:split], **dict(zip(keywords, arguments[split:], strict=True)))
        after = [None if _is_as_before(value, data) else value for value, data in zip(arguments, before, strict=True)]
        return self._give([_Whole(result) if is_object and type(result) is function else result, *after])

    def _details(self, error: BaseException) -> Any:
        try:
            return self._give([dict(vars(error)), error.args])
        except BaseException:  # they are the program's values
            return [[], []]

    def replace(self, module: str, name: str, values: Any) -> Any:
        """Replace a member of a module by what the test has there."""
        replace(self._original, module, name, self._passing.unpack(values)[0])
        return self._give([None])

    def files(self, values: Any) -> Any:
        """Make the test's changes in the working folder, and return the program's."""
        changed, gone = self._passing.unpack(values)
        news = self._folder.news()
        self._folder.apply(changed, gone)
        return self._give(news)

    def leave(self, target: list[Any], name: str, text: str) -> Any:
        """Leave a context, with an exception of this class unless its name is empty."""
        kind = self._namespace.get(name, getattr(builtins, name, RuntimeError)) if name else None
        error = None if kind is None else kind(text)
        return self._give([bool(self._resolve(target).__exit__(kind, error, None))])

    def fields(self, target: list[Any]) -> Any:
        """Return the name of a dataclass, and an object's fields."""
        value = self._resolve(target)
        names = [field.name for field in dataclasses.fields(value) if field.compare]
        return self._give([type(value).__name__, {name: getattr(value, name) for name in names}])

    def signature(self, target: list[Any]) -> Any:
        """Return the parameters of a function: name, kind, and the default by that name."""
        return self._give([_parameters(self._resolve(target))])

    def describe(self, names: Sequence[str]) -> Any:
        """Describe classes; members of the enumerations travel by value from now on."""
        described = [(name, self._namespace.get(name)) for name in names]
        found = [[name, *content] for name, kind in described if (content := _description(kind))]
        self._passing.classes |= {str(name): self._namespace[name] for name, kind, _ in found if kind in ENUMERATIONS}
        return self._give([found])

    def get(self, target: list[Any], name: str) -> Any:
        """Return an attribute."""
        return self._give([getattr(self._resolve(target), name)])

    def set(self, target: list[Any], name: str, values: Any) -> Any:
        """Set an attribute."""
        setattr(self._resolve(target), name, self._passing.unpack(values)[0])
        return self._give([None])

    def value(self, name: str) -> Any:
        """Return the value of a global name."""
        return self._give([self._resolve(["name", name])])

    def define(self, source: str, names: list[str]) -> Any:
        """Define classes apart from the program's names."""
        namespace = dict(self._before)
        exec(compiled(source), namespace)
        self._passing.classes |= {name: namespace[name] for name in names}
        return self._give([None])

    def run(self, target: list[Any]) -> Any:
        """Await an object; all in one event loop, since the program may have created objects in it."""
        import asyncio

        self._loop = self._loop or asyncio.new_event_loop()

        async def wait() -> Any:
            return await self._resolve(target)

        try:
            return self._give([self._loop.run_until_complete(wait()), False])
        except StopAsyncIteration:
            return self._give([None, True])

    def take(self, target: list[Any], count: int) -> Any:
        """Return the next items of an iterator and whether it has ended; an exception comes after the items before."""
        iterator = self._resolve(target)
        items: list[Any] = []
        if id(iterator) in self._raised:
            raise self._raised.pop(id(iterator))
        try:
            while len(items) < count:
                items.append(next(iterator))
        except StopIteration:
            return self._give([items, True])
        except BaseException as error:  # any exception is passed to the test
            if not items:
                raise
            self._raised[id(iterator)] = error
        return self._give([items, False])

    def _give(self, values: Sequence[Any]) -> Any:
        return self._passing.pack(list(map(_in_its_wrapper, values)), _Whole)

    def _refer(self, value: Any) -> Any:
        if isinstance(value, Callback):
            return ["function", value._number]
        if isinstance(value, type) and value in vars(builtins).values():
            return ["library", "builtins", value.__name__]
        kind = "iterator" if isinstance(value, _Items) else "object"
        if isinstance(value, _Whole):
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
            case ["member", str(kind), str(name)]:
                return self._namespace[kind][name]
            case ["function", int(number)]:
                return Callback(self, number)
            case ["library", str(module), str(name)]:
                return library_member(module, name)
        raise ValueError("a reference to nothing")


def _description(kind: Any) -> list[Any] | None:
    """Return the kind of a class and what a test must know: bases, members with values and texts, or parameters."""
    if not isinstance(kind, type):
        return None
    if issubclass(kind, Exception):
        return ["exception", [base.__name__ for base in kind.__mro__[1:]]]
    if issubclass(kind, enum.Enum):
        base = next(base.__name__ for base in kind.__mro__ if base.__name__ in ENUMERATIONS)
        return [base, [[name, each.value, str(each)] for name, each in kind.__members__.items()]]
    own = [getattr(getattr(kind, name), "__code__", None) for name in ("__init__", "__eq__")]
    is_plain = dataclasses.is_dataclass(kind) and not hasattr(kind, "__post_init__")
    if not is_plain or any(code is None or code.co_filename != "<string>" for code in own):
        return None
    factories = {field.name: field.default_factory for field in dataclasses.fields(cast("Any", kind))}
    made = {name: {"default": make()} for name, make in factories.items() if make is not dataclasses.MISSING}
    return ["dataclass", [[name, how, made.get(name, default)] for name, how, default in _parameters(kind)]]


def _parameters(function: Any) -> list[list[Any]]:
    return [
        [each.name, int(each.kind), {} if each.default is each.empty else {"default": each.default}]
        for each in inspect.signature(function).parameters.values()
    ]


class _Whole:
    """Wraps data that cannot be encoded as a whole, and therefore stays here as an object."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Items(_Whole):
    """Wraps an iterator, whose items the test takes on demand."""


def _in_its_wrapper(value: Any) -> Any:
    """Wrap iterators; awaitables are iterators in part, and are not treated as such."""
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
