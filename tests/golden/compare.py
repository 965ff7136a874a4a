"""Decoding of golden cases, ragged lists as padded tensors and back, and the comparison."""

from __future__ import annotations

import math
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


def difference(result: Any, expected: Any, tol: float, where: str = "") -> str | None:
    """The first place where `|a − b| <= tol · max(1, |b|)` does not hold, or None."""
    if isinstance(expected, dict):
        for key, each in expected.items():
            if not isinstance(result, dict) or key not in result:
                return f"{where}.{key} is missing"
            found = difference(result[key], each, tol, f"{where}.{key}")
            if found:
                return found
        return None
    if isinstance(result, Tensor):
        result = result.tolist()
    if isinstance(expected, list):
        if not isinstance(result, list) or len(result) != len(expected):
            return f"{where}: {_shape(result)} for {_shape(expected)}"
        for index, (one, other) in enumerate(zip(result, expected, strict=True)):
            found = difference(one, other, tol, f"{where}[{index}]")
            if found:
                return found
        return None
    if expected is None or isinstance(expected, str):
        return None if result == expected else f"{where}: {result!r} for {expected!r}"
    if isinstance(result, bool):
        result = float(result)
    if not isinstance(result, int | float):
        return f"{where}: {result!r} for {expected!r}"
    if math.isnan(expected) or math.isinf(expected):
        same = math.isnan(result) if math.isnan(expected) else result == expected
        return None if same else f"{where}: {result} for {expected}"
    if not abs(result - expected) <= tol * max(1.0, abs(expected)):
        return f"{where}: {result!r} for {expected!r}, off by {abs(result - expected):.3g}"
    return None


def _shape(value: Any) -> str:
    return f"a list of {len(value)}" if isinstance(value, list) else repr(value)
