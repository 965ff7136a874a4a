"""Ranges of the options that are numbers and no settings."""

from __future__ import annotations

import math
from typing import Any

import click

COUNT = click.IntRange(1, 10**9)
"""A number of things."""

SEED = click.IntRange(0, 2**63 - 1)


class _Number(click.FloatRange):
    """A range that NaN, which is in no order, does not lie in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"{value} is no number in the range {self._describe_range()}.", param, ctx)
        return found


RATE = _Number(0, 10, min_open=True)
"""A learning rate."""

SECONDS = _Number(0, 10**7, min_open=True)
"""A time limit: up to months."""
