"""Any task as an environment of OpenEnv, in this process.

    from grpo_sdk.interop.openenv import TaskAction, TaskEnvironment
    environment = TaskEnvironment("math.gsm8k")
    observation = environment.reset(split="train", index=0)
    observation = environment.step(TaskAction(text="…"))        # .reward, .parts, .done

`create_app(lambda: TaskEnvironment("math.gsm8k"), TaskAction, TaskObservation)` serves one by OpenEnv's own server;
`grpo serve` serves all of them. A completion that cannot be scored ends its episode with the reward None, and
`metadata["abstained"]` says why. Read in openenv 0.10.0.

A task with tools is a tool environment: `list_tools` and `call_tool` are actions, as `MCPToolClient` sends them. A
`call_tool` is a turn of one call; a completion with all its calls is `TaskAction(text=…, calls=[…])`.
"""

from __future__ import annotations

import random
import secrets
import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Self, TypeAlias, get_args

from pydantic import Field

from grpo_sdk.episodes.episode import Reply
from grpo_sdk.episodes.player import Steps, arun, run
from grpo_sdk.episodes.turn_action import TurnAction
from grpo_sdk.errors import UserError
from grpo_sdk.interop.adapter import Conversation, TaskAdapter, requires, shared_adapter
from grpo_sdk.plugins.loading import describe
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.scoring.parts import all_parts
from grpo_sdk.task.row import Row, Split
from grpo_sdk.task.tools.tool import listed_tools

with requires("openenv", "pip install openenv"):
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.mcp_types import (
        CallToolAction,
        CallToolObservation,
        ListToolsAction,
        ListToolsObservation,
        Tool,
    )
    from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State


class TaskAction(TurnAction, Action):
    """What a policy does in a turn; see `TurnAction`."""


AnyAction: TypeAlias = TurnAction | CallToolAction | ListToolsAction


class TaskObservation(Observation):
    """What follows a turn.

    Attributes:
        messages: Whole prompt of the next completion; empty when the episode is over.
        row: Id of the row.
        stop: Texts that end a completion.
        parts: Value of every reward, when the episode is over.
        valid: Whether the completion held an answer.
        solved: Whether it is right.
        why: Reason of the score, in one line.
        story: The episode as people read it, when it is over.
    """

    messages: list[dict[str, Any]]
    row: str
    stop: list[str]
    parts: dict[str, float] = Field(default_factory=dict)
    valid: bool = False
    solved: bool = False
    why: str = ""
    story: str = ""


class TaskCallObservation(TaskObservation, CallToolObservation):
    """What follows a call by itself: its `result`, or the `error` of a broken tool."""


