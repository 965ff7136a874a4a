"""The result of `grpo forecast` as text, with advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_core.display.lines import interval, number
from grpo_core.display.text import print_out, table, visible
from grpo_core.evaluation.forecast import BINS, EASY, HARD

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from grpo_core.config import RunConfig
    from grpo_core.evaluation.forecast import Forecast
    from grpo_core.evaluation.intervals import Interval
    from grpo_core.task.bound import BoundTask

BAR_WIDTH = 30

MAX_NO_SIGNAL = 0.5
"""Share of groups without signal above which the monitor of a run warns."""


def print_forecast(forecast: Forecast, task: BoundTask, config: RunConfig) -> None:
    """Print a forecast.

    Args:
        forecast: The forecast.
        task: Its task.
        config: Configuration of the run.
    """
    heading = (
        f"{task.spec}   model {config.model}   {forecast.prompts} prompts × {forecast.samples} completions at "
        f"temperature {config.trainer.temperature:g}"
    )
    facts = f"solved {_with_ends(forecast.solved)}   mean reward {_with_ends(forecast.reward)}"
    if forecast.abstained:
        facts += f"   {forecast.abstained} completions not scored"
    blocks: list[RenderableType] = [visible(heading), facts, "", _histogram(forecast), "", _sizes(forecast)]
    if forecast.levels:
        blocks += ["", _levels(forecast)]
    print_out(*blocks, "", _times(forecast), *(f"advice  {line}" for line in advice(forecast, task)))


def advice(forecast: Forecast, task: BoundTask) -> list[str]:
    """What to choose, a line each."""
    lines = []
    own, recommended = forecast.own_size, forecast.recommended
    if recommended is None:
        return [_when_silent(forecast, task)]
    kept = "the run's own" if recommended is own else f"the run has {own.generations}"
    lines.append(
        f"trainer.num_generations={recommended.generations} ({kept}): {recommended.useful:.0%} of the groups have a "
        f"signal, {forecast.sizes[-1].useful:.0%} with {forecast.sizes[-1].generations}"
    )
    if own.no_signal.value > MAX_NO_SIGNAL:
        lines.append(_when_silent(forecast, task))
    levels = forecast.best_levels
    if levels and len(levels) < len(forecast.levels):
        lines.append(
            f"difficulty {', '.join(level.name for level in levels)} has the most signal{_option(task, levels)}"
        )
    elif not forecast.levels and "max_difficulty" in type(task.config).model_fields:
        lines.append("to compare difficulties, forecast more of them: TASK?min_difficulty=…&max_difficulty=…")
    return lines


def _when_silent(forecast: Forecast, task: BoundTask) -> str:
    solved = forecast.solved.value
    if solved > EASY:
        return f"the task is too easy (solved {solved:.2f}): take harder rows, or set curriculum.enabled=true"
    if solved < HARD:
        return f"the task is too hard (solved {solved:.2f}): take easier rows, or grpo warm-start --task {task.name}"
    return "prompts are solved always or never: set trainer.dynamic_sampling=true, or curriculum.enabled=true"


def _option(task: BoundTask, levels: tuple[object, ...]) -> str:
    """How to choose difficulties, if the task has the usual options and they are adjacent whole numbers."""
    fields = type(task.config).model_fields
    names = [str(getattr(level, "name", "")) for level in levels]
    if not {"min_difficulty", "max_difficulty"} <= fields.keys() or not all(name.isdecimal() for name in names):
        return ""
    numbers = sorted(map(int, names))
    return f": ?min_difficulty={numbers[0]}&max_difficulty={numbers[-1]}"


def _with_ends(estimate: Interval) -> str:
    ends = interval(_known(estimate.low), _known(estimate.high))
    return f"{number(_known(estimate.value))} {ends}"


def _known(value: float) -> float | None:
    return value if value == value else None


def _histogram(forecast: Forecast) -> Table:
    listing = table("solved rate", "prompts", "")
    most = max(forecast.histogram) or 1
    for (low, high), count in zip(BINS, forecast.histogram, strict=True):
        name = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        listing.add_row(name, str(count), "█" * round(BAR_WIDTH * count / most))
    return listing


def _sizes(forecast: Forecast) -> Table:
    listing = table("generations", "groups without signal", "pass@generations", "useful groups per hour")
    for size in forecast.sizes:
        own = " (run)" if size.generations == forecast.generations else ""
        rate = size.useful_per_hour
        per_hour = f"{rate.value:.0f} [{rate.low:.0f}, {rate.high:.0f}]" if rate.value == rate.value else "-"
        listing.add_row(f"{size.generations}{own}", _with_ends(size.no_signal), _with_ends(size.pass_at), per_hour)
    return listing


def _levels(forecast: Forecast) -> Table:
    listing = table("difficulty", "prompts", "solved", "groups without signal")
    for level in forecast.levels:
        listing.add_row(level.name, str(level.prompts), _with_ends(level.solved), _with_ends(level.no_signal))
    return listing


def _times(forecast: Forecast) -> str:
    times = forecast.times
    completions = forecast.prompts * forecast.samples
    text = f"time    {1000 * times.sampling:.3g} ms per completion to sample and score (all {completions})"
    if times.update is None:
        return f"{text}; an update was not measured and is not counted"
    return f"{text}, {1000 * times.update:.3g} ms to update (forward and backward of {times.measured})"
