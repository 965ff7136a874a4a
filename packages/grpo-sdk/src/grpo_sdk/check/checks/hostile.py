"""Hostile text, and the time that scoring takes."""

from __future__ import annotations

import json
import math

from grpo_sdk.check.checks.scores import RAISE_INVALID
from grpo_sdk.check.results import Result, failed, passed, shown
from grpo_sdk.check.subject import FEW, Subject
from grpo_sdk.check.turns import failed_turn, repeated_turns
from grpo_sdk.scoring.abstention import is_out_of_time
from grpo_sdk.task.score import Score

SPARE_S = 20.0
"""Time that measuring may take beyond that of the completions: a busy machine."""

FASTER = "Make it faster, or raise timeout_s: a busier machine would not score this."

LIGHTER = "Bound the length of what is parsed, and raise Invalid; no pattern that backtracks, no recursion."

SHARE = 0.5
"""Largest share of the time limit that an ordinary completion may take: other machines are slower and busier."""


def hostile(subject: Subject) -> Result:
    """Text that breaks parsers gets a score in time."""
    for each in subject.hostile:
        if each.score.value is None:
            return failed(
                f"{each.kind} is not scored ({each.score.fault})",
                f"row {each.row.id!r}: {shown(each.text)}: {each.score.why}",
                RAISE_INVALID if _is_mistake(each.score) else LIGHTER,
            )
        if is_out_of_time(each.score):
            return failed(
                f"{each.kind} takes longer than {subject.timeout_s:g} s",
                f"row {each.row.id!r}: {shown(each.text)}",
                "Bound the length of what is parsed: a policy that learns to write this slows training down.",
            )
    if (problem := _turns_problem(subject)) is not None:
        return problem
    return passed(f"{len(subject.hostile)} texts are scored in time")


def _is_mistake(score: Score) -> bool:
    """Whether the task's code failed, not because there was too much text."""
    return score.fault == "reward" and not any(name in score.why for name in ("RecursionError", "MemoryError"))


def _turns_problem(subject: Subject) -> Result | None:
    """Whether a turn after hostile completions fails."""
    if not subject.task.has_turns or subject.task.task.game is not None:
        return None
    turns = repeated_turns(subject, subject.hostile)
    return next((failed_turn(each, state) for each, state in turns if state.fault), None)


def latency(subject: Subject) -> Result:
    """Scoring an ordinary completion takes at most half of the time limit."""
    few = [*subject.golds, *subject.others[:FEW], *subject.junk[:FEW]]
    late = next((each for each in few if is_out_of_time(each.score)), None)
    if late is not None:
        return failed(
            f"{late.kind} takes longer than {subject.timeout_s:g} s", f"row {late.row.id!r}: {shown(late.text)}", FASTER
        )
    request = {
        "texts": [each.text for each in few],
        "rows": [each.row.model_dump_json() for each in few],
        "predictions": subject.predictions(),
    }
    times: dict[str, list[float]] = {}
    for attempt in range(2):
        outcome = subject.ask("latency", len(few) * subject.timeout_s + SPARE_S, **request, attempt=attempt)
        if outcome.status != "ok":
            return failed("the time of scoring cannot be measured", outcome.why, "See the other checks.")
        times = json.loads(outcome.value)
        slowest = max(times["all"])
        if slowest <= SHARE * subject.timeout_s:
            break  # measured again otherwise: a busy machine is no fault of the task
    measured = {}
    for name, seconds in times.items():
        measured[f"{name}_p50_ms"] = 1000 * _quantile(seconds, 0.5)
        measured[f"{name}_p99_ms"] = 1000 * _quantile(seconds, 0.99)
    parts = {name: _quantile(seconds, 0.99) for name, seconds in times.items() if name != "all"}
    longest = max(parts, key=lambda name: parts[name])
    if slowest > SHARE * subject.timeout_s:
        each = few[times["all"].index(slowest)]
        return failed(
            f"{each.kind} takes {slowest:.2g} s of the limit of {subject.timeout_s:g} s; longest is {longest}",
            f"row {each.row.id!r}: {shown(each.text)}",
            FASTER,
            **measured,
        )
    p50, p99 = measured["all_p50_ms"], measured["all_p99_ms"]
    return passed(f"p50 {p50:.2g} ms, p99 {p99:.2g} ms; longest: {longest}, {1000 * parts[longest]:.2g} ms", **measured)


def _quantile(values: list[float], share: float) -> float:
    """The smallest value that at least a share of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
