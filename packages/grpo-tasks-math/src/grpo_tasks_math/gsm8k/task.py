"""The task `math.gsm8k`: options, loader, rewards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from pydantic import model_validator

from grpo_sdk import Invalid, Task, reward
from grpo_sdk.data import stable_id
from grpo_tasks_math import rewards
from grpo_tasks_math.gsm8k.rows import Form, GSM8KRow, Solution, read_solution
from grpo_tasks_math.gsm8k.templates import MARKS, STOP, Template, has_form, make_gold, make_prompt, whole_answer
from grpo_tasks_math.sources import published_rows
from grpo_tasks_math.verdicts import AnswerConfig, options_of, verdict_of, with_length_penalty
from grpo_tasks_math.verify import Verdict

Preset = Literal["accuracy", "signed", "tag_pref", "tag_math_correct"]

HUB = {"train": ("openai/gsm8k/main",), "test": ("openai/gsm8k/main",)}


class GSM8KConfig(AnswerConfig):
    """Options of `math.gsm8k`.

    Attributes:
        template: `plain` (ends with `#### N`), `r1` (think and answer tags) or `few_shot` (four worked examples).
        form: Format of the file: `raw` {question, answer}, `latex` {index, text}, or `auto`, by each record's fields.
        rewards: `accuracy` (2.0 or 0, with small rewards for form and true reasoning), `signed` (+1, +0.5 for a
            mention, −1), `tag_pref` (right inside an answer tag) or `tag_math_correct` (that, and exactly one tag).
    """

    template: Template = "plain"
    form: Form = "auto"
    rewards: Preset = "accuracy"

    @model_validator(mode="after")
    def _tags_need_their_template(self) -> GSM8KConfig:
        if self.rewards in ("tag_pref", "tag_math_correct") and self.template != "r1":
            raise ValueError(f"rewards={self.rewards} looks for <answer> tags, which only template=r1 asks for")
        return self


def load(config: GSM8KConfig) -> Iterator[GSM8KRow]:
    """Grade-school word problems: openai/gsm8k from the hub, or a local file of either form."""
    return published_rows(
        config,
        lambda record: _row(read_solution(record, config.form), config.template),
        hub=HUB,
        content=lambda row: row.question,
    )


def _row(solution: Solution, template: Template) -> GSM8KRow:
    return GSM8KRow(
        id=stable_id(solution.question),
        question=solution.question,
        answer=solution.answer,
        gold=make_gold(solution, template),
        difficulty=float(solution.steps),
    )


def prompt(row: GSM8KRow, config: GSM8KConfig) -> str:
    """The question in the configured template."""
    return make_prompt(row.question, config.template)


def validate(text: str, row: GSM8KRow, config: GSM8KConfig) -> Verdict:
    """Return the verifier's verdict on the answer.

    Raises:
        Invalid: the completion has no answer.
        TimeoutError: the verifier ran out of time, so the completion fails (`on_timeout`).
    """
    verdict, why = _verdict(text, row, config)
    if verdict is Verdict.UNPARSABLE:
        raise Invalid(why)
    return verdict


def _verdict(text: str, row: GSM8KRow, config: GSM8KConfig) -> tuple[Verdict, str]:
    return verdict_of(row.answer, whole_answer(text, config.template), config, MARKS[config.template])


@reward(1.0, maximum=2.0)
def accuracy(text: str, row: GSM8KRow, config: GSM8KConfig) -> float:
    """2.0 for a right answer, 0.0 otherwise; other `rewards` presets give their own value, at most 1.0."""
    if config.rewards == "accuracy":
        return 2.0 * (_verdict(text, row, config)[0] is Verdict.CORRECT)
    presets = {"signed": rewards.signed_accuracy, "tag_pref": rewards.tag_pref}
    preset = presets.get(config.rewards, rewards.tag_math_correct)
    return preset(whole_answer(text, config.template), row.answer, **options_of(config, MARKS[config.template]))


@reward(0.2)
def reasoning(text: str, row: GSM8KRow, config: GSM8KConfig) -> float:
    """Quality of the reasoning relative to the reference solution: min(1, q(text) / q(gold)), q as in `rewards`.

    If the reference shows no arithmetic, 1 for a right answer. 0 with another preset.
    """
    if config.rewards != "accuracy":
        return 0.0
    reference = _reference_quality(row.gold or "")
    if reference == 0.0:
        return float(_verdict(text, row, config)[0] is Verdict.CORRECT)
    return min(1.0, rewards.reasoning(whole_answer(text, config.template)) / reference)


@lru_cache(maxsize=64)  # the completions of a group share their row
def _reference_quality(gold: str) -> float:
    return rewards.reasoning(gold)


@reward(0.2)
def format(text: str, config: GSM8KConfig) -> float:
    """1 when the completion has the form that its prompt requests; 0 with another preset."""
    return float(config.rewards == "accuracy" and has_form(text, config.template))


def solved(answer: Verdict) -> bool:
    """Return whether the answer is right, in any form."""
    return answer is Verdict.CORRECT


def specialize(config: GSM8KConfig) -> Task:
    """The task with the configured penalty of length."""
    return with_length_penalty(TASK, config)


TASK = Task(
    "gsm8k",
    load,
    prompt,
    validate,
    (accuracy, reasoning, format),
    config=GSM8KConfig,
    row=GSM8KRow,
    version="2",
    solved=solved,
    stop=STOP,
    timeout_s=10.0,  # a symbolic check takes 2 to 80 ms, or as much as is given
    on_timeout="fail",
    specialize=specialize,
)
"""Value: 2.4 for the right answer in the right form with true reasoning; 2.0 for the answer alone."""
