"""Tasks that say what their scores depend on, what is logged of a batch, and how they are evaluated."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grpo_sdk import EvaluationDefaults, Row, Task, TaskConfig, reward


def load(config: TaskConfig) -> Iterable[Row]:
    for index in range(8):
        yield Row(id=f"{config.split}{index}", gold="x")


@reward()
def printable(answer: str) -> float:
    return sum(32 <= ord(character) < 127 for character in answer) / max(1, len(answer))


@reward(0.0)
def characters(text: str) -> float:
    return len(text)


@reward()
def held_out(config: TaskConfig) -> float:
    return float(config.split != "train")


def conditions(config: TaskConfig) -> Mapping[str, str]:
    return {"sandbox": os.environ["LEVEL"]}


def metrics(scores: Sequence[Any]) -> Mapping[str, float]:
    return {"execution/total": len(scores), "execution/characters": sum(each.parts["characters"] for each in scores)}


def broken(scores: Sequence[Any]) -> Mapping[str, float]:
    return {"execution/broken": 1 / 0 if scores else 0}


def report(found: Any) -> Mapping[str, float]:
    with open(found.folder / f"report_{found.phase}_{found.step}.json", "w") as file:
        json.dump([[each.row.id, each.prompt, each.completion, each.score.value] for each in found.records], file)
    return {f"mbpp_eval/{found.phase}_rate": found.results["solved_rate"], "mbpp_eval/seconds": found.seconds}


def evaluation(config: TaskConfig) -> EvaluationDefaults:
    return EvaluationDefaults(size=3, num_completions=2, temperature=1.0, interval_steps=2, report=report)


def task(name: str, *rewards: Any, **options: Any) -> Task:
    return Task(
        name, load, lambda row: row.id, lambda text, row: text, rewards, max_completion_length=4, default_model="tiny",
        **options,
    )  # fmt: skip


code = task("code", printable, characters, conditions=conditions, metrics=metrics, evaluation=evaluation)
plain = task("plain", printable, metrics=broken)
by_split = task("by_split", held_out)
clashing = task("clashing", printable, characters, metrics=metrics)
