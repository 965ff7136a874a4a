"""The group rewards of the completions of one prompt, and the scores with them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.composition import RewardSpec
from grpo_sdk.task.grading import Returned, fault_of, raw_of
from grpo_sdk.task.judging import JudgedReward, JudgeQuestion, question_of
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Fault, Score, one_line


@dataclass(frozen=True, slots=True)
class GroupParts:
    """What the group rewards of a task give to the completions of a prompt.

    Attributes:
        parts: Name of the reward -> raw value of each completion, None where it abstains.
        seconds: Name of the reward -> duration of its call, divided by the number of completions.
        fault: Why there are no parts; empty where there are.
        why: The reason in one line.
        questions: Name of a reward that a judge decides -> what it is asked; its values are added by the scorer.
        reasons: Name of such a reward -> why it has no value for a completion; empty where it has one.
        faults: Name of such a reward -> the fault of each completion that has no value.
    """

    parts: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    fault: Fault = ""
    why: str = ""
    questions: Mapping[str, JudgeQuestion] = field(default_factory=dict)
    reasons: Mapping[str, Sequence[str]] = field(default_factory=dict)
    faults: Mapping[str, Sequence[Fault]] = field(default_factory=dict)


def group_parts(task: BoundTask, texts: Sequence[str], row: Row) -> GroupParts:
    """Call the group rewards; a crash of the task's code is the `fault` of the result.

    Args:
        task: The task.
        texts: Two or more completions that the validator takes.
        row: Row of all of them.
    """
    where = "validate()"
    parts: dict[str, Sequence[float | None]] = {}
    seconds: dict[str, float] = {}
    try:
        answers = [task.grader.validated(text, row) for text in texts]
        available = {"answers": answers, "texts": list(texts), "row": row, "config": task.config}
        questions: dict[str, JudgeQuestion] = {}
        for spec in task.task.group_specs():
            where = f"group reward {spec.name}()"
            if isinstance(spec.function, JudgedReward):
                of = {"row": row, "config": task.config}
                questions[spec.name] = question_of(spec.function, task.task.prompt, texts, answers, of)
                continue
            started = time.perf_counter()
            raw = spec.function(**{name: available[name] for name in spec.arguments})
            seconds[spec.name] = (time.perf_counter() - started) / len(texts)
            parts[spec.name] = _checked(spec, raw, len(texts))
    except (Exception, SystemExit) as error:  # the task's code met untrusted text: its crash is data, not ours
        fault = fault_of(where, error)
        return GroupParts(fault=fault.fault, why=fault.why)
    return GroupParts(parts, seconds, questions=questions)


def _checked(spec: RewardSpec, raw: Sequence[float | None], count: int) -> list[float | None]:
    if not isinstance(raw, Sequence) or isinstance(raw, str | bytes) or len(raw) != count:
        size = f" of {len(raw)}" if isinstance(raw, Sequence) else ""
        raise Returned(f"a {type(raw).__name__}{size}; a group reward is a list of {count} numbers, one per answer")
    return [None if value is None else raw_of(spec, value, "group_reward") for value in raw]


def with_group_parts(task: BoundTask, scores: Sequence[Score], group: GroupParts) -> list[Score]:
    """Add the group rewards of a prompt to the scores of its completions.

    Args:
        task: The task.
        scores: Score of each completion of the prompt; the valid ones are those that `group` is about, in order.
        group: The group rewards.
    """
    specs = task.task.group_specs()
    completed: list[Score] = []
    position = 0
    for score in scores:
        if not is_compared(score):
            absent = {} if score.abstained else {spec.name: 0.0 for spec in specs}
            completed.append(replace(score, parts={**score.parts, **absent}))
        elif group.fault:
            completed.append(Score(None, why=group.why, fault=group.fault, seconds=score.seconds))
        else:
            raw = {spec.name: group.parts[spec.name][position] if group.parts else 0.0 for spec in specs}
            missing = [
                (group.reasons[name][position], group.faults[name][position])
                for name in group.reasons
                if group.reasons[name][position]
            ]
            timed = replace(score, seconds={**score.seconds, **group.seconds})
            completed.append(_with_parts(timed, specs, raw, missing))
            position += 1
    return completed


def is_compared(score: Score) -> bool:
    """Whether a completion takes part in the group rewards: it was scored, and the validator takes it."""
    return score.valid and not score.abstained


def _with_parts(
    score: Score,
    specs: Sequence[RewardSpec],
    raw: Mapping[str, float | None],
    no_verdicts: Sequence[tuple[str, Fault]],
) -> Score:
    for why, fault in no_verdicts:
        return Score(None, why=one_line(why), fault=fault, seconds=score.seconds)
    missing = next((name for name, value in raw.items() if value is None), None)
    if missing is not None:
        why = one_line(f"group reward {missing}() gave None: it cannot be scored")
        return Score(None, why=why, fault="reward", seconds=score.seconds)
    parts = {name: value for name, value in raw.items() if value is not None}
    assert score.value is not None
    value = score.value + math.fsum(spec.weight * parts[spec.name] for spec in specs)
    return replace(score, value=value, parts={**score.parts, **parts})
