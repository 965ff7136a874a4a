"""Scores of tasks that a server plays: it is asked from this process, many times at once; workers score its replies."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

from grpo_sdk.endpoints.background import BackgroundLoop
from grpo_sdk.errors import DataError, InfrastructureError, UserError
from grpo_sdk.killable.secrets import withhold
from grpo_sdk.scoring.wire import abstention
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.game import Move
from grpo_sdk.task.grading import fault_of, with_parts
from grpo_sdk.task.remote import Remote, read_moves
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score
from grpo_sdk.task.turns import TurnState, remote_of

CLOSE_S = 2.0
"""Time for saying goodbye to a server."""

_background = BackgroundLoop("remote")


class RemoteScoring:
    """How the completions of a task with a `remote` are scored.

    Args:
        task: The task.
        grade: Has a worker run `validate` and the rewards on a reply, with the row as JSON.
        finished: Called with every score, which it returns.
    """

    def __init__(
        self, task: BoundTask, grade: Callable[[str, str], Future[Score]], finished: Callable[[Score], Score]
    ) -> None:
        self._task, self._grade, self._finished = task, grade, finished
        self._remote: Remote | None = None
        self._process = os.getpid()
        self._is_closed = False
        for variable in remote_of(task.task, task.config).secrets:
            withhold(variable)

    def submit(self, text: str, row_json: str) -> Future[Score]:
        """Queue one completion; see `Scorer.submit`."""
        return self._submit(self._score(text, row_json))

    def next_turn(self, moves: Sequence[Move], row: Row) -> Future[TurnState]:
        """Queue the next turn; see `Scorer.next_turn`."""
        return self._submit(self._follow(moves, row))

    def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        if self._remote is not None and self._process == os.getpid():
            remote, self._remote = self._remote, None
            _background.submit(asyncio.wait_for(remote.close(), CLOSE_S)).exception(2 * CLOSE_S)

    def _asked(self) -> Remote:
        if self._remote is None or self._process != os.getpid():  # a forked child has no loop that its parent's is in
            self._remote, self._process = remote_of(self._task.task, self._task.config), os.getpid()
        return self._remote

    async def _score(self, text: str, row_json: str) -> Score:
        try:
            row = self._task.row_from_json(row_json)
        except DataError as error:  # whoever gave the row is wrong, not the server
            return self._finished(abstention(str(error), self._task.name, "infrastructure"))
        try:
            moves = read_moves(text) if self._task.has_turns else (text,)
            reply = await self._asked().reply(moves, row)
            score = with_parts(await asyncio.wrap_future(self._grade(reply.text, row_json)), reply.parts)
        except UserError:
            raise
        except Exception as error:  # whatever the server has made of untrusted text
            fault = fault_of("remote", error)
            score = abstention(fault.why, self._task.name, fault.fault)
        return self._finished(score)

    async def _follow(self, moves: Sequence[Move], row: Row) -> TurnState:
        try:
            following = await self._asked().follow(moves, row)
        except UserError:
            raise
        except Exception as error:  # as above
            fault = fault_of("remote", error)
            return TurnState(tuple(moves), fault=fault.fault, why=f"task {self._task.name}: {fault.why}")
        return TurnState(following.moves, prompt=following.prompt)

    def _submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        if self._is_closed:
            work.close()
            raise InfrastructureError("the scorer is closed.")
        return _background.submit(work)
