"""The words and numbers of the progress report, and how its lines fold."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grpo_core.callbacks import ResolvedDefault, Sample
from grpo_core.cli.text import quoted, visible

LABEL_WIDTH = 10
"""Columns before the text: the longest label and two spaces."""

GAP = "   "
"""Between the segments of a line."""

STEP_GAP = "  "
"""Between those of a step's line, which has many and stays on one line."""

MAX_TEXT_CHARS = 60
"""Of a prompt or completion in a sample: two fit on a line of a wide terminal."""

_OBVIOUS = ("asked for",)
"""Reasons that need no line: the user gave the value."""


def number(value: float | None, form: str = ".2f") -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else format(value, form)


def interval(low: float | None, high: float | None) -> str:
    """A confidence interval: `[0.42, 0.50]`."""
    return "-" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"


def duration(seconds: float) -> str:
    """Minutes and seconds, or hours, minutes and seconds: `1:12`, `2:03:45`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rate(tokens_per_s: float) -> str:
    """Tokens per second: `18 k tok/s`."""
    return f"{tokens_per_s / 1000:.0f} k tok/s" if tokens_per_s >= 10_000 else f"{tokens_per_s:.0f} tok/s"


def fold(label: str, segments: Iterable[str], width: int | None, gap: str = GAP) -> str:
    """One labelled line; with a width, folded between segments and indented under the first.

    Args:
        label: Its first word.
        segments: Parts that stay together where they fit.
        width: Columns, or None for one line however long.
        gap: Between the segments.
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
        # Nothing is broken inside a word: a path or a command is there to be copied.
        pieces = textwrap.wrap(segment, room, break_long_words=False, break_on_hyphens=False)
        lines = [*(lines if lines[-1] else []), *pieces]
    return (head + f"\n{' ' * LABEL_WIDTH}".join(lines)).rstrip()


def crop(label: str, segments: Sequence[str], width: int, gap: str = GAP) -> str:
    """One labelled line within a width: segments go from the one before the last backwards; the first three stay."""
    kept = [segment for segment in segments if segment]
    while len(line := fold(label, kept, None, gap)) > width and len(kept) > 4:
        del kept[-2]
    return line


def header(tasks: Mapping[str, tuple[int, int]], choices: Sequence[ResolvedDefault]) -> list[str]:
    """What is trained, on what and where."""
    values = {choice.what: choice.value for choice in choices}
    segments = [f"task {visible(name)} ({train} train / {held} held-out rows)" for name, (train, held) in tasks.items()]
    if "model" in values:
        segments.append(f"model {visible(values['model'])}")
    if "device" in values:
        segments.append(f"device {', '.join(values[what] for what in ('device', 'precision') if what in values)}")
    return segments


def reasons(choices: Sequence[ResolvedDefault]) -> list[str]:
    """What was chosen for the user and why, a line each."""
    return [
        visible(
            f"{choice.what} {choice.why if choice.why.startswith(choice.value) else f'{choice.value}: {choice.why}'}"
        )
        for choice in choices
        if choice.why and choice.why not in _OBVIOUS
    ]


def evaluation(result: Mapping[str, Any], task: str = "", control: str = "base") -> list[str]:
    """An evaluation with its interval, and its difference from the control on the same rows where there is one."""
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


def _if_known(interval: str) -> str:
    """An interval behind a number; nothing in place of a dash."""
    return "" if interval == "-" else f" {interval}"


def step(metrics: Mapping[str, float], tasks: Sequence[str], eta: str) -> list[str]:
    """A step's numbers, the time left last."""
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
    """Completions of one prompt with what they earned."""
    segments = []
    for index, sample in enumerate(shown):
        score = sample.score
        earned = "not scored" if score.value is None else f"{score.value:.2f}"
        why = f" ({visible(score.why[:MAX_TEXT_CHARS])})" if score.why else ""
        prompt = f"{quoted(sample.prompt, MAX_TEXT_CHARS)} " if index == 0 else ""
        segments.append(f"{prompt}→ {quoted(sample.text, MAX_TEXT_CHARS)}  {earned}{why}")
    return segments
