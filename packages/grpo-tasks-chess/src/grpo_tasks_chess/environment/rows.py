"""Rows of `chess.environment`: moves and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_sdk import Invalid
from grpo_sdk.data import stable_id
from grpo_tasks_chess import formats
from grpo_tasks_chess.data.output import environment_record
from grpo_tasks_chess.records import PositionRow, flag, is_text, number, word, words
from grpo_tasks_chess.rules import play, read_fen


class EnvironmentRow(PositionRow):
    """A move in a position, `fen`, and its outcome.

    Attributes:
        move: Move in UCI.
        history: Last moves of the game, oldest first, at most ten; the last one is `move`.
        next_fen: Position after the move.
        reward: Reward of the player who moved: 1.0 mate, 0.5 draw, 0.001 the game continues, −1.0 illegal.
        terminated: Whether the game is over.
        truncated: Whether the move was illegal.
    """

    move: str
    history: tuple[str, ...]
    next_fen: str
    reward: float
    terminated: bool
    truncated: bool

    @property
    def transition(self) -> formats.Transition:
        """The contents of the prompt."""
        return formats.Transition(self.fen, self.move, self.history)

    @property
    def outcome(self) -> formats.EnvironmentAnswer:
        """The contents of the right completion."""
        return formats.EnvironmentAnswer(self.next_fen, self.reward, self.terminated, self.truncated)


def row_of(transition: formats.Transition, outcome: formats.EnvironmentAnswer) -> EnvironmentRow:
    """Make the row of a move and its outcome."""
    return EnvironmentRow(
        id=stable_id(formats.write_environment_prompt(transition)),
        gold=formats.write_environment_completion(outcome),
        **environment_record(transition, outcome),
    )


def make_row(record: Mapping[str, Any]) -> EnvironmentRow:
    """Make a row from `{fen, move, history, next_fen, reward, terminated, truncated}`, or from `{text}`, a whole line.

    If `next_fen` is missing, the outcome is computed by the rules; otherwise it is taken unchanged.

    Raises:
        ValueError: a field is missing or wrong; says which.
    """
    if is_text(record):
        transition, outcome = _line(record)
    else:
        move = word(record, "move")
        transition = formats.Transition(word(record, "fen"), move, words(record, "history") or (move,))
        if problem := formats.transition_problem(transition):
            raise ValueError(problem)
        if record.get("next_fen") is None:
            return row_of(transition, play(transition.fen, transition.move, transition.history))
        outcome = _labels(record)
    for fen in (transition.fen, outcome.fen):
        read_fen(fen)
    return row_of(transition, outcome)


def _line(record: Mapping[str, Any]) -> tuple[formats.Transition, formats.EnvironmentAnswer]:
    try:
        return formats.read_environment_line(word(record, "text"))
    except Invalid as problem:
        raise ValueError(f"text: {problem}") from None


def _labels(record: Mapping[str, Any]) -> formats.EnvironmentAnswer:
    return formats.EnvironmentAnswer(
        word(record, "next_fen"),
        number(record.get("reward"), "reward"),
        flag(record.get("terminated"), "terminated"),
        flag(record.get("truncated"), "truncated"),
    )
