"""Other processes: the same rows and scores in each, and no torch."""

from __future__ import annotations

import json

from grpo_sdk.check.probe import HEAVY, compared
from grpo_sdk.check.results import Result, failed, passed, shown
from grpo_sdk.check.subject import Subject


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
