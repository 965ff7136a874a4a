"""The form in which every game asks for a move and finds it in the reply."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from grpo_sdk import GameConfig, Invalid, Message, Prompt
from grpo_sdk.rewards import answer_block, outside_thinking

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


def read_move(text: str, move: str) -> re.Match[str]:
    """Read the one move that an answer is, `[move]` or the move alone, in any case.

    The answer is all that the one `<answer>` holds; without one, all that stands after the thinking.

    Args:
        text: Text of a completion.
        move: Pattern of a move, in lower case; the caller refuses illegal moves.

    Raises:
        Invalid: the answer is anything else, or there is a second `<answer>`, even an empty one.
    """
    answer = outside_thinking(text)
    if _TAG.findall(answer.lower()) not in ([], [""], ["/"], ["", "/"]):
        raise Invalid("a second <answer>: give one move in one tag")
    block = answer_block(answer)
    answer = (answer if block is None else block).strip().removesuffix(".")
    inside = answer[1:-1].strip() if answer[:1] + answer[-1:] == "[]" else answer
    if (found := re.fullmatch(move, inside.lower())) is None:
        raise Invalid(f"{answer!r:.40} is not one move alone" if answer else "no move")
    return found


_TAG = re.compile(r"<(/?)answer\b")
