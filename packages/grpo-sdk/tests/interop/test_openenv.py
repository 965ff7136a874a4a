"""The environment for OpenEnv without it; tests/test_peers.py runs it in OpenEnv itself."""

import asyncio
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import pydantic
import pytest
from absent_trainers import GUESS, SUMS, EpisodeLaws, Played, secret_row, sum_row, trainer

from grpo_sdk.errors import UserError

A, O, S = TypeVar("A"), TypeVar("O"), TypeVar("S")  # noqa: E741 - as OpenEnv's


class Environment(Generic[A, O, S]):
    """OpenEnv's environment."""


class Action(pydantic.BaseModel):
    """OpenEnv's action."""


class Observation(pydantic.BaseModel):
    """OpenEnv's observation."""

    done: bool = False
    reward: float | None = None
    metadata: dict[str, Any] = {}


class State(pydantic.BaseModel, extra="allow"):
    """OpenEnv's state, and its metadata of an environment."""


@pytest.fixture(scope="module")
def adapter() -> Iterator[Any]:
    packages = {
        "openenv.core.env_server.interfaces": {"Environment": Environment},
        "openenv.core.env_server.types": {
            "Action": Action, "EnvironmentMetadata": State, "Observation": Observation, "State": State,
        },
    }  # fmt: skip
    with trainer("openenv", packages) as adapter:
        yield adapter


class TestOpenEnv(EpisodeLaws):
    trainer = "OpenEnv"

    def played(self, adapter: Any, spec: str, row: str, *texts: str) -> Played:
        environment = adapter.TaskEnvironment(spec)
        seen = environment.reset(row=row)
        for text in texts:
            assert not seen.done and seen.reward is None
            seen = environment.step(adapter.TaskAction(text=text))
        assert seen.done and seen.messages == [] and texts[-1] in seen.story
        values = {**seen.parts, "solved": float(seen.solved), "valid": float(seen.valid)}
        return Played(seen.reward, values, seen.metadata.get("abstained", ""))


def test_turns_are_steps(adapter: Any) -> None:
    environment = adapter.TaskEnvironment(GUESS)

    async def play() -> Any:
        begin = await environment.reset_async(row=secret_row(7), episode_id="e")
        return begin, await environment.step_async(adapter.TaskAction(text="3"))

    begin, middle = asyncio.run(play())
    assert [message["content"] for message in begin.messages] == ["guess:"]
    assert [message["content"] for message in middle.messages] == ["guess:", "3", "\n1: higher:"]
    assert environment.state.step_count == 1 and environment.state.episode_id == "e"


def test_rows_are_chosen_by_index_or_seed(adapter: Any) -> None:
    environment = adapter.TaskEnvironment(SUMS)
    assert environment.reset(split="train", index=2).row == "2+2"
    assert environment.reset(seed=5).row == environment.reset(seed=5).row
    assert environment.num_tasks("train") == 5 and environment.list_splits() == ["train", "validation", "test"]
    assert [each["id"] for each in environment.get_task_range("train", 1, 3)] == ["1+1", "2+2"]
    described = {"id": "2+2", "index": 2, "difficulty": None, "messages": [{"role": "user", "content": "2 + 2 ="}]}
    assert environment.get_task("train", 2) == described  # and not its gold
    for options, message in (({"index": 5}, "index 5: .*5 rows"), ({"index": -1}, "-1"), ({"split": "dev"}, "dev")):
        with pytest.raises(UserError, match=message):
            environment.reset(**options)


def test_a_step_needs_an_episode(adapter: Any) -> None:
    environment = adapter.TaskEnvironment(SUMS)
    with pytest.raises(UserError, match="the episode is over"):
        environment.step(adapter.TaskAction(text="4"))
    environment.reset(row=sum_row())
    environment.step(adapter.TaskAction(text="4"))
    with pytest.raises(UserError, match="the episode is over"):
        environment.step(adapter.TaskAction(text="4"))
