"""Rollouts of several turns under check: what the task says to a text that is written again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grpo_sdk.check.results import Result, failed, shown
from grpo_sdk.check.subject import CHUNK, Scored, Subject
from grpo_sdk.task.turns import TurnState

MAX_TURNS = 8
"""Turns in which a text is written."""

MAX_CHARS = 1 << 17
"""Bound on the text of all turns: as JSON a character takes up to 6, and a request has at most `MAX_TEXT_CHARS`."""


def repeated_turns(subject: Subject, completions: Sequence[Scored]) -> Iterator[tuple[Scored, TurnState]]:
    """The state after every turn of rollouts that write one text in each, until the rollout is over or fails.

    Args:
        subject: The task.
        completions: Texts that rollouts write, with their rows.
    """
    for start in range(0, len(completions), CHUNK):
        going = list(completions[start : start + CHUNK])
        for turn in range(1, min(subject.task.max_turns, MAX_TURNS + 1)):
            going = [each for each in going if turn * len(each.text) <= MAX_CHARS]
            futures = [subject.scorer.next_turn([each.text] * turn, each.row) for each in going]
            states = [(each, future.result()) for each, future in zip(going, futures, strict=True)]
            yield from states
            going = [each for each, state in states if state.prompt is not None and not state.fault]


def failed_turn(completion: Scored, state: TurnState) -> Result:
    """The result of a check where the task's code fails in a turn."""
    turn = f" in turn {len(state.moves)}" if len(state.moves) > 1 else ""
    return failed(
        f"respond() fails on {completion.kind}{turn} ({state.fault})",
        f"row {completion.row.id!r}: {shown(completion.text)}: {state.why}",
        "respond() must answer any text: it is called before the completion is scored.",
    )
