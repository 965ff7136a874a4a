"""A run that goes on, as text: status, curves, events and completions, for a terminal of any width."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from grpo_core.display.plots import MARK, WHISKER, Mark, Point, curve
from grpo_core.tracking.events import read_branch
from grpo_core.tracking.live import Evaluated
from grpo_core.tracking.runs import is_number, series
from grpo_sdk.display import lines
from grpo_sdk.display.explanation import block
from grpo_sdk.display.text import quoted, visible

if TYPE_CHECKING:
    from pathlib import Path

    from grpo_core.tracking.live import Group, LiveRun
    from grpo_sdk.records.rollouts import RolloutRecord

CURVES: Mapping[str, str] = {
    "reward": "reward",
    "solved_rate": "solved",
    "completions/mean_length": "length (tokens)",
    "kl": "KL (nats per token)",
    "entropy": "entropy (nats per token)",
}
"""Metric -> title of its curve."""

CURVE_WIDTH, CURVE_HEIGHT = 36, 7
"""Smallest columns of a curve, and its usual lines."""

MAX_CURVE_WIDTH, MAX_CURVE_HEIGHT = 100, 16

MIN_CLOSING_STEPS, MAX_CLOSING_WIDTH, CLOSING_HEIGHT = 2, 72, 10
"""Of the curve at the end of a run."""

STATE_STYLES = {"running": "bold green", "finished": "bold", "interrupted": "bold yellow"}
"""State of a run -> style; others are errors."""

MAX_EVENT_CHARS = 2000
"""Longest message of an event."""


def status_text(run: LiveRun, width: int) -> Text:
    """State, progress, newest metrics and problems, folded to a width."""
    state, style = ("folder is missing", "bold red") if run.is_gone else (run.state, STATE_STYLES.get(run.state))
    step = f"step {run.step}/{run.planned}" if run.planned else f"step {run.step}"
    left = run.seconds_left(time.time())
    has_begun = run.step or run.events or run.is_gone
    segments = [state, step if has_begun else "no step yet", "" if left is None else f"ETA {lines.duration(left)}"]
    text = Text(_folded([visible(run.path.name), *segments], width))
    text.highlight_words([state], style or "bold red")
    numbers = run.metrics
    facts = [f"{name} {numbers[name]:.{digits}f}" for name, digits in (("reward", 2), ("kl", 3)) if name in numbers]
    if "solved_rate" in numbers:
        facts.insert(1, f"solved {numbers['solved_rate']:.2f}")
    if "tokens_per_s" in numbers:
        facts.append(lines.rate(numbers["tokens_per_s"]))
    if facts:
        text.append(f"\n{_folded(facts, width)}")
    troubles = [
        f"{run.abstained} completions not scored" if run.abstained else "",
        f"{len(run.warnings)} warning{'s' if len(run.warnings) > 1 else ''}" if run.warnings else "",
        visible(run.problem[:MAX_EVENT_CHARS]),
    ]
    if any(troubles):
        text.append(f"\n{_folded(troubles, width)}", "yellow")
    return text


def _folded(segments: Sequence[str], width: int) -> str:
    """Segments on as few lines as they fit."""
    joined = [""]
    for segment in filter(None, segments):
        longer = f"{joined[-1]}{lines.STEP_GAP}{segment}" if joined[-1] else segment
        joined = [*joined[:-1], longer] if len(longer) <= width or not joined[-1] else [*joined, segment]
    return "\n".join(joined)


def curves_text(run: LiveRun, width: int, height: int) -> Text:
    """Curves of the metrics and of the held-out evaluations with their 95% intervals, beside and below one another."""
    pictures: list[tuple[str, list[Point], Sequence[Mark]]] = []
    for name, title in CURVES.items():
        logged = "entropy/sampled" if name == "entropy" and name not in run.series else name
        if logged in run.series:
            pictures.append((title, run.series[logged].points, []))
    for task, evaluations in run.evaluations.items():
        pictures.append((visible(f"held-out {task}"), [(each.step, each.value) for each in evaluations], evaluations))
    if not pictures:
        return Text("The run has not logged a step yet. Curves appear after the first.")
    columns = max(1, min(len(pictures), width // (CURVE_WIDTH + len(lines.GAP))))
    one = max(1, min(MAX_CURVE_WIDTH, width // columns - len(lines.GAP)))
    rows = -(-len(pictures) // columns)
    tall = max(CURVE_HEIGHT, min(MAX_CURVE_HEIGHT, height // rows - 2))
    drawn = [curve_lines(title, points, marks, one, tall) for title, points, marks in pictures]
    text = Text("\n\n".join(_beside(drawn[i : i + columns], one) for i in range(0, len(drawn), columns)), no_wrap=True)
    return colour_curve(text)


def curve_lines(title: str, points: Sequence[Point], marks: Sequence[Mark], width: int, height: int) -> list[str]:
    """A curve below its title and newest value."""
    newest = f"  {points[-1][1]:.3g}" if points else ""
    if marks:
        ends = lines.interval(*marks[-1][2:])
        newest += f" {ends}" if "nan" not in ends else ""
    room = width - len(newest)
    shown = title if len(title) <= room else f"{title[: max(0, room - 1)]}…"
    return [f"{shown}{newest}", *curve(points, width, height - 1, marks)]


def closing_curve(run_dir: Path, width: int) -> Text | None:
    """The learning curve of a run that has ended; None for one of fewer than two steps.

    With a single task, the held-out evaluations are marked on the curve of the training.

    Raises:
        DataError: a log of the run is corrupt.
    """
    points = [
        (step, value) for step, value in series(run_dir, ["solved_rate"]).get("solved_rate", []) if value is not None
    ]
    if len(points) < MIN_CLOSING_STEPS:
        return None
    results = {
        (event.get("task"), event.get("step")): event["result"]
        for event in read_branch(run_dir)
        if event.get("kind") == "evaluation"
    }
    marks = [
        Evaluated.of(step, result)
        for (_, step), result in results.items()
        if isinstance(step, int) and step <= points[-1][0] and len({task for task, _ in results}) == 1
    ]
    title = "solved, by step" + (f"   {MARK} held-out" if marks else "")
    long = f"{title} with its 95% interval"
    title = long if marks and len(long) <= width else title
    drawn = curve(points, min(width, MAX_CLOSING_WIDTH), CLOSING_HEIGHT, marks)
    return colour_curve(Text("\n".join([title, *drawn]), no_wrap=True, overflow="crop"))


def colour_curve(text: Text) -> Text:
    """Colour the dots and marks of curves; without colours they are told apart by their form."""
    text.highlight_regex(r"[\u2800-\u28ff]+", "cyan")
    text.highlight_regex(f"[{MARK}{WHISKER}]+", "magenta")
    return text


def _beside(pictures: Sequence[Sequence[str]], width: int) -> str:
    height = max(map(len, pictures))
    padded = [[*picture, *[""] * (height - len(picture))] for picture in pictures]
    rows = (lines.GAP.join(each.ljust(width) for each in row).rstrip() for row in zip(*padded, strict=True))
    return "\n".join(rows)


def events_text(run: LiveRun) -> Text:
    """Starts, evaluations, warnings and the end of a run, the newest first."""
    text = Text()
    for event in reversed(run.events):
        what, style = _event(event)
        head = f"{_clock(event.get('time'))}  step {event.get('step', '-')}  "
        text.append(f"{'' if not text else chr(10)}{visible(head)}", "bright_black")
        text.append(visible(what[:MAX_EVENT_CHARS]), style)
    return text or Text("Nothing has happened yet.")


def _event(event: Mapping[str, Any]) -> tuple[str, str]:
    match event.get("kind"):
        case "warning":
            return f"warning: {event.get('message')}", "yellow"
        case "stop":
            return str(event.get("message")), "bold"
        case "failed":
            return f"failed: {event.get('error')}", "bold red"
        case "end":
            return ("stopped and saved" if event.get("interrupted") else "finished"), "bold"
        case "evaluation":
            result = {name: value for name, value in event["result"].items() if is_number(value)}
            segments = lines.evaluation(result, str(event.get("task")), "initial")
            return f"evaluation ({event.get('phase')}): {lines.STEP_GAP.join(segments)}", "magenta"
        case kind:
            return str(kind), "bold"


def _clock(moment: object) -> str:
    """Format the time of an event for this machine's clock."""
    try:
        return datetime.fromisoformat(str(moment)).astimezone().strftime("%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return "-"


def group_line(group: Group, width: int) -> Text:
    """A group on one line: step, solved completions, mean score, prompt."""
    values = [record.score.value for record in group.records if record.score.value is not None]
    solved = sum(record.score.solved for record in group.records)
    mean = lines.number(sum(values) / len(values) if values else None)
    head = f"{group.step:>4}  {solved}/{len(group.records)} solved  {mean:>5}  "
    style = "green" if solved == len(group.records) else "red" if not solved else ""
    text = Text(head, style=style, no_wrap=True, overflow="ellipsis")
    return text.append(quoted(group.records[0].prompt_text, max(10, width - len(head) - 2)), "default")


def group_text(group: Group) -> Text:
    """A group in full: prompt, and each completion with its score and the parts of it."""
    first = group.records[0]
    text = Text(visible(f"step {group.step}   {first.task}   row {first.row_id}   group {group.number}"), style="bold")
    text.append("\nprompt  ", "cyan not bold").append(block(first.prompt_text).plain, "default not bold")
    for record in sorted(group.records, key=lambda record: (record.score.value is None, -(record.score.value or 0))):
        text.append("\n\n").append_text(_verdict(record)).append("\n").append(block(record.text).plain, "not bold")
    return text


def _verdict(record: RolloutRecord) -> Text:
    score = record.score
    if score.value is None:
        text = Text(f"NOT SCORED ({visible(score.fault)})", style="bold yellow")
    else:
        word, style = ("solved", "bold green") if score.solved else ("NOT SOLVED", "bold red")
        text = Text(f"{score.value:.4g}  {word}", style=style)
    parts = "  ".join(f"{visible(name)} {value:.4g}" for name, value in score.parts.items())
    why = f"  {visible(score.why[:MAX_EVENT_CHARS])}" if score.why else ""
    cut = ", truncated" if record.finish_reason == "length" else ""
    return text.append(f"  {parts}{why}  ({record.tokens} tokens{cut})", "not bold default")
