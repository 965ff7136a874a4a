"""Early signs of reward hacking: each is provoked by the metrics of a run, and a healthy run shows none."""

import random
from collections.abc import Callable, Iterable, Mapping

import pytest

from grpo_core.config import RunConfig
from grpo_core.tracking.diagnosis import WINDOW, History
from grpo_core.tracking.hacking import SIGNS
from grpo_sdk import Row, Task, load_task, reward

STEPS = 4 * WINDOW


def load() -> Iterable[Row]:
    yield Row(id="r")


@reward(0.5)
def form(answer: str) -> float:
    return 1.0


@reward(0.5)
def exact(answer: str) -> float:
    return 1.0


@reward(0)
def polite(answer: str) -> float:
    return 1.0


TASK = load_task(Task("t", load, lambda row: "?", lambda text, row: text, (form, exact, polite)))

Course = Callable[[float], float]
"""Value of a metric over a run, by the share of the run that is done."""


def level(value: float) -> Course:
    return lambda done: value


def rising(low: float, high: float) -> Course:
    return lambda done: low + (high - low) * done


HEALTHY: Mapping[str, Course] = {
    "task/t/reward": rising(0.2, 0.8),
    "task/t/solved_rate": rising(0.1, 0.7),
    "task/t/part/form": rising(0.3, 0.9),
    "task/t/part/exact": rising(0.1, 0.7),
    "task/t/part/polite": level(0.8),
    "task/t/part_correlation/polite": level(0.0),
    "completions/similarity": rising(0.3, 0.45),
    "completions/mean_length": rising(20.0, 40.0),
    "reward": rising(0.2, 0.8),
}


def signs(changed: Mapping[str, Course]) -> list[str]:
    """The warnings over a run whose courses differ from a healthy one."""
    courses = {**HEALTHY, **changed}
    noise = random.Random(0)
    history = History(RunConfig(), 0.05, tasks={"t": TASK})
    warnings: dict[tuple[str, str], str] = {}
    for step in range(STEPS):
        metrics = {name: course(step / STEPS) + noise.gauss(0, 0.03) for name, course in courses.items()}
        history.add(step, metrics)
        for sign in SIGNS:
            for about, seen in sign.see(history, sign) if sign.moment == "step" else ():
                warnings |= {(sign.name, about): seen} if seen else {}
    return [*warnings.values()]


POLITE_FALLS = {"task/t/part/polite": rising(0.8, 0.2)}


@pytest.mark.parametrize(("changed", "expected"), [
    ({}, ()),
    ({name: level(course(0.5)) for name, course in HEALTHY.items()}, ()),  # noise
    (POLITE_FALLS, ("task t: the reward rises", "watched part polite falls")),
    ({**POLITE_FALLS, "task/t/reward": level(0.5)}, ()),  # the reward does not rise
    ({**POLITE_FALLS, "task/t/part_correlation/polite": level(-0.6)}, ()),  # an error
    ({"task/t/part/polite": rising(40.0, 20.0)}, ()),  # a count
    ({"task/t/part/polite": rising(0.8, 0.74)}, ()),  # too little
    ({"task/t/part/exact": level(0.0), "task/t/solved_rate": level(0.0)}, ("form carries", "while no more is solved")),
    ({"task/t/part/form": level(0.0)}, ()),  # more is solved by the part that carries the reward
    ({"completions/similarity": rising(0.3, 0.98)}, ("becoming alike",)),
    ({"reward": level(0.5)}, ("grown from", "has not risen")),
    ({"completions/mean_length": rising(20.0, 25.0), "reward": level(0.5)}, ()),
    ({"completions/similarity": level(0.95)}, ()),  # alike from the start, as yes and no are
])  # fmt: skip
def test_signs(changed: Mapping[str, Course], expected: tuple[str, ...]) -> None:
    """A healthy run shows none, and what differs from it one or none."""
    found = signs(changed)
    assert len(found) == bool(expected) and all(text in found[0] for text in expected)
