"""The configurations of a grid, a list, or random draws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np

from grpo_core.launch.sweep.definition import MAX_RUNS, Definition, Range, text_of, texts
from grpo_sdk.errors import UserError

MAX_REPEATS = 1000
"""Draws in a row that were drawn before, after which there are no others."""

ROUNDING = 1e-9
"""Share of a step by which a range may seem to miss its end: (0.3 − 0.1) / 0.1 is below 2 in binary."""


def configurations(definition: Definition) -> list[dict[str, str]]:
    """Return the varied settings of each configuration, each once.

    Raises:
        UserError: there are too many, or fewer distinct draws than wanted.
    """
    match definition.method:
        case "list":
            listed: Iterator[dict[str, str]] = (texts(run) for run in definition.runs)
        case "random":
            listed = _drawn(definition)
        case _:
            lists = {key: values for key, values in definition.parameters.items() if not isinstance(values, Range)}
            count = math.prod(map(len, lists.values())) * max(1, len(definition.seeds))
            if count > MAX_RUNS:
                raise UserError(f"the grid has {count:,} runs; at most {MAX_RUNS:,} are allowed. Give fewer values.")
            products = itertools.product(*([text_of(value) for value in values] for values in lists.values()))
            listed = (dict(zip(lists, values, strict=True)) for values in products)
    return [*{frozenset(settings.items()): settings for settings in listed}.values()]


def _drawn(definition: Definition) -> Iterator[dict[str, str]]:
    """Draw distinct configurations; the first ones are the same however many are drawn."""
    drawn: set[tuple[str, ...]] = set()
    repeats = 0
    for number in itertools.count():
        if len(drawn) == definition.trials:
            return
        rng = np.random.default_rng([definition.draw_seed, number])
        settings = {key: _draw(values, rng) for key, values in definition.parameters.items()}
        if (values := tuple(settings.values())) not in drawn:
            drawn.add(values)
            repeats = 0
            yield settings
        elif (repeats := repeats + 1) == MAX_REPEATS:
            raise UserError(f"trials: {definition.trials}, but there are only {len(drawn)} different configurations.")


def _draw(values: list[object] | Range, rng: np.random.Generator) -> str:
    if not isinstance(values, Range):
        return text_of(values[int(rng.integers(len(values)))])
    low, high = values.min, values.max
    if values.step is not None:
        steps = math.floor((high - low) / values.step + ROUNDING)
        drawn: float = min(low + values.step * int(rng.integers(steps + 1)), high)
    elif values.log:
        drawn = math.exp(rng.uniform(math.log(low), math.log(high)))
        drawn = min(max(round(drawn), low), high) if values.is_whole else drawn
    else:
        drawn = float(rng.integers(int(low), int(high) + 1)) if values.is_whole else rng.uniform(low, high)
    return str(int(drawn)) if values.is_whole else f"{float(drawn):.6g}"  # as many digits as a person would compare


def label(settings: Mapping[str, str]) -> str:
    """Return varied settings as they are written on a command line."""
    return " ".join(f"{key}={value}" for key, value in settings.items())
