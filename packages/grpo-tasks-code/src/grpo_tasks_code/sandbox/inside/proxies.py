"""Proxies in the judge's process for objects of the program, and references to Python's own functions."""

from __future__ import annotations

import builtins
import importlib
import types
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NoReturn, Protocol

from grpo_tasks_code.sandbox.inside.values import MAX_ITEMS

EQUALITIES = frozenset({"equals", "equal", "eq", "is_equal", "isEqual"})
"""Methods that compare; an object of the program is never asked whether it equals the expected value."""
_PREDICATES = {
    *(
        name
        for kind in (str, set, float, Decimal)
        for name in dir(kind)
        if name.startswith(("is", "startswith", "endswith", "compare"))
    ),
    *("count", "difference", "partition", "removeprefix", "removesuffix", "rfind", "rindex", "rpartition"),
    *("same_quantum", "symmetric_difference"),
}
"""Methods by which tests inspect plain data; an object returned in place of data is not asked either."""

_LIBRARY = (
    *("builtins", "cmath", "collections", "decimal", "fractions", "functools", "itertools", "json", "math"),
    *("operator", "random", "re", "statistics", "string"),
)
"""Modules whose functions and classes a test can pass to the program by name."""
ENUMERATIONS = ("IntEnum", "IntFlag", "Flag", "StrEnum", "Enum")
"""Classes of `enum` from which enumerations of the program are rebuilt, the special ones first."""
_FROM_CANDIDATE = "_from_candidate"
"""Attribute that marks an exception raised by the candidate, not by the test."""


