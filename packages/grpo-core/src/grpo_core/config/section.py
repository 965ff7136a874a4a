"""What every section of the configuration is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict

from grpo_core.plugins.built_in import BUILT_IN

COUNT = 10**9
"""Largest number of anything: it fits into every format and tensor, and nothing has so many."""

Scalar = bool | int | float | str | None
"""What a variant's own argument may be; its function's annotation says which."""

VariantArguments = dict[str, Scalar]


class Section(BaseModel):
    """Base of every section: frozen, unknown keys refused, no silent conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


def why(reason: str) -> dict[str, Any]:
    """The reason of a limit that is not obvious; it ends the error line."""
    return {"why": reason}


def allowed(words: str) -> dict[str, Any]:
    """What a value may be, where its type does not say it."""
    return {"allowed": words}


def either(alternatives: Iterable[object]) -> str:
    """Alternatives as a sentence lists them: `1, 2 or 4`."""
    *others, last = map(str, alternatives)
    return f"{', '.join(others)} or {last}" if others else last


def variant(kind: str) -> dict[str, Any]:
    """What a variant's name may be."""
    return allowed(f"{', '.join(sorted(BUILT_IN[kind]))}, or one that a plugin registers")
