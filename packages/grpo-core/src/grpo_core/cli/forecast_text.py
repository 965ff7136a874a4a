"""The result of `grpo forecast` as text, with advice."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from grpo_core.evaluation.forecast import BINS, EASY, HARD
from grpo_core.tracking.advice import warm_start
from grpo_sdk.display.lines import interval, number
from grpo_sdk.display.text import print_out, table, visible
from grpo_sdk.task.game import SELF, GameConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from grpo_core.config import RunConfig
    from grpo_core.evaluation.forecast import Forecast, GroupSize, MixtureForecast, TaskForecast
    from grpo_sdk.intervals import Interval
    from grpo_sdk.task.bound import BoundTask

BAR_WIDTH = 30

MAX_NO_SIGNAL = 0.5
"""Share of groups without signal above which the monitor of a run warns."""


def print_forecast(result: MixtureForecast, tasks: Mapping[str, BoundTask], config: RunConfig) -> None:
    """Print a forecast.

    Args:
        result: The forecast.
        tasks: Label -> task.
        config: Configuration of the run.
    """
    samples = next(iter(result.tasks.values())).samples
    prompts = " + ".join(str(each.prompts) for each in result.tasks.values())
    unit = "prompts" if any(task.task.game is None for task in tasks.values()) else "sides of episodes"
    heading = f"{config.task}   model {config.model}   {prompts} {unit} × {samples} completions"
    heading += f" at temperature {config.trainer.temperature:g}"
    facts = "solved {}   mean reward {}".format(*_with_ends(result.solved, result.reward))
    if abstained := sum(each.abstained for each in result.tasks.values()):
        facts += f"   {abstained} completions not scored"
    blocks: list[RenderableType] = [visible(heading), facts]
    for listing in _tables(result):
        blocks += ["", listing]
    notes = [f"note    {visible(line)}" for label, task in tasks.items() for line in _notes(label, task)]
    lines = [line for label, task in tasks.items() for line in _advice_of(label, result, task)]
    print_out(*blocks, "", _times(result), *notes, *(f"advice  {line}" for line in lines))


def _notes(label: str, task: BoundTask) -> list[str]:
    """What the numbers of a task do not mean."""
    if task.task.game is not None and isinstance(task.config, GameConfig):
        if task.config.opponent == SELF:
            return [
                f"{label}: the policy plays all sides, each a group: what one wins another loses, so that solved says "
                "nothing about strength. grpo eval plays it against others."
            ]
        return [f"{label}: solved is won, here against {task.config.opponent}; another opponent has other groups."]
    if task.opponent is not None:
        return [f"{label}: rewards depend on its opponent, {task.opponent.engine}, as it answers at the start."]
    return []


def _advice_of(label: str, result: MixtureForecast, task: BoundTask) -> list[str]:
    """The advice of a task; of several, with its label, and the number of generations once, for all."""
    own = result.tasks[label]
    if len(result.tasks) == 1:
        return advice(own, task)
    lines = [f"{visible(label)}: {line}" for line in advice(own, task) if "num_generations" not in line]
    if label != next(iter(result.tasks)) or result.recommended is None:
        return lines
    return [_size_advice(result, result.recommended), *lines]


def advice(forecast: TaskForecast, task: BoundTask) -> list[str]:
    """What to choose, a line each."""
    if forecast.recommended is None:
        return [_when_silent(forecast, task)]
    lines = [_size_advice(forecast, forecast.recommended)]
    if forecast.own_size.no_signal.value > MAX_NO_SIGNAL:
        lines.append(_when_silent(forecast, task))
    levels = forecast.best_levels
    if levels and len(levels) < len(forecast.levels):
        names = [level.name for level in levels]
        lines.append(f"difficulty {', '.join(names)} has the most signal{_option(task, names)}")
    elif not forecast.levels and "max_difficulty" in type(task.config).model_fields:
        lines.append("to compare difficulties, forecast more of them: TASK?min_difficulty=…&max_difficulty=…")
    return lines


def _size_advice(result: Forecast, recommended: GroupSize) -> str:
    kept = "the run's own" if recommended is result.own_size else f"the run has {result.generations}"
    return (
        f"trainer.num_generations={recommended.generations} ({kept}): {recommended.useful:.0%} of the groups have a "
        f"signal, {result.sizes[-1].useful:.0%} with {result.sizes[-1].generations}"
    )


def _when_silent(forecast: TaskForecast, task: BoundTask) -> str:
    solved = forecast.solved.value
    if task.task.game is not None:
        return f"most episodes end alike (won {solved:.2f}): set trainer.baseline=role, or choose another opponent"
    if solved > EASY:
        return f"the task is too easy (solved {solved:.2f}): take harder rows, or set curriculum.enabled=true"
    if solved < HARD:
        return f"the task is too hard (solved {solved:.2f}): take easier rows, or {warm_start('--task', task.spec)}"
    return "prompts are solved always or never: set trainer.dynamic_sampling=true, or curriculum.enabled=true"


def _option(task: BoundTask, names: Sequence[str]) -> str:
    """How to choose difficulties, if the task has the usual options and they are whole numbers."""
    fields = type(task.config).model_fields
    if not {"min_difficulty", "max_difficulty"} <= fields.keys() or not all(name.isdecimal() for name in names):
        return ""
    return f": ?min_difficulty={min(map(int, names))}&max_difficulty={max(map(int, names))}"


def _with_ends(*estimates: Interval) -> list[str]:
    return [f"{number(value)} {interval(low, high)}" for value, low, high in (each.known for each in estimates)]


def _per_hour(rate: Interval) -> str:
    return "-" if math.isnan(rate.value) else f"{rate.value:.0f} [{rate.low:.0f}, {rate.high:.0f}]"


def _tables(result: MixtureForecast) -> Iterator[Table]:
    """The histogram of a task, or the tasks of a mixture with their shares; what sizes give; difficulties."""
    silent, first = "groups without signal", next(iter(result.tasks.values()))
    if len(result.tasks) > 1:
        rows = (
            (f"{label} {result.shares[label]:.0%}", *_with_ends(each.solved, each.reward, each.own_size.no_signal))
            for label, each in result.tasks.items()
        )
        yield table("task", "solved", "mean reward", silent, rows=rows)
    else:
        scale = BAR_WIDTH / (max(first.histogram) or 1)
        names = (f"{low:g}" if low == high else f"{low:g} to {high:g}" for low, high in BINS)
        bars = ((str(count), "█" * round(count * scale)) for count in first.histogram)
        histogram = ((name, *bar) for name, bar in zip(names, bars, strict=True))
        yield table("solved rate", "prompts", "", rows=histogram)
    sizes = (
        (
            f"{size.generations}{' (run)' if size is result.own_size else ''}",
            *_with_ends(size.no_signal, size.pass_at),
            _per_hour(size.useful_per_hour),
        )
        for size in result.sizes
    )
    yield table("generations", silent, "pass@generations", "useful groups per hour", rows=sizes)
    for label, each in result.tasks.items():
        if each.levels:
            head = f"difficulty of {label}" if len(result.tasks) > 1 else "difficulty"
            levels = ((own.name, str(own.prompts), *_with_ends(own.solved, own.no_signal)) for own in each.levels)
            yield table(head, "prompts", "solved", silent, rows=levels)


def _times(result: MixtureForecast) -> str:
    times = result.times
    completions = sum(each.prompts * each.samples for each in result.tasks.values())
    text = f"time    {1000 * times.sampling:.3g} ms per completion to sample and score (all {completions})"
    if times.update is None:
        return f"{text}; an update was not measured and is not counted"
    return f"{text}, {1000 * times.update:.3g} ms to update (forward and backward of {times.measured})"