class Asker(Protocol):
    """The session of a judge, as proxies use it."""

    def use(self, subject: Proxy) -> None:
        """Note that an object is passed back to the candidate."""

    def call(self, function: Proxy, arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """Call a function."""

    def get(self, subject: Proxy, name: str) -> Any:
        """Get an attribute."""

    def set(self, subject: Proxy, name: str, value: Any) -> None:
        """Set an attribute."""

    def look(self, subject: Proxy, name: str, key: Any = None) -> Any:
        """Ask an object for its content."""

    def operate(self, operator: str, operands: Sequence[Any]) -> Any:
        """Apply an operator, if one of the operands is an object that the test constructed."""

    def leave(self, manager: Proxy, error: BaseException | None) -> bool:
        """Leave a context; return whether it suppresses the exception."""

    def make(self, kind: str, arguments: Sequence[Any], keywords: dict[str, Any]) -> list[Any]:
        """Construct an object; return its target."""

    def fields(self, subject: Proxy) -> list[Any]:
        """Return the name of a dataclass, and an object's fields."""

    def run(self, awaitable: Proxy) -> tuple[Any, bool]:
        """Await an object; return the result, and whether an iteration has ended."""

    def refuse(self, answer: Proxy, what: str = "") -> NoReturn:
        """Decide the test as failed."""


class Proxy:
    """A function, class or object of the program, which stays in its process; it can be called, and has attributes.

    A returned object has no comparison, no truth value and no arithmetic, because the program would decide their
    results. An object that the test constructed has operators, which the test checks, but no equality.
    """

    __slots__ = ("__asker__", "__is_made__", "__kind__", "__target__")

    def __init__(self, asker: Asker, target: list[Any], kind: str, *, is_made: bool = False) -> None:
        for name, value in (("asker", asker), ("target", target), ("kind", kind), ("is_made", is_made)):
            object.__setattr__(self, f"__{name}__", value)

    def as_made(self) -> Proxy:
        """Return the same object, marked as constructed by the test."""
        return type(self)(self.__asker__, self.__target__, self.__kind__, is_made=True)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute; a method is a proxy again."""
        is_answer = self.__target__[0] == "object"
        if is_answer and (name in EQUALITIES or (name in _PREDICATES and not self.__is_made__)):
            self.__asker__.refuse(self, f".{name}")
        return self.__asker__.get(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__asker__.set(self, name, value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the object in its process."""
        return self.__asker__.call(self, arguments, keywords)

    def __len__(self) -> int:
        try:
            return int(self.__asker__.look(self, "__len__"))
        except AttributeError as error:  # list() asks for the length too, and expects a TypeError
            raise TypeError(str(error)) from None

    def __getitem__(self, key: Any) -> Any:
        return self.__asker__.look(self, "__getitem__", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__asker__.get(self, "__setitem__")(key, value)

    def __delitem__(self, key: Any) -> None:
        self.__asker__.get(self, "__delitem__")(key)

    def __instancecheck__(self, value: Any) -> bool:
        # Data is of no class of the program; for its own objects the program may answer anything.
        if not isinstance(value, Proxy):
            return False
        return self.__asker__.call(_library("builtins", "isinstance", self), [value, self], {}) is True

    def __subclasscheck__(self, kind: Any) -> bool:
        return self.__asker__.call(_library("builtins", "issubclass", self), [kind, self], {}) is True

    def __aiter__(self) -> AsyncItems:
        return AsyncItems(self.__asker__.get(self, "__aiter__")())

    async def __aenter__(self) -> Any:
        return await self.__asker__.get(self, "__aenter__")()

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        await self.__asker__.get(self, "__aexit__")(None, None, None)  # as in __exit__

    def __format__(self, form: str) -> str:
        return str(self.__asker__.get(self, "__format__")(form))

    def __str__(self) -> str:
        return str(self.__asker__.get(self, "__str__")())

    def __repr__(self) -> str:
        return str(self.__asker__.get(self, "__repr__")())

    def __iter__(self) -> Iterator[Any]:
        items = self.__asker__.look(self, "__iter__")
        if isinstance(items, Proxy):
            self.__asker__.refuse(self, "a loop")
        return iter(items)

    def __enter__(self) -> Any:
        return self.__asker__.get(self, "__enter__")()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        return bool(self.__asker__.leave(self, error))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Made) and not isinstance(self, Made):
            return bool(Made.__eq__(other, self))
        self.__asker__.refuse(self, "__eq__")
        return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __copy__(self) -> Any:
        return self.__asker__.call(_library("copy", "copy", self), [self], {})

    def __deepcopy__(self, memo: object) -> Any:
        return self.__asker__.call(_library("copy", "deepcopy", self), [self], {})


class Made(Proxy):
    """An object of a plain dataclass that the test constructed; the program constructs it where it is used.

    As long as it is only compared, the program cannot know the content that the test expects.
    """

    __slots__ = ("__arguments__", "__fields__")

    def __init__(
        self, asker: Asker, kind: str, fields: dict[str, Any], arguments: tuple[Any, ...], *, is_made: bool
    ) -> None:
        _TARGET.__set__(self, [])
        own = (("asker", asker), ("kind", kind), ("is_made", is_made), ("fields", fields), ("arguments", arguments))
        for name, value in own:
            object.__setattr__(self, f"__{name}__", value)

    @property
    def __target__(self) -> list[Any]:
        content: list[Any] = _TARGET.__get__(self)
        if not content:
            content = self.__asker__.make(self.__kind__, *self.__arguments__)
            _TARGET.__set__(self, content)
        return content

    def __eq__(self, other: object) -> bool:
        is_new = isinstance(other, Made) and not _TARGET.__get__(other)
        if _TARGET.__get__(self):
            return other.__eq__(self) if is_new else self.__asker__.refuse(self, "__eq__")
        if isinstance(other, Made) and is_new:
            return (self.__kind__, self.__fields__) == (other.__kind__, other.__fields__)
        return isinstance(other, Proxy) and self.__asker__.fields(other) == [self.__kind__, self.__fields__]


_TARGET: Any = vars(Proxy)["__target__"]


class Awaitable(Proxy):
    """A coroutine or another awaitable of the program: awaiting it here runs it there to its end."""

    __slots__ = ()
    __hash__ = object.__hash__  # asyncio keeps them in tables

    def __getattr__(self, name: str) -> Any:
        """Return an attribute, except those by which asyncio describes a coroutine."""
        if name.startswith(("cr_", "gi_", "ag_")):
            raise AttributeError(name)
        return super().__getattr__(name)

    def send(self, value: object) -> NoReturn:
        """Run the coroutine."""
        result, is_over = self.__asker__.run(self)
        raise RuntimeError("StopAsyncIteration") if is_over else StopIteration(result)

    def throw(self, *error: Any) -> NoReturn:
        """Raise the exception."""
        raise error[-1]

    def close(self) -> None:
        """Do nothing."""

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from ()
        result, is_over = self.__asker__.run(self)
        if is_over:
            raise RuntimeError("StopAsyncIteration")
        return result


class AsyncItems:
    """Asynchronous iterator over the items of one of the program."""

    def __init__(self, items: Proxy) -> None:
        self._items, self._left = items, MAX_ITEMS

    def __aiter__(self) -> AsyncItems:
        return self

    async def __anext__(self) -> Any:
        awaitable = self._items.__anext__()
        if not isinstance(awaitable, Awaitable):
            raise TypeError("__anext__() gives what cannot be awaited")
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"the test wants more than {MAX_ITEMS} items of an iterator")
        item, is_over = self._items.__asker__.run(awaitable)
        if is_over:
            raise StopAsyncIteration
        return item


def _library(module: str, name: str, beside: Proxy) -> Proxy:
    """Return a proxy of a library function in the program's process."""
    return Proxy(beside.__asker__, ["library", module, name], "function")


