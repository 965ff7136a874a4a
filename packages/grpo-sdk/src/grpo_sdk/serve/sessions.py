"""Sessions of clients, who play a task turn by turn, one completion at a time."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException

from grpo_sdk.chat.text_form import in_text_form
from grpo_sdk.endpoints.base import SampleKey
from grpo_sdk.endpoints.openai import sent_messages
from grpo_sdk.episodes.player import Player, SteppedEpisode, arun
from grpo_sdk.episodes.turn_action import TurnAction
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.serve.body import abstention_of, bad_request
from grpo_sdk.serve.tasks import ServedTask
from grpo_sdk.task.row import Prompt, Row
from grpo_sdk.task.score import Score
from grpo_sdk.task.tools.calls import spoken
from grpo_sdk.task.tools.tool import listed_tools

MAX_ID_CHARS = 255


class Session:
    """A client's episodes of a task, one after another.

    Args:
        task: The task.

    Attributes:
        task: The task.
        episode_id: Name of the episode; empty before the first `reset`.
        used: Time of the last call, in seconds of the monotonic clock.
    """

    def __init__(self, task: ServedTask) -> None:
        self.task, self.episode_id, self.used = task, "", time.monotonic()
        self._stepped: SteppedEpisode | None = None
        self._lock = asyncio.Lock()

    async def reset(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a new episode and return its first observation.

        Args:
            options: `split` and `index`, or `row` (an id or a whole row), or `seed`, which chooses one; by default a
                random row. `episode_id` names the episode.

        Raises:
            HTTPException: there is no such row, or the task cannot be played here.
        """
        self.task.check_playable()
        episode_id = options.get("episode_id")
        if episode_id is not None and not (isinstance(episode_id, str) and 0 < len(episode_id) <= MAX_ID_CHARS):
            raise bad_request(f"'episode_id' is a text of 1 to {MAX_ID_CHARS} characters.")
        row, is_own = await self._choose(options)
        async with self._lock:
            self.used = time.monotonic()
            self.episode_id = episode_id or uuid.uuid4().hex
            with self.task.server.scorer(self.task) as scorer:
                prompt = "" if self.task.kind == "game" else await self._prompt(scorer, row, is_own=is_own)
                key = SampleKey(0, 0, f"{self.task.label}/{row.id}", secrets.randbelow(2**31))
                self._stepped = stepped = SteppedEpisode(Player(scorer, self.task.opponent), row, prompt, key)
                goes_on = await arun(stepped.begin())
                return self._observation(stepped) if goes_on else await self._end(stepped)

    async def step(self, action: TurnAction) -> dict[str, Any]:
        """Play a completion or a call and return what follows.

        Raises:
            HTTPException: the episode is over, or has not begun; or a call, and the task has no tools.
        """
        own = self.task.task.task
        if action.type == "list_tools":
            return {"observation": {"tools": listed_tools(own.all_tools())}, "reward": None, "done": False}
        if action.type == "call_tool" and not own.has_tools:
            raise bad_request(f"task {self.task.label!r} has no tools: give a text.")
        async with self._lock:
            self.used = time.monotonic()
            stepped = self._stepped
            if stepped is None or stepped.is_over:
                raise HTTPException(HTTPStatus.CONFLICT, "the episode is over: reset begins another.")
            text = self.task.completion(action.text)
            reading = action.reading(text) if own.has_tools else None
            if reading and (action.calls or not action.text) and isinstance(stepped.episode.prompt, str):
                text = in_text_form((spoken(reading, text),))[0]["content"]  # so that the prompt shows the calls
            with self.task.server.scorer(self.task) as scorer:
                if stepped.player.scorer is not scorer:  # that of the step before is closed, with its tools
                    stepped.player.scorer, stepped.episode.tools = scorer, None
                goes_on = await arun(stepped.step(text, reading))
                result = self._observation(stepped) if goes_on else await self._end(stepped)
                result["observation"] |= action.result(stepped.episode.state)
                return result

    def state(self) -> dict[str, Any]:
        """Facts about the episode."""
        episode = None if self._stepped is None else self._stepped.episode
        return {
            "episode_id": self.episode_id or None,
            "step_count": 0 if episode is None else len(episode.turns),
            "task": self.task.label,
            "row": None if episode is None else episode.row.id,
            "done": episode is None or episode.is_over,
        }

    async def _choose(self, options: Mapping[str, Any]) -> tuple[Row, bool]:
        """The row of the options, and whether it is one of the task's own."""
        split, index, seed = options.get("split"), options.get("index"), options.get("seed")
        for name, value in (("index", index), ("seed", seed)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise bad_request(f"{name!r} is a whole number of at least 0.")
        if split is not None and not isinstance(split, str):
            raise bad_request("'split' is the name of a split.")
        reference = options.get("row")
        if reference is not None:
            is_own = isinstance(reference, str) and not reference.lstrip().startswith("{")
            return await self.task.row(reference, split), is_own
        rows = await self.task.rows(split)
        if index is None:
            index = secrets.randbelow(len(rows)) if seed is None else random.Random(seed).randrange(len(rows))
        if index >= len(rows):
            raise bad_request(f"index {index}: there are {len(rows)} rows, from 0 on.")
        return rows[index], True

    async def _prompt(self, scorer: Scorer, row: Row, *, is_own: bool) -> Prompt:
        """The prompt of a row; a worker makes it where the row is somebody else's, who may have made one that hangs."""
        if is_own:
            return self.task.task.prompt(row)
        prompt, why = await asyncio.wrap_future(scorer.prompt(row))
        if prompt is None:
            raise bad_request(f"task {self.task.label!r} makes no prompt of this row: {why}")
        return prompt

    async def _end(self, stepped: SteppedEpisode) -> dict[str, Any]:
        """Score an episode that is over."""
        scores = await arun(stepped.scores())
        self.task.server.metrics.count_scores(self.task.label, scores.values())
        return self._observation(stepped, scores)

    def _observation(self, stepped: SteppedEpisode, scores: Mapping[str, Score] | None = None) -> dict[str, Any]:
        """What OpenEnv calls a result; with scores, that of an episode that is over.

        A policy that plays all roles of a game gets the reward of the role that moved last; `rewards` has those of all.
        """
        episode, last = stepped.episode, stepped.last_role
        score = None if scores is None else scores.get(last) or next(iter(scores.values()))
        observation: dict[str, Any] = {
            "prompt": _sent(episode.prompt) if score is None else None,
            "row": episode.row.id,
            "turn": len(episode.turns),
            "role": episode.state.role if score is None else last,
            "stop": list(self.task.task.task.stop),
            "parts": {} if score is None else score.parts,
            "valid": score is not None and score.valid,
            "solved": score is not None and score.solved,
            "why": "" if score is None else score.why,
            "rewards": {} if scores is None else {role: each.value for role, each in scores.items() if role},
            "story": "" if score is None else episode.story,
        }
        metadata = {"episode_id": self.episode_id, "task": self.task.label}
        if score is not None and score.abstained:
            metadata["abstained"] = str(abstention_of(score))
        return {
            "observation": {**observation, "metadata": metadata},
            "reward": None if score is None else score.value,
            "done": score is not None,
            "metadata": metadata,
        }


def _sent(prompt: Prompt) -> str | list[dict[str, Any]]:
    return prompt if isinstance(prompt, str) else sent_messages(prompt, "reasoning_content")
