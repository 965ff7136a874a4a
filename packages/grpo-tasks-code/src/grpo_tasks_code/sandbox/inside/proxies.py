"""What stands in a judge's process for what is the program's, and the other way round for what is Python's own."""

from __future__ import annotations

import builtins
import importlib
import types
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NoReturn, Protocol

EQUALITIES = frozenset({"equals", "equal", "eq", "is_equal", "isEqual"})
"""Methods that compare; no object of the program's is asked whether it is what it must be."""
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
"""Methods of plain data by which a test looks into it: what is returned in place of data is not asked either."""

_LIBRARY = (
    *("builtins", "cmath", "collections", "decimal", "fractions", "functools", "itertools", "json", "math"),
    *("operator", "random", "re", "statistics", "string"),
)
"""Modules whose functions and classes a test can hand the program, which has the same."""
_FROM_CANDIDATE = "_from_candidate"
"""Marks an exception that the candidate raised, and not the test."""


class Asker(Protocol):
    """What a proxy asks: a judge's session."""

    def call(self, function: Proxy, arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """What a function returns."""

    def get(self, subject: Proxy, name: str) -> Any:
        """An attribute."""

    def set(self, subject: Proxy, name: str, value: Any) -> None:
        """Set an attribute."""

    def look(self, subject: Proxy, name: str, key: Any = None) -> Any:
        """What an object says that it holds."""

    def refuse(self, answer: Proxy, what: str = "") -> NoReturn:
        """Decide the test."""


class Proxy:
    """A function, class or object of the program's, which stays in its process: it can be called, and has attributes.

    It has no comparison, no truth and no arithmetic, because those would be the program's to answer.
    """

    __slots__ = ("__asker__", "__is_made__", "__kind__", "__target__")

    def __init__(self, asker: Asker, target: list[Any], kind: str, *, is_made: bool = False) -> None:
        for name, value in (("asker", asker), ("target", target), ("kind", kind), ("is_made", is_made)):
            object.__setattr__(self, f"__{name}__", value)

    def as_made(self) -> Proxy:
        """The same, as an object that the test itself made by calling a class."""
        return Proxy(self.__asker__, self.__target__, self.__kind__, is_made=True)

    def __getattr__(self, name: str) -> Any:
        """An attribute; a method is an object again."""
        is_answer = self.__target__[0] == "object"
        if is_answer and (name in EQUALITIES or (name in _PREDICATES and not self.__is_made__)):
            self.__asker__.refuse(self, f".{name}")
        return self.__asker__.get(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__asker__.set(self, name, value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call it, in its process."""
        return self.__asker__.call(self, arguments, keywords)

    def __len__(self) -> int:
        try:
            return int(self.__asker__.look(self, "__len__"))
        except AttributeError as error:  # Python's list() asks too, and understands this
            raise TypeError(str(error)) from None

    def __getitem__(self, key: Any) -> Any:
        return self.__asker__.look(self, "__getitem__", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__asker__.get(self, "__setitem__")(key, value)

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

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        # It is not asked about an exception: it could swallow the test's assertion.
        self.__asker__.get(self, "__exit__")(None, None, None)

    def __copy__(self) -> Any:
        return self.__asker__.call(Proxy(self.__asker__, ["library", "copy", "copy"], "function"), [self], {})

    def __deepcopy__(self, memo: object) -> Any:
        return self.__asker__.call(Proxy(self.__asker__, ["library", "copy", "deepcopy"], "function"), [self], {})


def _asked(name: str) -> property:
    return property(lambda self: self.__asker__.get(self, name))


for _name in ("__doc__", "__module__"):  # every class has them, and the program's are meant
    setattr(Proxy, _name, _asked(_name))


def _refusal(operator: str) -> Any:
    def refuse(self: Proxy, *_: object) -> None:
        self.__asker__.refuse(self, operator)

    return refuse


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "bool", "contains", "hash")
_ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
)
_CONVERSIONS = ("int", "float", "complex", "index", "abs", "neg", "pos", "invert", "round", "divmod", "rdivmod")
for _name in (*_COMPARISONS, *_ARITHMETIC, *(f"r{name}" for name in _ARITHMETIC), *_CONVERSIONS):
    setattr(Proxy, f"__{_name}__", _refusal(f"__{_name}__"))


def reference_to_library(value: Any) -> list[Any] | None:
    """How the program finds a function or class of the standard library; None for what is none."""
    owner = getattr(value, "__objclass__", None) if isinstance(value, types.MethodDescriptorType) else None
    module = getattr(owner or value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if module is None or not isinstance(name, str):
        return None
    for each in (module, *_LIBRARY) if module in ("_functools", "_operator", "_collections") else (module,):
        if each in _LIBRARY and library_member(each, name) is value:
            return ["library", each, name]
    return None


def library_member(module: str, name: str) -> Any:
    """`str.lower` of `builtins`, and the like; None where there is none."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def exception_of(names: Sequence[Any], text: str, namespace: Mapping[str, Any]) -> Exception:
    """The exception that the candidate raised, as far as the test knows its class and those that it inherits from.

    Args:
        names: Of its class and the classes that it inherits from, in their order.
        text: What it says.
        namespace: Where the test's own exceptions are.
    """
    found = [namespace.get(str(name), getattr(builtins, str(name), None)) for name in names]
    kinds = [kind for kind in found if isinstance(kind, type) and issubclass(kind, Exception) and kind not in _TOO_MUCH]
    error: Exception = RuntimeError(f"{names[0] if names else 'an exception'}: {text}")
    for bases in (tuple(kinds), tuple(kinds[:1])):
        try:
            error = (bases[0] if len(bases) == 1 else type(str(names[0]), bases, {}))(text)
            break
        except (TypeError, IndexError):  # they do not go together, or want more arguments, as UnicodeDecodeError does
            continue
    else:
        if ValueError in kinds:
            error = ValueError(text)
    setattr(error, _FROM_CANDIDATE, True)
    return error


_TOO_MUCH = (Exception, StopIteration, StopAsyncIteration)
"""What says nothing, and what would end the test's own iterations: all(map(f, inputs)) is true of no inputs."""


def is_raised(error: BaseException) -> bool:
    """Whether the candidate raised it, and not the test."""
    return hasattr(error, _FROM_CANDIDATE)
