"""Early signs of reward hacking: each is provoked by the metrics of a run, and a healthy run shows none."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import orjson
import pytest

from grpo_core import Row, Task, load_task, reward
from grpo_core.callbacks import Callbacks, RunInfo, StepRecord
from grpo_core.config import RunConfig
from grpo_core.tracking.diagnosis import WINDOW, History
from grpo_core.tracking.hacking import SIGNS
from grpo_core.tracking.monitor import Monitor

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
}


def signs(**changed: Course) -> list[str]:
    """The warnings over a run whose courses differ from a healthy one; `_` stands for what no keyword may hold."""
    courses = {**HEALTHY, **{name.replace("__", "/"): course for name, course in changed.items()}}
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


def test_a_healthy_run_shows_no_sign() -> None:
    assert signs() == []


def test_noise_is_no_sign() -> None:
    flat = {name.replace("/", "__"): level(course(0.5)) for name, course in HEALTHY.items()}
    assert signs(**flat) == []


def test_a_watched_part_that_falls_while_the_reward_rises_is_a_sign_once() -> None:
    (warning,) = signs(task__t__part__polite=rising(0.8, 0.2))
    assert "task t: the reward rises" in warning
    assert "watched part polite falls" in warning


@pytest.mark.parametrize(
    "changed",
    [
        {"task__t__part__polite": rising(0.8, 0.2), "task__t__reward": level(0.5)},  # the reward does not rise
        {"task__t__part__polite": rising(0.8, 0.2), "task__t__part_correlation__polite": level(-0.6)},  # an error
        {"task__t__part__polite": rising(40.0, 20.0)},  # a count
        {"task__t__part__polite": rising(0.8, 0.74)},  # too little
    ],
)
def test_parts_that_fall_for_good_reasons_are_no_sign(changed: Mapping[str, Course]) -> None:
    assert signs(**changed) == []


def test_one_part_that_carries_the_reward_while_nothing_is_solved_is_a_sign() -> None:
    unsolved = {"task__t__part__exact": level(0.0), "task__t__solved_rate": level(0.0)}
    (warning,) = signs(**unsolved)
    assert "form carries" in warning and "while no more is solved" in warning
    # Where more is solved by the part that carries the reward, nothing is wrong.
    assert signs(task__t__part__form=level(0.0)) == []


def test_completions_that_become_alike_are_a_sign() -> None:
    (warning,) = signs(completions__similarity=rising(0.3, 0.98))
    assert "becoming alike" in warning
    assert signs(completions__similarity=level(0.95)) == []  # alike from the start, as yes and no are


def run_info(folder: Path) -> RunInfo:
    return RunInfo(run_dir=folder, tasks={"math.arithmetic": (8, 8)}, choices=(), total_steps=None)


def monitored(folder: Path, similarity: Iterable[float]) -> list[str]:
    callbacks = Callbacks()
    monitor = Monitor(RunConfig(task="math.arithmetic"), callbacks)
    monitor.on_run_start(run_info(folder))
    for step, value in enumerate(similarity, start=1):
        monitor.on_step(StepRecord(step, {"completions/similarity": value}))
    return [str(finding) for finding in callbacks.findings]


def test_the_monitor_gives_the_signs_and_goes_on_after_a_resume(tmp_path: Path) -> None:
    start, end = [0.2, 0.21] * (WINDOW // 2), [0.9, 0.91] * (WINDOW // 2)
    (warning,) = monitored(tmp_path, [*start, *end])
    assert warning.startswith(f"step {2 * WINDOW}: completions of different prompts")
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "train_log.jsonl"
    log.write_bytes(b"".join(orjson.dumps({"step": 1, "completions/similarity": value}) + b"\n" for value in start))
    assert len(monitored(tmp_path, end)) == 1  # the start is that of the run
    log.write_bytes(
        b"".join(orjson.dumps({"step": 1, "completions/similarity": value}) + b"\n" for value in [*start, *end])
    )
    assert monitored(tmp_path, end) == []  # it has warned before
