"""Evaluations of Inspect without it; tests/test_peers.py runs them in Inspect itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from absent_trainers import GUESS, SUMS, EpisodeLaws, Played, secret_row, sum_row, trainer


@dataclass
class Message:
    """Inspect's chat messages."""

    content: Any
    role: str = ""
    source: str | None = None

    @property
    def text(self) -> str:
        return (
            self.content
            if isinstance(self.content, str)
            else "".join(part.text for part in self.content if not isinstance(part, Reasoning))
        )


class System(Message):
    pass


class User(Message):
    pass


class Assistant(Message):
    pass


@dataclass
class Reasoning:
    """Inspect's content that was split off."""

    reasoning: str


@dataclass
class Score:
    """Inspect's score."""

    value: Any
    answer: str = ""
    explanation: str = ""
    reason: str = ""

    @classmethod
    def unscored(cls, reason: str, answer: str, explanation: str) -> Score:
        return cls(None, answer, explanation, reason)


@dataclass
class State:
    """Inspect's state of a sample."""

    metadata: dict[str, Any]
    messages: list[Message] = field(default_factory=list)
    output: Any = None
    completed: bool = False


def decorator(*arguments: Any, **options: Any) -> Callable[..., Any]:
    return arguments[0] if arguments else lambda function: function


@pytest.fixture(scope="module")
def adapter() -> Iterator[Any]:
    packages = {
        "inspect_ai": {"Task": SimpleNamespace, "task": decorator},
        "inspect_ai.dataset": {"MemoryDataset": lambda samples, name: samples, "Sample": SimpleNamespace},
        "inspect_ai.model": {
            "ChatMessage": Message, "ChatMessageAssistant": Assistant, "ChatMessageSystem": System,
            "ChatMessageUser": User, "ContentReasoning": Reasoning, "GenerateConfig": SimpleNamespace,
        },
        "inspect_ai.scorer": {
            "Score": Score, "Scorer": object, "Target": object, "mean": str, "stderr": str, "scorer": decorator,
        },
        "inspect_ai.solver": {"Generate": object, "Solver": object, "TaskState": State, "solver": decorator},
    }  # fmt: skip
    # In place of TaskState's first argument, which a SimpleNamespace of samples has no use for.
    packages["inspect_ai"]["Task"] = lambda dataset, **fields: SimpleNamespace(dataset=dataset, **fields)
    with trainer("inspect", packages) as adapter:
        yield adapter


def evaluated(adapter: Any, spec: str, row: str, *answers: Any, limit: int = 99) -> tuple[State, Score]:
    """Play and score a sample, with the answers of a model."""
    task, left = adapter.task(spec), list(answers)
    state = State(adapter.sample_of(spec, row).metadata)

    async def generate(state: State, tool_calls: str) -> State:
        message = Assistant(left.pop(0), source="generate")
        state.messages.append(message)
        state.output = SimpleNamespace(message=message)
        state.completed = len(answers) - len(left) >= limit
        return state

    async def run() -> tuple[State, Score]:
        played = await task.solver(state, generate)
        return played, await task.scorer(played, None)

    return asyncio.run(run())


class TestInspect(EpisodeLaws):
    trainer = "inspect"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        _, score = evaluated(adapter, spec, row, *texts)
        assert score.answer == texts[-1] and score.reason == ("scoring_failed" if score.value is None else "")
        parts = dict(score.value or {})
        return Played(parts.pop("reward", None), parts, score.explanation)


def test_turns_are_messages_and_a_limit_of_inspect_ends_them(adapter: Any) -> None:
    state, _ = evaluated(adapter, GUESS, secret_row(7), "3", "7")
    hint = User("\n1: higher:")
    first, last = (Assistant(text, source="generate") for text in ("3", "7"))
    assert state.messages == [User("guess:"), first, hint, last]
    _, score = evaluated(adapter, GUESS, secret_row(7), "3", "7", limit=1)
    assert score.value["reward"] == 0.0 and score.answer == "3"


def test_reasoning_that_was_split_off_is_part_of_the_completion(adapter: Any) -> None:
    _, score = evaluated(adapter, SUMS, sum_row(), [Reasoning("2 and 2"), SimpleNamespace(text="4")])
    assert score.answer == "<think>2 and 2</think>4" and score.value["valid"] == 0.0


def test_an_evaluation_says_what_it_evaluates(adapter: Any) -> None:
    task = adapter.task(SUMS)
    assert [sample.id for sample in task.dataset] == ["0+0", "1+1", "2+2", "3+3", "4+4"]
    assert task.dataset[2].target == "4" and task.metadata["task"] == SUMS
    assert task.name.endswith("hurried") and task.metadata["identity"]