class TaskEnvironment(Environment[TaskAction, Observation, State]):
    """Episodes of a task, one after another.

    Args:
        task: Spec of the task.

    Raises:
        UserError: OpenEnv cannot run the task.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, task: str) -> None:
        super().__init__()
        self._adapter: TaskAdapter = shared_adapter(task, "OpenEnv", "episode", takes_tools="calls")
        self._row = ""
        self._episode_id: str | None = None
        self._conversation: Conversation | None = None

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> TaskObservation:
        """Begin an episode.

        Args:
            seed: Chooses the row where no index is given; without both it is a random one.
            episode_id: Name of the episode.
            options: `split` and `index`, or `row`: a whole row as JSON.

        Raises:
            UserError: there is no such row.
            UnscoredError: the episode ended before its first turn.
        """
        return run(self._reset(seed, episode_id, **options))

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **options: Any
    ) -> TaskObservation:
        """Like `reset`, without blocking the event loop."""
        return await arun(self._reset(seed, episode_id, **options))

    def step(self, action: AnyAction, timeout_s: float | None = None, **options: Any) -> Observation:
        """Play a completion or a call; the last one has the reward of the episode. `list_tools` needs no episode.

        Raises:
            UserError: the episode is over, or has not begun.
        """
        return run(self._step(action))

    async def step_async(self, action: AnyAction, timeout_s: float | None = None, **options: Any) -> Observation:
        """Like `step`, without blocking the event loop."""
        return await arun(self._step(action))

    @property
    def mcp_client(self) -> Self | None:
        """What OpenEnv's server asks for the tools where `MCPToolClient` lists and calls them beside `step`."""
        return self if self._has_tools else None

    def is_connected(self) -> bool:
        """See `mcp_client`."""
        return True

    async def list_tools(self) -> list[Tool]:
        """See `mcp_client`."""
        return self._tools()

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Observation:
        """See `mcp_client`; answers as `step`."""
        return await self.step_async(TaskAction(type="call_tool", tool_name=name, arguments=arguments))

    @property
    def state(self) -> State:
        """Facts about the episode."""
        turns = 0 if self._conversation is None else len(self._conversation.episode.turns)
        return State(episode_id=self._episode_id, step_count=turns, task=self._adapter.task.spec, row=self._row)

    def get_metadata(self) -> EnvironmentMetadata:
        """Name, description and version of the task."""
        task = self._adapter.task
        return EnvironmentMetadata(name=task.name, description=describe(task.task), version=str(task.task.version))

    def list_splits(self) -> list[str]:
        """The splits of the task."""
        return list(get_args(Split))

    def num_tasks(self, split: str) -> int:
        """Number of rows, which OpenEnv calls tasks."""
        return len(self._split(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """A row without its gold."""
        return self._described(index, self._split(split)[index])

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Rows from `start` to before `stop`."""
        return [self._described(index, row) for index, row in list(enumerate(self._split(split)))[start:stop]]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """All rows of a split."""
        return self.get_task_range(split)

    def _described(self, index: int, row: Row) -> dict[str, Any]:
        return {
            "id": row.id,
            "index": index,
            "difficulty": row.difficulty,
            "messages": self._adapter.first_messages(row),
        }

    def _split(self, split: str) -> Sequence[Row]:
        if split not in get_args(Split):
            raise UserError(f"split {split!r}: there are {', '.join(get_args(Split))}.")
        return _rows(self._adapter.task.spec, split)

    def _reset(
        self, seed: int | None, episode_id: str | None, split: str | None = None, index: int | None = None,
        row: str | None = None,
    ) -> Steps[TaskObservation]:  # fmt: skip
        if row is not None:
            chosen = self._adapter.row(row)
        else:
            rows = self._split(split or self._adapter.task.config.split)
            if index is None:
                index = secrets.randbelow(len(rows)) if seed is None else random.Random(seed).randrange(len(rows))
            if not 0 <= index < len(rows):
                raise UserError(f"index {index}: there are {len(rows)} rows, from 0 on.")
            chosen = rows[index]
        self._row, self._episode_id = chosen.id, episode_id or uuid.uuid4().hex
        self._conversation = Conversation(self._adapter, chosen)
        return self._observation((yield from self._conversation.begin()))

    def _step(self, action: AnyAction) -> Steps[Observation]:
        if not isinstance(action, TurnAction):  # OpenEnv's own
            action = TurnAction(**action.model_dump(exclude={"metadata"}))
        if action.type == "list_tools":
            return ListToolsObservation(tools=self._tools())
        conversation = self._conversation
        if conversation is None or conversation.is_over:
            raise UserError("the episode is over: reset begins another.")
        if action.type == "call_tool" and not self._has_tools:
            raise UserError(f"task {self._adapter.task.name!r} has no tools: give a text.")
        text = self._adapter.completion(action.text)
        yield from conversation.reply(Reply(text, None, action.reading(text) if self._has_tools else None))
        call = action.result(conversation.episode.state)
        if not conversation.is_over:
            return self._observation(conversation.messages, **call)
        score = yield from conversation.score()
        if score.abstained:
            call["metadata"] = {"abstained": f"{score.fault}: {score.why}"}
        return self._observation(
            [],
            done=True,
            reward=score.value,
            parts={} if score.abstained else all_parts(self._adapter.task, score),
            valid=score.valid,
            solved=score.solved,
            why=score.why,
            story=conversation.episode.story.encode(errors="replace").decode(),  # JSON has no lone surrogates
            **call,
        )

    def _observation(self, messages: list[dict[str, Any]], **facts: Any) -> TaskObservation:
        kind = TaskCallObservation if "tool_name" in facts else TaskObservation
        return kind(messages=messages, row=self._row, stop=list(self._adapter.task.task.stop), **facts)

    def _tools(self) -> list[Tool]:
        return [Tool(**each) for each in listed_tools(self._adapter.task.task.all_tools())]

    @property
    def _has_tools(self) -> bool:
        return self._adapter.task.task.has_tools


@lru_cache(maxsize=32)
def _rows(spec: str, split: str) -> Sequence[Row]:
    """Rows of a split, which the environments of a task share."""
    return load_task(spec, split=split).rows()
