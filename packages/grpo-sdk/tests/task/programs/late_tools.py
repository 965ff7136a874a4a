"""Tools whose annotations are text, with names that nothing else in this file uses."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from grpo_sdk import tool


class Place(BaseModel):
    x: float


@tool
def convert(amount: float, unit: Literal["km", "mi"], place: Place | None = None):
    """Convert a distance."""
    return amount


class Shop:
    @tool(ends=True)
    async def order(self, item: Literal["tea"], place: Place):
        return item
