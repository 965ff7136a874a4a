"""The form in which every game asks for a move and finds it in the reply."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from pydantic import Field

from grpo_core import GameConfig, Invalid, Message, Prompt
from grpo_core.rewards import answer_block, outside_thinking

Style = Literal["full", "chat", "short"]

ROLES = ("first", "second")

SYMBOLS = {"first": "X", "second": "O"}
"""Role -> symbol on a board."""

STOP = ("</answer>",)
"""Stop string of completions in full style; in short style the sequence ends by itself."""

COMPLETION_TOKENS = 150
"""Longest completion of a move: room for a thought of a few sentences, as in rl_coding_games."""


class StyledConfig(GameConfig):
    """Options of every game here.

    Attributes:
        style: `full` explains the game and asks for `<think>…</think><answer>[…]</answer>`; `chat` is the same as a
            message of the user; `short` is one line and a bare move, which a byte-level model of 2 M parameters learns.
        demo_errors: Share of the demos whose move is illegal, so that a warm start leaves something to learn.
        demo_skill: Share of the other demos with a good move, as each game defines it; the rest have a random one.
    """

    style: Style = "full"
    demo_errors: float = Field(default=0.1, ge=0, le=1)
    demo_skill: float = Field(default=0.0, ge=0, le=1)


def ask(rules: str, short: str, slot: str, sample: str, thought: str, style: Style) -> Prompt:
    """Return the prompt of a position.

    Args:
        rules: Description of the game, the position and the legal moves.
        short: The position in one line.
        slot: Placeholder of the move, as `n`.
        sample: A legal move, so that a reply copied from the sample is legal.
        thought: Thought of the sample.
        style: Style of the prompt.
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
    """Return the completion that makes a move."""
    return move if style == "short" else f"<think>{thought}</think><answer>[{move}]</answer>"


def find_move(text: str, move: str, lone: str) -> re.Match[str] | None:
    """Find the one `[move]` of the answer, or its one move without brackets, in any case; None where there is none.

    The answer is what the one `<answer>` holds, even if that is no move; without one, all that stands after the
    thinking, which is no answer. The search is linear in the text if the two patterns are.

    Args:
        text: Text of a completion.
        move: Pattern of a move in brackets, in lower case; the caller refuses illegal moves.
        lone: Pattern of a move without brackets, with the same groups.

    Raises:
        Invalid: there is a second `<answer>`, even an empty one, or a second move.
    """
    answer = outside_thinking(text)
    if answer.lower().count("<answer>") > 1:
        raise Invalid("a second <answer>: give one move in one tag")
    block = answer_block(answer)
    answer = (answer if block is None else block).lower()
    bracketed, bare = _patterns(move, lone)
    moves = list(bracketed.finditer(answer))
    if block is not None or not moves:
        moves += bare.finditer(answer)
    if len({found.groups() for found in moves}) > 1:
        raise Invalid("a second move: give one")
    return moves[0] if moves else None


@lru_cache
def _patterns(move: str, lone: str) -> tuple[re.Pattern[str], ...]:
    return (
        re.compile(rf"\[\s*{move}\s*\]"),
        re.compile(rf"(?<![-+\u2212.\w]){lone}(?!\w|\.[0-9])"),  # neither of a negative number nor of a decimal one
    )
