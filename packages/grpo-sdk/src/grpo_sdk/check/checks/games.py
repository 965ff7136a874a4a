"""A game's perfect player."""

from __future__ import annotations

import json

from grpo_sdk.check.limits import TOLERANCE
from grpo_sdk.check.results import Result, failed, not_applicable, passed
from grpo_sdk.check.subject import Subject
from grpo_sdk.errors import UserError
from grpo_sdk.task.game import PERFECT

POSITIONS = 200_000
"""Positions that are visited in all, equally many from each start and in each seat."""

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
    outcome = subject.ask("starts", SEARCH_S, rows=[row.model_dump_json() for row in subject.rows])
    if outcome.status != "ok":
        return failed("a game does not start", outcome.why, "initial() must give the first position of any seed.")
    starts = [subject.rows[index] for index in json.loads(outcome.value)]
    positions, proven = 0, list[bool]()
    for done, row in enumerate(starts):
        subject.progress(f"{task.name}, perfect play", done, len(starts))
        outcome = subject.ask("perfect", SEARCH_S, row=row.model_dump_json(), nodes=POSITIONS // len(starts))
        if outcome.status != "ok":
            return failed("perfect play fails", f"row {row.id!r}: {outcome.why}", "best() must give a legal action.")
        search = json.loads(outcome.value)
        positions, proven = positions + search["positions"], [*proven, *search["complete"].values()]
        for role, value in search["value"].items():
            if search["worst"][role] < value - TOLERANCE:
                return failed(
                    f"perfect play as {role} gets {search['worst'][role]:g}, less than its value {value:g}",
                    f"row {row.id!r}: {', '.join(search['line'][role])}",
                    "Correct best(): some reply beats it.",
                )
    found = f"{len(starts)} {'start' if len(starts) == 1 else 'starts'}, {positions:,} positions"
    if all(proven):
        return passed(f"{found}: every reply in each seat")
    return passed(f"{found}: every reply in {sum(proven)} of {len(proven)} seats, in the others a part")
