"""Decoding of golden cases, ragged lists as padded tensors and back, and the comparison."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

FLOAT32_TOLERANCE = 2e-5
FLOAT32_EXTREME_TOLERANCE = 1e-4
EXTREME_TAGS = {"extreme_ratio_20", "unclamped_log_ratio", "huge_logits"}

_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def decoded(value: Any) -> Any:
    """JSON with the strings nan, inf and -inf turned into floats; dictionary keys stay."""
    if isinstance(value, str):
        return _SPECIAL.get(value, value)
    if isinstance(value, list):
        return [decoded(each) for each in value]
    if isinstance(value, dict):
        return {key: decoded(each) for key, each in value.items()}
    return value


def padded(rows: list[list[float]], dtype: torch.dtype, fill: float = math.nan) -> Tensor:
    """Ragged rows as [B, T]; padding holds NaN unless said otherwise, so that an implementation must mask it."""
    width = max((len(row) for row in rows), default=0)
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=dtype).reshape(len(rows), width)


def padded_mask(rows: list[list[int]]) -> Tensor:
    """Ragged 0/1 rows as [B, T] bool."""
    return padded([[float(each) for each in row] for row in rows], torch.float64, 0.0).bool()


def ragged(values: Tensor, like: list[list[Any]]) -> list[list[float]]:
    """[B, T] cut back to the lengths of `like`."""
    return [row[: len(shape)] for row, shape in zip(values.tolist(), like, strict=True)]


def tolerance(case: dict, dtype: torch.dtype) -> float:
    """A case's own tolerance in float64, the README's in float32."""
    if dtype is torch.float64:
        return float(case["tol"])
    return FLOAT32_EXTREME_TOLERANCE if EXTREME_TAGS & set(case.get("tags", ())) else FLOAT32_TOLERANCE


def leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and word of a result by its place, and the length of every list."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{where}.{key}")
    elif isinstance(value, list):
        yield f"the length of {where}", len(value)
        for index, each in enumerate(value):
            yield from leaves(each, f"{where}[{index}]")
    else:
        yield where, value


def difference(result: Any, expected: Any, tol: float) -> str | None:
    """The first place where `|a − b| <= tol · max(1, |b|)` does not hold, or None."""
    found = dict(leaves(result))
    for where, wanted in leaves(expected):
        if where not in found:
            return f"{where} is missing"
        if not _agree(found[where], wanted, tol):
            return f"{where}: {found[where]!r} for {wanted!r}"
    return None


def _agree(found: Any, wanted: Any, tol: float) -> bool:
    if not (isinstance(found, int | float) and isinstance(wanted, int | float)):
        return bool(found == wanted)
    if math.isfinite(wanted):
        return abs(found - wanted) <= tol * max(1.0, abs(wanted))
    return found == wanted or (math.isnan(found) and math.isnan(wanted))
