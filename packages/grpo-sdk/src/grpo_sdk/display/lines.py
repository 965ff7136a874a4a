"""Lines of the progress report: their numbers, words and folding."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grpo_sdk.callbacks import ResolvedDefault, Sample
from grpo_sdk.display.text import quoted, visible

LABEL_WIDTH = 10
"""Columns before the text: the longest label and two spaces."""

GAP = "   "
"""Space between the segments of a line."""

STEP_GAP = "  "
"""Space between the segments of a step, which are many and stay on one line."""

MAX_TEXT_CHARS = 60
"""Longest prompt or completion shown in a sample; two fit on a line of a wide terminal."""


def number(value: float | None, form: str = ".2f") -> str:
    """Format a number; None is a dash."""
    return "-" if value is None else format(value, form)


def interval(low: float | None, high: float | None) -> str:
    """Format a confidence interval: `[0.42, 0.50]`."""
    return "-" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"


def duration(seconds: float) -> str:
    """Format a duration: `1:12`, `2:03:45`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rate(tokens_per_s: float) -> str:
    """Format tokens per second: `18 k tok/s`."""
    return f"{tokens_per_s / 1000:.0f} k tok/s" if tokens_per_s >= 10_000 else f"{tokens_per_s:.0f} tok/s"


def fold(label: str, segments: Iterable[str], width: int | None, gap: str = GAP) -> str:
    """Format a labelled line; with a width, fold it between segments and indent the following lines.

    Args:
        label: First word of the line.
        segments: Parts that are kept together if they fit.
        width: Columns, or None for a single line of any length.
        gap: Space between the segments.
    """
    head = f"{label:<{LABEL_WIDTH}}"
    kept = [segment for segment in segments if segment]
    if width is None:
        return (head + gap.join(kept)).rstrip()
    room = max(20, width - LABEL_WIDTH)
    lines = [""]
    for segment in kept:
        joined = f"{lines[-1]}{gap}{segment}" if lines[-1] else segment
        if len(joined) <= room:
            lines[-1] = joined
            continue
        # Words are never broken, so that paths and commands can be copied.
        pieces = textwrap.wrap(segment, room, break_long_words=False, break_on_hyphens=False)
        lines = [*(lines if lines[-1] else []), *pieces]
    return (head + f"\n{' ' * LABEL_WIDTH}".join(lines)).rstrip()


def crop(label: str, segments: Sequence[str], width: int, gap: str = GAP) -> str:
    """Format a labelled line within a width by dropping segments before the last one; the first three are kept."""
    kept = [segment for segment in segments if segment]
    while len(line := fold(label, kept, None, gap)) > width and len(kept) > 4:
        del kept[-2]
    return line


def header(tasks: Mapping[str, tuple[int, int]], choices: Sequence[ResolvedDefault]) -> list[str]:
    """Return the segments of a run's header: tasks, model, device."""
    values = {choice.what: choice.value for choice in choices}
    segments = [f"task {visible(name)} ({train} train / {held} held-out rows)" for name, (train, held) in tasks.items()]
    if "model" in values:
        segments.append(f"model {visible(values['model'])}")
    if "device" in values:
        segments.append(f"device {', '.join(values[what] for what in ('device', 'precision') if what in values)}")
    return segments


def reasons(choices: Sequence[ResolvedDefault]) -> list[str]:
    """Return a line for each value that was chosen for the user and is no ordinary default, with its reason."""
    return [
        visible(
            f"{choice.what} {choice.why if choice.why.startswith(choice.value) else f'{choice.value}: {choice.why}'}"
        )
        for choice in choices
        if choice.why and not choice.is_ordinary
    ]


def evaluation(result: Mapping[str, Any], task: str = "", control: str = "base") -> list[str]:
    """Return the segments of an evaluation, with the difference from the control on the same rows, if there is one."""
    solved = f"solved {number(result.get('solved_rate'))} {interval(result.get('ci_low'), result.get('ci_high'))}"
    segments = [task, solved]
    if result.get("delta") is not None:
        over = _if_known(interval(result.get("delta_ci_low"), result.get("delta_ci_high")))
        rows = result.get("delta_n", result.get("n", "-"))
        segments.append(f"{result['delta']:+.2f} over {control}{over} on the same {rows} rows")
    reward = f"mean reward {number(result.get('mean_reward'))}"
    if result.get("reward_delta") is not None:
        over = _if_known(interval(result.get("reward_delta_ci_low"), result.get("reward_delta_ci_high")))
        reward += f", {result['reward_delta']:+.2f}{over}"
    segments.append(reward)
    if result.get("abstained"):
        segments.append(f"{result['abstained']} rows not scored")
    return segments


def warned(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the segments of a run's warnings: the name of each, with the steps at which it was found."""
    steps: dict[str, list[str]] = {}
    for each in findings:
        steps.setdefault(each["name"], []).append(str(each["step"] or "start"))
    return [
        f"{name} (step {', '.join(dict.fromkeys(at))})".replace("step start", "start") for name, at in steps.items()
    ]


def _if_known(interval: str) -> str:
    """Return an interval to append to a number; empty if it is a dash."""
    return "" if interval == "-" else f" {interval}"


def step(metrics: Mapping[str, float], tasks: Sequence[str], eta: str) -> list[str]:
    """Return the segments of a step, the remaining time last."""
    segments = [f"reward {number(metrics.get('reward'))}", f"solved {number(metrics.get('solved_rate'))}"]
    if metrics.get("abstained"):
        segments.append(f"not scored {metrics['abstained']:.0f}")
    segments.append(f"zero-std {number(metrics.get('frac_reward_zero_std'), '.0%')}")
    segments.append(f"length {number(metrics.get('completions/mean_length'), '.1f')}")
    if metrics.get("tokens_per_s") is not None:
        segments.append(rate(metrics["tokens_per_s"]))
    if len(tasks) > 1:
        solved = {name: metrics.get(f"task/{name}/solved_rate") for name in tasks}
        segments += [f"{visible(name)} {number(value)}" for name, value in solved.items() if value is not None]
    return [*segments, eta]


def samples(shown: Sequence[Sample]) -> list[str]:
    """Return a segment for each completion of a prompt, with its score."""
    segments = []
    for index, sample in enumerate(shown):
        score = sample.score
        value = "not scored" if score.value is None else f"{score.value:.2f}"
        why = f" ({visible(score.why[:MAX_TEXT_CHARS])})" if score.why else ""
        prompt = f"{quoted(sample.prompt, MAX_TEXT_CHARS)} " if index == 0 else ""
        segments.append(f"{prompt}→ {quoted(sample.text, MAX_TEXT_CHARS)}  {value}{why}")
    return segments