def forwarding(module: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a library function that runs in the program's process for its objects."""

    def call(subject: Any, *arguments: Any, **keywords: Any) -> Any:
        there = _library(module, function.__name__, subject) if isinstance(subject, Proxy) else function
        return there(subject, *arguments, **keywords)

    return call


def _forwarded(name: str) -> property:
    return property(lambda self: self.__asker__.get(self, name))


for _name in ("__doc__", "__module__"):  # every class has these; a proxy must return the program's
    setattr(Proxy, _name, _forwarded(_name))


def _refusal(operator: str) -> Any:
    def refuse(self: Proxy, *_: object) -> None:
        self.__asker__.refuse(self, operator)

    return refuse


def _operation(function: str, convert: Any = None, *, is_reflected: bool = False) -> Any:
    """Return a method for an operator, given as a function of `operator` or `builtins`."""

    def operate(self: Proxy, *others: Any) -> Any:
        operands = [*others, self] if is_reflected else [self, *others]
        result = self.__asker__.operate(function, operands)
        return result if convert is None or isinstance(result, Proxy) else convert(result)

    return operate


_NEVER = ("contains", "hash")
_ORDER = ("lt", "le", "gt", "ge")
_BITWISE = ("and", "or", "xor", "lshift", "rshift")
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", *_BITWISE)
_OF_ONE = ("neg", "pos", "invert", "index", "abs")
_CONVERSIONS = ("int", "float", "complex", "round", "divmod")
for _name in _NEVER:
    setattr(Proxy, f"__{_name}__", _refusal(f"__{_name}__"))
for _name in (*_ORDER, *_OF_ONE):
    setattr(Proxy, f"__{_name}__", _operation(f"operator.{_name}"))
for _name in _ARITHMETIC:
    _function = f"operator.{_name}" + "_" * (_name in ("and", "or"))
    setattr(Proxy, f"__{_name}__", _operation(_function))
    setattr(Proxy, f"__r{_name}__", _operation(_function, is_reflected=True))
    setattr(Proxy, f"__i{_name}__", _operation(f"operator.i{_name}"))
for _name in _CONVERSIONS:
    setattr(Proxy, f"__{_name}__", _operation(f"builtins.{_name}"))
_SPECIAL = {"rdivmod": _operation("builtins.divmod", is_reflected=True), "bool": _operation("operator.truth", bool)}
for _name, _method in _SPECIAL.items():
    setattr(Proxy, f"__{_name}__", _method)


def reference_to_library(value: Any) -> list[Any] | None:
    """Return the reference of a function or class of the standard library; None for anything else."""
    owner = getattr(value, "__objclass__", None) if isinstance(value, types.MethodDescriptorType) else None
    module = getattr(owner or value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if module is None or not isinstance(name, str):
        return None
    for candidate in (module, *_LIBRARY) if module in ("_functools", "_operator", "_collections") else (module,):
        if candidate in _LIBRARY and library_member(candidate, name) is value:
            return ["library", candidate, name]
    return None


def library_member(module: str, name: str) -> Any:
    """Return a member of a module, such as `str.lower` of `builtins`; None if there is none."""
    member: Any = importlib.import_module(module)
    for part in name.split("."):
        member = getattr(member, part, None)
    return member


def exception_of(
    names: Sequence[Any], text: str, namespace: Mapping[str, Any], attributes: object = None, arguments: Any = ()
) -> Exception:
    """Return the exception that the candidate raised, as far as the test knows its class and base classes.

    Args:
        names: Names of its class and base classes, in order of resolution.
        text: Message of the exception.
        namespace: Global names of the test, with its own exceptions.
        attributes: Its attributes by name.
        arguments: Its `args`.
    """
    values = [namespace.get(str(name), getattr(builtins, str(name), None)) for name in names]
    kinds = [kind for kind in values if isinstance(kind, type) and issubclass(kind, Exception)]
    kinds = [kind for kind in kinds if kind not in _NOT_RAISED and kind.__name__ != "SkipTest"]
    known = kinds[:1] if kinds and set(kinds) <= set(kinds[0].__mro__) else kinds
    its_name, own_text = str(names[0]) if names else "an exception", {"__str__": lambda self: text}
    error: Exception = RuntimeError(f"{its_name}: {text}")
    for bases, given in ((known, arguments), (known, (text,)), (kinds[:1], (text,)), ([ValueError], (text,))):
        try:
            is_one = len(bases) == 1 and bases[0].__name__ == its_name
            made = (bases[0] if is_one else type(its_name, tuple(bases), {}))(*given)
            error = made if str(made) == text else type(its_name, (type(made),), own_text)(*given)
            break
        except (TypeError, IndexError):  # incompatible bases, or other arguments are required, as by UnicodeDecodeError
            if ValueError not in kinds and bases == kinds[:1]:
                break
    for name, value in attributes.items() if isinstance(attributes, dict) else ():
        if isinstance(name, str) and not name.startswith("_") and not hasattr(BaseException, name):
            setattr(error, name, value)
    setattr(error, _FROM_CANDIDATE, True)
    return error


_NOT_RAISED = (Exception, StopIteration, StopAsyncIteration)
"""Classes that say nothing, or would end the test's own iterations: all(map(f, inputs)) is true for no inputs."""


def is_raised(error: BaseException) -> bool:
    """Return whether the candidate raised the exception, not the test."""
    return hasattr(error, _FROM_CANDIDATE)
