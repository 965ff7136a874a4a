"""How a game asks for a move and finds it in the reply: one form for all games here."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from pydantic import Field

from grpo_core import GameConfig, Message, Prompt

Style = Literal["full", "chat", "short"]

STOP = ("</answer>",)
"""What ends a completion in full style; in short style it is the end of the sequence."""

COMPLETION_TOKENS = 150
"""Of a move: room for a thought of a few sentences; rl_coding_games has as many."""


class StyledConfig(GameConfig):
    """Options of every game here.

    Attributes:
        style: `full` explains the game and asks for `<think>…</think><answer>[…]</answer>`; `chat` is the same as a
            message of the user; `short` is one line and a bare move, which a byte-level model of 2 M parameters learns.
        demo_errors: Share of the demos whose move is illegal, so that a warm start leaves something to learn.
        demo_skill: Share of the other demos whose move is a good one (each game says of whom); else it is a random one.
    """

    style: Style = "full"
    demo_errors: float = Field(default=0.1, ge=0, le=1)
    demo_skill: float = Field(default=0.0, ge=0, le=1)


def ask(rules: str, short: str, slot: str, sample: str, thought: str, style: Style) -> Prompt:
    """The prompt of a position.

    Args:
        rules: The game, the position and the legal moves, in words.
        short: The position in one line.
        slot: What stands for the move, as `n`.
        sample: A legal move, so that a reply copied from the sample is one.
        thought: What the sample thinks.
        style: Which prompt.
    """
    if style == "short":
        return f"{short}\n"
    text = (
        f"{rules}\n\nThink first, then give your move, in exactly this form:\n"
        f"<think>your reasoning</think><answer>[{slot}]</answer>\n"
        f"For example:\n{reply(sample, thought, style)}\n"
    )
    return (Message(role="user", content=text),) if style == "chat" else text


def reply(move: str, thought: str, style: Style) -> str:
    """The completion that makes a move."""
    return move if style == "short" else f"<think>{thought}</think><answer>[{move}]</answer>"


def find_move(text: str, move: str, lone: str) -> re.Match[str] | None:
    """The first `<answer>[move]`, else the first `[move]`, else the first lone move; case does not count.

    Takes time linear in the text if the two patterns do.

    Args:
        text: A completion.
        move: Pattern of what brackets hold, in lower case; what exists but is illegal is the caller's to refuse.
        lone: Pattern of a move without brackets, of the same groups.
    """
    lowered = text.lower()
    return next((found for pattern in _patterns(move, lone) if (found := pattern.search(lowered))), None)


@lru_cache
def _patterns(move: str, lone: str) -> tuple[re.Pattern[str], ...]:
    return (
        re.compile(rf"<answer>\s*\[\s*{move}\s*\]"),
        re.compile(rf"\[\s*{move}\s*\]"),
        re.compile(rf"\b{lone}\b"),
    )
