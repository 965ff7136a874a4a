"""Calling an author's function with the arguments it asks for by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from grpo_core.errors import UserError, near_match


@lru_cache(maxsize=1024)
def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of a function's parameters, in order."""
    return tuple(inspect.signature(function).parameters)


def call_by_name(function: Callable[..., Any], available: Mapping[str, Any], *, positional: int = 0) -> Any:
    """Call `function` with those of `available` that it names.

    Args:
        function: A plain function.
        available: Everything it may ask for, the customary ones first.
        positional: If a parameter has a name of the author's own, this many of `available` are passed by position.

    Raises:
        UserError: it asks for something that is not available.
    """
    names = parameter_names(function)
    if all(name in available for name in names):
        return function(**{name: available[name] for name in names})
    customary = list(available.values())[:positional]
    extra = {name: available[name] for name in names[positional:] if name in available}
    if positional and len(names) == positional + len(extra):
        return function(*customary, **extra)
    unknown = next(name for name in names if name not in available)
    raise UserError(
        f"{getattr(function, '__name__', function)}() takes {unknown!r}; it may take {', '.join(available)}."
        f"{near_match(unknown, available)}"
    )
