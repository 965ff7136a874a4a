"""Base class and field helpers of the configuration's sections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict

from grpo_sdk.plugins.built_in import BUILT_IN

COUNT = 10**9
"""Largest allowed count, which fits into every format and tensor."""

Scalar = bool | int | float | str | None
"""Type of a variant's argument; the annotation of the variant's function narrows it."""

VariantArguments = dict[str, Scalar]


class Section(BaseModel):
    """Base class of the sections: frozen, without unknown keys or conversion between types.

    The docstring of a setting is its documentation, in one line of any length.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
    )


def why(reason: str) -> dict[str, Any]:
    """Return field metadata: the reason of a limit, appended to its error message."""
    return {"why": reason}


def allowed(words: str) -> dict[str, Any]:
    """Return field metadata: the allowed values in words, if the type does not imply them."""
    return {"allowed": words}


def either(alternatives: Iterable[object]) -> str:
    """List alternatives as in a sentence: `1, 2 or 4`."""
    *others, last = map(str, alternatives)
    return f"{', '.join(others)} or {last}" if others else last


def variant(kind: str) -> dict[str, Any]:
    """Return field metadata: the built-in names of a kind of variant."""
    return allowed(f"{', '.join(sorted(BUILT_IN[kind]))}, or one that a plugin registers")
