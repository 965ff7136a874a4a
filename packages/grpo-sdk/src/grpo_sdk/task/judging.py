"""Rewards that a model decides: the declaration of a judge in a task, and what it is asked about a completion.

The processes that run a task's functions never ask a judge. They score in rounds: where a judge must decide first, the
answer is a `Pending`, which holds what it is asked; the scorer asks it, and has the completion scored again with what
is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import indent
from typing import Any, Literal, Protocol

from grpo_sdk.errors import InfrastructureError
from grpo_sdk.task.calling import call_by_name
from grpo_sdk.task.row import Prompt, as_prompt, prompt_text
from grpo_sdk.task.score import Score
from grpo_sdk.task.tools.calls import ToolTurn

JudgeKind = Literal["rubric", "pairwise", "classifier"]
Shown = Literal["text", "answer"]

MAX_QUESTION_CHARS = 200_000
"""Longest prompt or reference that a judge is shown: over five times what a context of 8,000 tokens decodes to."""

PROTOCOL_VERSION = 1
"""Version of the prompts of judges; part of a task's identity and of a cached verdict's key."""


class JudgeModel(Protocol):
    """The model that judges; see `grpo_sdk.judges`."""

    @property
    def backend(self) -> str:
        """Registered name of what asks it."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Environment variables that worker processes do not get."""

    @property
    def address(self) -> str:
        """The model with its place, for messages."""

    def meaning(self) -> tuple[object, ...]:
        """What decides its verdicts: part of a task's identity."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedReward:
    """A reward whose raw value is a judge's verdict, in [0, 1]; made by `grpo_sdk.judges.rubric` and its siblings.

    Attributes:
        name: Name of the part.
        kind: What the judge decides: a grade by a rubric, or the output of a classifier.
        criterion: What is judged, in words.
        model: The model that judges.
        weight: Factor of the raw value.
        needs: Earlier reward that must reach its maximum before the judge is asked.
        scale: Best grade of a rubric, from 0.
        question: `(row)` -> what the completion answers, for the judge; by default the task's prompt.
        reference: `(row)` -> text that the judge compares with, or None.
        shown: What is judged: the completion's `text`, or the validator's `answer` as text.
        max_chars: Longest text that is judged; a longer one is out of its limit as one that takes too long.
        known: Completions with known verdicts, or a file of them.
        comparisons: Others that each answer is compared with, of a pairwise judge; None is all.
    """

    name: str
    kind: JudgeKind
    criterion: str
    model: JudgeModel
    weight: float = 1.0
    needs: str | None = None
    scale: int = 10
    question: Callable[..., str] | None = None
    reference: Callable[..., str | None] | None = None
    shown: Shown = "text"
    max_chars: int = 32_768
    known: object = ()
    comparisons: int | None = None

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def _grpo_reward(self) -> tuple[float, str | None, float]:
        """The mark that `@reward` leaves on a function."""
        return self.weight, self.needs, 1.0

    def __call__(self, answer: Any) -> float:
        """Refuse: only a scorer asks judges.

        Raises:
            InfrastructureError: always.
        """
        raise InfrastructureError(
            f"judge {self.name} has to be asked: score with grpo_sdk.score(…) or a Scorer, not with BoundTask.score()"
        )

    def grpo_meaning(self) -> tuple[object, ...]:
        """What decides the verdicts: part of the task's identity, as `meaning_of` describes it."""
        content = (self.kind, self.criterion, self.scale, self.question, self.reference, self.shown, self.max_chars)
        return PROTOCOL_VERSION, *content, self.comparisons, *self.model.meaning()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedGroupReward(JudgedReward):
    """A judged reward relative to the group: all answers of a prompt are compared in pairs."""

    @property
    def _grpo_group_reward(self) -> tuple[float, float]:
        """The mark that `@group_reward` leaves on a function."""
        return self.weight, 1.0

    def __call__(self, answers: Sequence[Any]) -> float:
        """Refuse, as above."""
        return JudgedReward.__call__(self, answers)


