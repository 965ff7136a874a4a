"""Drawings of a completion, which plugins make for `grpo report`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture of a completion: a position of a game, a program, a plot.

    A page shows `svg` as an image, where scripts and links do nothing, and the texts as plain text; so a frame may hold
    whatever a model wrote.

    Attributes:
        caption: A line above it.
        svg: A whole SVG document; its text must be escaped.
        text: Text in a fixed-width font.
    """

    caption: str = ""
    svg: str = ""
    text: str = ""
