from __future__ import annotations

import re
import shlex
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grpo_sdk.errors import AbstentionLimitError, UserError
from grpo_sdk.task.score import Score

if TYPE_CHECKING:
    from grpo_sdk.task.bound import BoundTask

MAX_REASONS = 64
"""Distinct reasons counted; a reason may quote a completion, so their number has no bound of its own."""

OTHER_REASONS = "(other reasons)"
_REASONS_SHOWN = 3
_MAX_HEAD_CHARS = 120
_PREFIX = re.compile(r"(?:task \S{1,200}[:,] )?(?:quarantined, as for the same input before: )?")
_OUT_OF_TIME = re.compile(r"task \S{1,200}: no answer within [0-9.e+-]{1,20} s")


@dataclass(frozen=True, slots=True)
class ScorerStats:
    """Counts of a scorer so far.

    Attributes:
        scored: Completions that got a value.
        abstained: Completions that got none, by fault.
        reasons: Completions that got none, by fault and the head of `why`.
        quarantined: Completions answered without running, because the same one timed out or crashed before.
        restarts: Workers that were replaced.
    """

    scored: int = 0
    abstained: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    quarantined: int = 0
    restarts: int = 0


class ScoreCounts:
    """Counts the scores of one process by fault and reason; may be used by several threads."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start from zero, in a forked child too, where a thread that does not exist may have held the lock."""
        self._lock = threading.Lock()
        self._scored = 0
        self._faults: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()

    def counted(self, score: Score) -> Score:
        """Count a score and return it."""
        with self._lock:
            if score.abstained:
                self._faults[score.fault] += 1
                count_reasons((score,), self._reasons)
            else:
                self._scored += 1
        return score

    @property
    def stats(self) -> ScorerStats:
        """The counts so far."""
        with self._lock:
            return ScorerStats(self._scored, dict(self._faults), dict(self._reasons))


def out_of_time_reason(task: str, seconds: float) -> str:
    """`Score.why` of a completion whose worker was killed at the limit, in a task that then calls it wrong."""
    return f"task {task}: no answer within {seconds:g} s"


def is_out_of_time(score: Score) -> bool:
    """Whether a completion's limit ran out, also in a task that then calls it wrong; `Invalid` never says so."""
    return score.fault == "timeout" or (not score.fault and _OUT_OF_TIME.match(score.why) is not None)


def reason_head(why: str) -> str:
    """The part of a reason that many completions share: up to the first colon."""
    parts = _PREFIX.sub("", why, count=1).split(": ")
    # A judge's reason names its model first, that of a task's server its address.
    head = ": ".join(parts[:3] if parts[0].startswith("judge ") or parts[0] == "remote" else parts[:1])
    return head[:_MAX_HEAD_CHARS] or "(no reason given)"


def count_reasons(scores: Iterable[Score], counts: Counter[str]) -> None:
    """Add `fault: head of why` of each to `counts`, which keeps at most `MAX_REASONS` and one for the others."""
    for score in scores:
        reason = f"{score.fault}: {reason_head(score.why)}"
        counts[reason if reason in counts or len(counts) < MAX_REASONS else OTHER_REASONS] += 1


def check_abstentions(scores: Sequence[Score], task_name: str, limit: float, task: BoundTask | None = None) -> None:
    """Refuse a batch of one task of which too many have no value.

    Args:
        scores: Scores of one task.
        task_name: Name of the task, for the message.
        limit: Largest allowed share, in [0, 1].
        task: The task, for the command that the message advises; by default the one that is called `task_name`.

    Raises:
        AbstentionLimitError: more than `limit` of the scores abstained; names the task and the commonest reasons.
        UserError: the limit is no share.
    """
    if not 0 <= limit <= 1:
        raise UserError(f"limit of abstentions {limit!r} must be a share between 0 and 1.")
    abstained = [score for score in scores if score.abstained]
    if len(abstained) <= limit * len(scores):
        return
    reasons: Counter[str] = Counter()
    count_reasons(abstained, reasons)
    commonest = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common(_REASONS_SHOWN))
    first = abstained[0].why
    if first and not first.endswith(reason_head(first)):
        commonest += f". The first: {first}"
    raise AbstentionLimitError(
        f"task {task_name!r}: {len(abstained)} of {len(scores)} completions could not be scored "
        f"({len(abstained) / len(scores):.0%}; the limit is {limit:.0%}). Reasons: {commonest}."
        f"{_advice(task_name, task, is_of_groups=all('group reward' in reason for reason in reasons))}"
    )


def _advice(task_name: str, task: BoundTask | None, *, is_of_groups: bool) -> str:
    """What shows why completions have no value; nothing where one completion is a whole rollout."""
    spec = shlex.quote(task_name if task is None else task.spec)
    if is_of_groups:
        return f" Call them with golds, which shows where they fail: grpo check {spec} -k group."
    if task is not None and task.has_turns:
        return ""
    by_hand = f"grpo explain {spec} --completion TEXT"
    if task is not None and task.is_object:
        by_hand = f"grpo_sdk.score({task.task.name}, completion, row).why"
    return f" Score one by hand, which shows where it failed: {by_hand}."