@dataclass(frozen=True, slots=True)
class JudgeQuestion:
    """What a judge is asked, beside its criterion.

    Attributes:
        prompt: What the completion answers.
        texts: The completion; all completions of a prompt for a pairwise judge.
        reference: Text to compare with; None where there is none.
        too_long: Places among the texts of a pairwise judge of those that are too long to be judged.
    """

    prompt: str
    texts: tuple[str, ...]
    reference: str | None = None
    too_long: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """What is asked, as plain values."""
        return {"prompt": self.prompt, "texts": self.texts, "reference": self.reference}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> JudgeQuestion:
        """The question of these fields."""
        return cls(**{**content, "texts": tuple(content["texts"]), "too_long": tuple(content["too_long"])})


@dataclass(frozen=True, slots=True)
class Pending:
    """A score that waits for judges.

    Attributes:
        parts: Raw values of the rewards that are known.
        questions: Name of a judged reward -> what its judge is asked.
    """

    parts: Mapping[str, float] = field(default_factory=dict)
    questions: Mapping[str, JudgeQuestion] = field(default_factory=dict)


TOO_LONG = "too long for judge"
"""Begins the reason of `TooLong`."""


class TooLong(Exception):
    """A text is longer than its judge is shown."""


Graded = Score | Pending


def question_of(
    judge: JudgedReward,
    prompt: Callable[..., Any],
    texts: Sequence[str],
    answers: Sequence[Any],
    available: Mapping[str, Any],
) -> JudgeQuestion:
    """What a judge is asked about completions of a row.

    Args:
        judge: The judged reward.
        prompt: The task's prompt template.
        texts: The completions.
        answers: What the validator made of each.
        available: `row` and `config`.

    Raises:
        TooLong: a completion by itself is longer than the judge is shown.
        ValueError: the prompt or the reference is.
    """
    shown = tuple(str(answer) for answer in answers) if judge.shown == "answer" else tuple(texts)
    longest = max(map(len, shown))
    too_long = tuple(place for place, text in enumerate(shown) if len(text) > judge.max_chars)
    if judge.kind == "pairwise":
        shown = tuple("" if place in too_long else text for place, text in enumerate(shown))
    elif too_long:
        raise TooLong(f"{TOO_LONG} {judge.name}: {longest} characters; the limit is {judge.max_chars}")
    if judge.question is None:
        question = prompt_text(as_prompt(call_by_name(prompt, available, positional=1), "prompt()"))
    else:
        question = call_by_name(judge.question, available, positional=1)
    question = _text(question, f"question of judge {judge.name}")
    reference = None
    if judge.reference is not None:
        content = call_by_name(judge.reference, available, positional=1)
        reference = None if content is None else _text(content, f"reference of judge {judge.name}")
    return JudgeQuestion(question, shown, reference, too_long)


def told(turns: Sequence[ToolTurn], opening: Prompt | None) -> str:
    """An episode with tools as a judge is shown it: who said what.

    All that is said is indented, and a call is JSON, so that nothing which the policy writes passes for a result.

    Args:
        turns: Its turns.
        opening: What its environment added to the prompt.
    """
    said = [] if opening is None else [("environment", prompt_text(opening))]
    for turn in turns:
        said.append(("assistant", turn.text))
        for call in turn.calls:
            asked = {"name": call.name, "arguments": dict(call.arguments)}
            said += [("call of a tool", json.dumps(asked, ensure_ascii=False)), ("result", call.result)]
    return "\n".join(f"{who}:\n{indent(text, '    ', lambda line: True)}" for who, text in said)


def _text(content: Any, what: str) -> str:
    if not isinstance(content, str):
        raise TypeError(f"the {what} is a {type(content).__name__}; it is text")
    if len(content) > MAX_QUESTION_CHARS:
        raise ValueError(f"the {what} has {len(content)} characters; the limit is {MAX_QUESTION_CHARS}")
    return content
