"""Levels of difficulty of generated problems."""

from __future__ import annotations

from pydantic import Field

from grpo_sdk.data import ProceduralConfig


class ThreeLevels(ProceduralConfig):
    """Options of a task with the levels 1, 2 and 3."""

    min_difficulty: int = Field(default=1, ge=1, le=3)
    max_difficulty: int = Field(default=3, ge=1, le=3)
