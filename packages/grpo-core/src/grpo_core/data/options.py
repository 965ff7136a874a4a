"""Types of task options."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator

T = TypeVar("T")


def _split(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


CommaSeparated = Annotated[tuple[T, ...], BeforeValidator(_split)]
"""Several values; as text they are separated by commas."""
