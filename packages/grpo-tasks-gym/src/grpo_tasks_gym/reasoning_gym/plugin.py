"""The tasks of reasoning-gym, as users write them: `reasoning_gym.leg_counting`."""

from __future__ import annotations

import re
from typing import Any

from grpo_sdk import EvaluationDefaults, Invalid, Task, hookimpl, reward
from grpo_tasks_gym.reasoning_gym import scorers
from grpo_tasks_gym.reasoning_gym.catalogue import Dataset, datasets
from grpo_tasks_gym.reasoning_gym.options import GymConfig, config_class
from grpo_tasks_gym.reasoning_gym.rows import GymRow, load_rows

TAGS = "{question}\n\nGive the final answer between <answer> and </answer>, and nothing else there.\n"
PLAIN = "{question}\nAnswer:"

SLOW = frozenset({"futoshiki", "intermediate_integration", "knight_swap", "puzzle24", "sokoban", "zebra_puzzles"})
"""Data sets whose entries take a tenth of a second and more."""

_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)


def prompt(row: GymRow, config: GymConfig) -> Any:
    """The question in the template."""
    text = (TAGS if config.template == "tags" else PLAIN).replace("{question}", row.question.strip())
    return ({"role": "user", "content": text},) if config.chat else text


def validate(text: str, row: GymRow, config: GymConfig) -> float:
    """The scorer's value of the answer.

    Raises:
        Invalid: there is no answer, or the scorer raises an exception and on_error is `wrong`.
    """
    if config.template == "tags":
        tagged = _ANSWER.findall(text)
        if not tagged:
            raise Invalid("no <answer>…</answer>")
        text = tagged[-1]
    answer = text.strip()
    if not answer:
        raise Invalid("no answer")
    try:
        return scorers.score(config, row, answer)
    except Invalid:
        raise
    except Exception as error:
        if config.on_error == "wrong":
            raise Invalid(f"the scorer raised {type(error).__name__}") from None
        raise


@reward(1.0)
def correct(answer: float) -> float:
    """What reasoning-gym's scorer gives; it pays parts of 1 for some answers."""
    return answer


def evaluation(config: GymConfig) -> EvaluationDefaults:
    """Fewer rows where generating them takes long."""
    return EvaluationDefaults(size=64 if config.dataset in SLOW else None)


def task_of(name: str, dataset: Dataset) -> Task:
    """The tasks of reasoning-gym, as users write them: `reasoning_gym.leg_counting`."""

    def load(config: GymConfig) -> Any:
        return load_rows(config)

    load.__doc__ = dataset.about
    return Task(
        name,
        load,
        prompt,
        validate,
        (correct,),
        config=config_class(name),
        row=GymRow,
        stop=("</answer>",),
        timeout_s=10.0,
        on_timeout="fail",
        evaluation=evaluation,
    )


@hookimpl
def grpo_tasks() -> list[Task]:
    """A task for each data set of reasoning-gym."""
    return [task_of(name, dataset) for name, dataset in datasets().items()]
