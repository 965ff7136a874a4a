"""A game's perfect player."""

from __future__ import annotations

import json

from grpo_core.errors import UserError
from grpo_core.task.game import PERFECT
from grpo_core.testing.limits import TOLERANCE
from grpo_core.testing.results import Result, failed, not_applicable, passed
from grpo_core.testing.subject import Subject

POSITIONS = 20_000
"""Positions that are visited from one start, in all seats together."""

SEARCH_S = 60.0
"""Bound on the search from one start."""


def perfect(subject: Subject) -> Result:
    """The perfect player gets the value of the game, from every start in each seat, whatever the others reply.

    The value is what perfect players get from each other. With two players whose returns sum to zero this proves that
    play is perfect: neither seat can have more against a player who never gets less than that.
    """
    task = subject.task
    if task.task.game is None:
        return not_applicable("it is no game")
    if task.task.game.best is None:
        return not_applicable("the game has no perfect player")
    try:
        task.with_options(opponent=PERFECT).rows()
    except UserError as error:
        return not_applicable(str(error))
    positions, complete = 0, True
    for done, row in enumerate(subject.rows):
        subject.progress(f"{task.name}, perfect play", done, len(subject.rows))
        outcome = subject.ask("perfect", SEARCH_S, row=row.model_dump_json(), nodes=POSITIONS)
        if outcome.status != "ok":
            return failed("perfect play fails", f"row {row.id!r}: {outcome.why}", "best() must give a legal action.")
        search = json.loads(outcome.value)
        positions, complete = positions + search["positions"], complete and search["complete"]
        for role, value in search["value"].items():
            if search["worst"][role] < value - TOLERANCE:
                return failed(
                    f"perfect play as {role} gets {search['worst'][role]:g}, less than its value {value:g}",
                    f"row {row.id!r}: {', '.join(search['line'][role])}",
                    "Correct best(): some reply beats it.",
                )
    extent = "every reply" if complete else f"the replies of {positions:,} positions"
    return passed(f"{len(subject.rows)} starts, each seat, {extent}")
