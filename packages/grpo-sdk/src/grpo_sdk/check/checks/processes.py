"""What scoring does to a process: hostile text, time, what differs between processes, and a game's perfect player."""

from __future__ import annotations

import json
import math

from grpo_sdk.check.checks.scores import RAISE_INVALID, failed_turn
from grpo_sdk.check.limits import TOLERANCE
from grpo_sdk.check.results import Result, failed, not_applicable, passed, shown
from grpo_sdk.check.subject import FEW, Subject
from grpo_sdk.check.worker import HEAVY, compared
from grpo_sdk.errors import UserError
from grpo_sdk.scoring.abstention import is_out_of_time
from grpo_sdk.task.game import PERFECT
from grpo_sdk.task.score import Score
from grpo_sdk.task.tools.calls import read_tool_turns

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
    if not subject.task.has_turns or subject.task.task.game is not None or subject.task.task.has_tools:
        return None  # text without calls ends an episode with tools, or is answered without code of the task
    turns = subject.repeated_turns(subject.hostile)
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
        calls = [sum(len(turn.calls) for turn in read_tool_turns(each.text)[0]) for each in few]
        limits = [SHARE * subject.timeout_s * (1 + count) for count in calls]  # a call has a limit of its own
        slowest, limit = max(zip(times["all"], limits, strict=True), key=lambda pair: pair[0] / pair[1])
        if slowest <= limit:
            break  # measured again otherwise: a busy machine is no fault of the task
    measured = {}
    for name, seconds in times.items():
        measured[f"{name}_p50_ms"] = 1000 * _quantile(seconds, 0.5)
        measured[f"{name}_p99_ms"] = 1000 * _quantile(seconds, 0.99)
    parts = {name: _quantile(seconds, 0.99) for name, seconds in times.items() if name != "all"}
    longest = max(parts, key=lambda name: parts[name])
    if slowest > limit:
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


def determinism(subject: Subject) -> Result:
    """Rows, prompts and scores are the same in processes with different hash seeds."""
    if (problem := _probe_problem(subject)) is not None:
        return problem
    first, second = subject.probes
    for name, advice in (
        ("rows", "Draw rows from config.seed, and sort what comes out of a set before it is used."),
        ("prompts", "Sort what comes out of a set before it is written."),
    ):
        if len(first[name]) != len(second[name]):
            return failed(f"two processes have {len(first[name])} and {len(second[name])} {name}", "", advice)
        for row, one, other in zip(subject.loaded, first[name], second[name], strict=False):
            if one != other:
                return failed(f"{name} differ between two processes", f"the first is that of row {row.id!r}", advice)
    # As JSON, in which a worker answers too.
    recorded = [json.loads(json.dumps(compared(each.score))) for each in subject.probed]
    for each, *scores in zip(subject.probed, recorded, first["scores"], second["scores"], strict=True):
        if scores[0] != scores[1] or scores[0] != scores[2]:
            different = next(score for score in scores[1:] if score != scores[0])
            return failed(
                f"{each.kind} earns {scores[0][0]} in one process, {different[0]} in another",
                f"row {each.row.id!r}: {shown(each.text)}: {scores[0]} and {different}",
                "A score must follow from the text and the row alone: not from a clock, chance or a set's order.",
            )
    for each, once, again in zip(subject.probed, first["scores"], first["again"], strict=True):
        if once != again:
            return failed(
                f"{each.kind} earns {once[0]}, and {again[0]} after other completions were scored",
                f"row {each.row.id!r}: {shown(each.text)}: {once} and {again}",
                "A score must follow from the text and the row alone: keep no counts or other state between calls.",
            )
    return passed(f"{len(first['rows'])} rows and {len(recorded)} scores are the same in other processes")


def imports(subject: Subject) -> Result:
    """Loading and scoring import no torch."""
    if (problem := _probe_problem(subject)) is not None:
        return problem
    heavy = sorted({name for probe in subject.probes for name in probe["heavy"]})
    if heavy:
        return failed(
            f"the task imports {', '.join(heavy)}",
            "after loading, prompts and scores in a process of its own",
            "Import it inside the function that needs it: every worker that scores would load it.",
        )
    return passed(f"no {', '.join(HEAVY[:3])} after loading and scoring")


def _probe_problem(subject: Subject) -> Result | None:
    """Why a process of its own could not load and score the task; None where both could."""
    error = next((probe["error"] for probe in subject.probes if "error" in probe), None)
    if error is None:
        return None
    return failed(
        "another process cannot load and score the task",
        error,
        "A task must be importable, and its rows loadable, in every process that scores.",
    )


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
