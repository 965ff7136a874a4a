"""What a variant says about itself beside its docstring; docs/reference/algorithms.md is generated from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def described(*, formula: str, source: str) -> Callable[[Function], Function]:
    """Attach a variant's formula and the paper or code that defines it."""

    def attach(function: Function) -> Function:
        function.formula, function.source = formula, source  # type: ignore[attr-defined] # a function takes any
        return function

    return attach
