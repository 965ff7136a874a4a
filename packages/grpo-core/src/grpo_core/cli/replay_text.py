"""The result of `grpo replay` as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_sdk.display.lines import number
from grpo_sdk.display.text import print_out, quoted, table, visible

if TYPE_CHECKING:
    from rich.table import Table

    from grpo_core.evaluation.replay import Change, Replay, TaskReplay
    from grpo_sdk.task.score import Score

HEAD_CHARS = 60
"""Characters of a completion that are shown."""

MAX_STEPS = 20
"""Steps listed, evenly over the run; --json has all."""


def print_replay(result: Replay) -> None:
    """Print tasks, steps, advantages and the largest changes."""
    lines = [line for spec, task in result.tasks.items() for line in _task(spec, task)]
    print_out(*lines, "", _steps(result), *_left_out(result), "", *_advantages(result))
    if result.changes:
        print_out("", _changes(result.changes))


def _task(spec: str, task: TaskReplay) -> list[str]:
    same = "the same" if task.is_same else f"was {', '.join(sorted(task.identities_then)) or 'not logged'}"
    if task.changed_ingredients:
        same += f"; changed: {task.changed_ingredients}"
    means = task.means.as_json()
    lines = [
        visible(f"{spec}   scored by {task.spec}   identity {task.identity_now or 'unknown, no data here'} ({same})"),
        f"  {task.completions} completions   mean reward {number(means['mean_then'], '.4g')} → "
        f"{number(means['mean_now'], '.4g')}   {task.changed} changed   {task.flips.total()} verdicts flipped",
    ]
    lines += [f"  {count} × {then} → {now}" for (then, now), count in task.flips.most_common()]
    return [*lines, *(f"  {count} not scored again: {why}" for why, count in task.skipped.most_common())]


def _steps(result: Replay) -> Table:
    listing = table("step", "completions", "mean reward then", "now", "difference")
    for step, means in list(result.steps.items())[:: _stride(result)]:
        numbers = means.as_json()
        then, now = numbers["mean_then"], numbers["mean_now"]
        difference = None if then is None else now - then
        cells = (number(then, ".4f"), number(now, ".4f"), number(difference, "+.4f"))
        listing.add_row(str(step), str(means.n), *cells)
    return listing


def _stride(result: Replay) -> int:
    return max(1, -(-len(result.steps) // MAX_STEPS))


def _left_out(result: Replay) -> list[str]:
    stride = _stride(result)
    if stride == 1:
        return []
    return [f"of {len(result.steps)} steps, 1 in {stride} is listed; --json has all"]


def _advantages(result: Replay) -> list[str]:
    compared = result.advantages
    share = f"{compared.differ / compared.n:.1%}" if compared.n else "-"
    return [
        f"advantages with another sign: {share} ({compared.differ} of {compared.n}; {compared.reversed} reversed)",
        f"by baseline {result.baseline}; groups of equal rewards: {compared.equal_then:.0f} of {compared.groups} then, "
        f"{compared.equal_now:.0f} now",
    ]


def _changes(changes: list[Change]) -> Table:
    listing = table("step", "row", "then", "now", "completion", "why now")
    for change in changes:
        listing.add_row(
            str(change.step),
            visible(change.row),
            _brief(change.old),
            _brief(change.new),
            quoted(change.text, HEAD_CHARS),
            visible(change.new.why),
        )
    return listing


def _brief(score: Score) -> str:
    if score.value is None:
        return f"not scored ({score.fault})"
    return f"{score.value:.4g} {'solved' if score.solved else 'unsolved'}"
