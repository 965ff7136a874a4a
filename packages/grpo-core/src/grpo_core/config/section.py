"""Base class and field helpers of the configuration's sections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict

from grpo_core.plugins.built_in import BUILT_IN

COUNT = 10**9
"""Largest allowed count; it fits into every format and tensor."""

Scalar = bool | int | float | str | None
"""Type of a variant's argument; the annotation of the variant's function narrows it."""

VariantArguments = dict[str, Scalar]


class Section(BaseModel):
    """Base of every section: frozen, unknown keys refused, no silent conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


def why(reason: str) -> dict[str, Any]:
    """Field metadata: the reason of a limit that is not obvious, appended to its error."""
    return {"why": reason}


def allowed(words: str) -> dict[str, Any]:
    """Field metadata: the allowed values in words, where the type does not tell them."""
    return {"allowed": words}


def either(alternatives: Iterable[object]) -> str:
    """Alternatives as a sentence lists them: `1, 2 or 4`."""
    *others, last = map(str, alternatives)
    return f"{', '.join(others)} or {last}" if others else last


def variant(kind: str) -> dict[str, Any]:
    """Field metadata: the built-in names of a kind of variant."""
    return allowed(f"{', '.join(sorted(BUILT_IN[kind]))}, or one that a plugin registers")
