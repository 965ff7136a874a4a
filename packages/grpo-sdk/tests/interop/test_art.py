"""The rollouts for ART without it; tests/test_peers.py runs them in ART itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import recorded_shop
from absent_trainers import GUESS, SUMS, EpisodeLaws, Played, adapter_of, chat_completion, secret_row, sum_row
from tool_laws import ToolLaws


@dataclass
class Trajectory:
    """ART's trajectory, which holds messages and choices."""

    metadata: dict[str, Any]
    messages_and_choices: list[Any] = field(default_factory=list)
    reward: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    logs: list[str] = field(default_factory=list)

    def messages(self) -> list[dict[str, str]]:
        return [
            each if isinstance(each, dict) else {"role": "assistant", "content": each.message.content}
            for each in self.messages_and_choices
        ]

    def log(self, line: str) -> None:
        self.logs.append(line)

    def finish(self) -> Trajectory:
        self.metrics["duration"] = 1.0
        return self


class Model:
    """A model that answers from a list, and remembers the requests."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.requests = list(answers), []

    def openai_client(self) -> Any:
        return SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=self.create)))

    def get_inference_name(self) -> str:
        return "policy"

    async def create(self, **request: Any) -> Any:
        self.requests.append({**request, "messages": list(request["messages"])})
        answer = self.answers.pop(0)
        return chat_completion(answer) if isinstance(answer, str) else answer


adapter = adapter_of("art", {"art": {"Model": Model, "Trajectory": Trajectory, "TrajectoryGroup": list}})


def rolled_out(art: Any, model: Model, spec: str, row: str, **sampling: Any) -> Trajectory:
    trajectory: Trajectory = asyncio.run(art.rollout(model, spec, row, **sampling))
    assert trajectory.metrics.pop("duration") == 1.0 and len(trajectory.logs) == 1
    return trajectory


class TestArt(EpisodeLaws, ToolLaws):
    trainer = "ART"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        model = Model(*texts)
        trajectory = rolled_out(adapter, model, spec, row)
        assert not any("tools" in request for request in model.requests)
        said = trajectory.messages()
        told = [said[at + 1]["content"] for at in range(len(said) - 1) if said[at]["role"] == "assistant"]
        return Played(trajectory.reward, trajectory.metrics, told=told)


def test_a_call_that_the_length_limit_cut_off_ends_the_episode(adapter: Any) -> None:
    answer = chat_completion('<tool_call>{"name": "order", "argum')
    answer.choices[0].finish_reason = "length"
    trajectory = rolled_out(adapter, Model(answer), recorded_shop.SPEC, recorded_shop.EPISODES[0]["row"])
    assert trajectory.reward == 0.0 and "cut a call off" in trajectory.logs[0]


def test_turns_are_one_trajectory_of_messages_and_choices(adapter: Any) -> None:
    model = Model("3", "7")
    trajectory = rolled_out(adapter, model, GUESS, secret_row(7), temperature=0.5)
    said = [(message["role"], message["content"]) for message in trajectory.messages()]
    assert said == [("user", "guess:"), ("assistant", "3"), ("user", "\n1: higher:"), ("assistant", "7")]
    assert [isinstance(each, dict) for each in trajectory.messages_and_choices] == [True, False, True, False]
    assert model.requests[1] == {"model": "policy", "messages": trajectory.messages()[:3], "temperature": 0.5}
    assert trajectory.metadata["row"] == "x"


def test_reasoning_that_was_split_off_is_part_of_the_completion(adapter: Any) -> None:
    answer = chat_completion("4", reasoning_content="2 and 2")
    trajectory = rolled_out(adapter, Model(answer), SUMS, sum_row())
    assert trajectory.metrics["valid"] == 0.0  # <think>…</think>4 is no number


def test_groups_are_rollouts_of_their_rows(adapter: Any) -> None:
    model = Model(*["4"] * 4)
    groups = adapter.groups(model, SUMS, [sum_row(), adapter.rows(SUMS)[0]], size=2, max_completion_tokens=9)

    async def gather() -> list[list[float]]:
        return [[(await one).reward for one in group] for group in groups]

    assert asyncio.run(gather()) == [[2.0, 2.0], [0.0, 0.0]]
    assert {request["max_completion_tokens"] for request in model.requests} == {9}
    assert [row.id for row in adapter.rows(SUMS)] == ["0+0", "1+1", "2+2", "3+3", "4+4"]
