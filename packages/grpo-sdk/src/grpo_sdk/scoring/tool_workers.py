"""Episodes whose tools run in killable workers: each episode's in one worker, those of many episodes at once."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from tempfile import mkdtemp
from typing import Any

from grpo_sdk.endpoints.background import BackgroundLoop
from grpo_sdk.errors import InfrastructureError
from grpo_sdk.killable import KillablePool, Outcome
from grpo_sdk.scoring.wire import content_of, encode, graded_of
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.judging import Graded
from grpo_sdk.task.row import Prompt
from grpo_sdk.task.score import Score
from grpo_sdk.task.tools.calls import Call, Reading, ToolCall, ToolTurn, read_tool_turns
from grpo_sdk.task.tools.session import FOLDERS_VARIABLE, digests_of, needs_folder, side_by_side
from grpo_sdk.task.tools.tool import Tool
from grpo_sdk.task.turns import Toolbox, TurnState, is_end, partner_of

DEFAULT_TOOL_WORKERS = 16
"""Processes that run tools, at most; an episode beyond them shares one, and waits for the others' calls."""

BEGIN_AGAIN_S = (0.5, 1.0, 2.0, 0.0)
"""Pauses after an episode could not begin, e.g. while a process that was killed is replaced."""

Verdicts = Mapping[str, float]
"""Raw values of rewards that are known."""

_MODULE = "grpo_sdk.scoring.wire"
_background = BackgroundLoop("tools")


class ToolWorkers:
    """The worker processes of a task's tools.

    A worker keeps the environments of its episodes. It is killed when a call takes too long; its other episodes are
    then made anew in its successor, where their calls are repeated.

    Args:
        task: A task with tools.
        sent: The task as workers get it.
        workers: Processes at most.
        timeout_s: Limit of a call whose tool states none.
        memory_mib: Address space that a worker may take (Linux); None is no limit.
        late: The request for the score of an episode whose scoring ran out of time; None where that abstains.
        grade: Scores an episode whose tools are gone, by repeating it, as far as it can with verdicts that are known.
        judged: Scores an episode and asks its judges, given what scores it as far as it can.

    Attributes:
        left: Episodes that are over or forgotten. The garbage collector puts them here, wherever it comes, so that no
            lock may be taken for it.
    """

    def __init__(
        self,
        task: BoundTask,
        sent: tuple[str, ...],
        *,
        workers: int,
        timeout_s: float,
        memory_mib: int | None,
        late: Callable[[str], bytes] | None,
        grade: Callable[[str, str, Verdicts], Future[Graded]],
        judged: Callable[[Callable[[Verdicts], Future[Graded]], str], Future[Score]],
    ) -> None:
        self.task, self.timeout_s, self.late, self.grade, self.judged = task, timeout_s, late, grade, judged
        toolbox = partner_of(task.task, task.config, task.max_turns)
        assert isinstance(toolbox, Toolbox)
        self.toolbox = toolbox
        self.tools: dict[str, Tool] = {tool.name: tool for tool in task.task.all_tools()}
        self.listed = digests_of(self.tools.values()) if task.task.servers() else None
        self._starts_s = sum(server.start_s for server in task.task.servers())
        self._workers = workers
        self._remove_folder: Callable[[], object] = lambda: None
        folder = mkdtemp(prefix="grpo-episodes-") if needs_folder(task.task) else None
        if folder is not None:
            self._remove_folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._pool = partial(
            KillablePool,
            f"{_MODULE}:make_tool_handler",
            args=sent,
            workers=1,
            memory_mib=memory_mib,
            name=f"tools-{task.name}",
            has_spare=False,
            environment=None if folder is None else {FOLDERS_VARIABLE: folder},
            preload=_MODULE,
        )
        self._lock = threading.Lock()
        self.left: SimpleQueue[tuple[KillablePool, str, str]] = SimpleQueue()
        self._live: dict[KillablePool, int] = {}
        self._is_closed = False
        self._numbers = itertools.count()

    @property
    def restarts(self) -> int:
        """Processes that took the place of one that ended."""
        with self._lock:
            return sum(pool.stats.restarts for pool in self._live)

    def session(self, row_json: str) -> ToolSession:
        """The tools of a new episode, in the worker that has the fewest."""
        with self._lock:
            if self._is_closed:
                raise InfrastructureError("the scorer is closed; make a new one.")
            self._drop_left()
            pool = min(self._live, key=self._live.__getitem__, default=None)
            if pool is None or (self._live[pool] and len(self._live) < self._workers):
                pool = self._pool()
                self._live[pool] = 0
            self._live[pool] += 1
        return ToolSession(self, pool, f"{os.getpid()}-{next(self._numbers)}", row_json)

    def limit_of(self, turns: Sequence[ToolTurn]) -> float:
        """Seconds in which an episode can begin and be repeated, each call within its tool's limit."""
        return self._starts_s + self.timeout_s + sum(tool.timeout_s or self.timeout_s for tool in self._called(turns))

    def repeated(self, text: str) -> tuple[float, str]:
        """(the same of a text that is scored, how messages name its calls): `repeating look_up() and order()`."""
        turns = read_tool_turns(text)[0]
        names = dict.fromkeys(f"{tool.name}()" for tool in self._called(turns))
        return self.limit_of(turns), f"repeating {' and '.join(names)}"[:100] if names else ""

    def _called(self, turns: Sequence[ToolTurn]) -> list[Tool]:
        return [self.tools[call.name] for turn in turns for call in turn.calls if call.ran and call.name in self.tools]

    def drop_left(self) -> None:
        """Close the environments of episodes that nobody plays any more."""
        with self._lock:
            self._drop_left()

    def _drop_left(self) -> None:
        while not self.left.empty():
            pool, name, row_json = self.left.get()
            if pool in self._live:
                self._live[pool] -= 1
                request = {"op": "end", "episode": name, "row": row_json, "where": "close()"}
                pool.submit_as(encode(request), self.timeout_s, self._closed)

    def _closed(self, outcome: Outcome) -> None:
        """Say that `close()` failed, which no score depends on."""
        if outcome.status == "unavailable":  # its worker is gone
            return
        if why := outcome.why or content_of(outcome, self.task.name).get("why"):
            warnings.warn(f"task {self.task.name}: close() of its environment failed: {why}", stacklevel=2)

    def close(self) -> None:
        """Stop the workers."""
        with self._lock:
            pools, self._live, self._is_closed = list(self._live), {}, True
        for pool in pools:
            pool.close()
        self._remove_folder()


class ToolSession:
    """The tools of one episode, seen from the process that samples.

    Args:
        workers: The workers.
        pool: The one that keeps the episode.
        name: Name of the episode there.
        row_json: The row.

    Attributes:
        name: Name of the episode, which no other of this process has.
    """

    def __init__(self, workers: ToolWorkers, pool: KillablePool, name: str, row_json: str) -> None:
        self.name = name
        self._workers, self._pool, self._row_json = workers, pool, row_json
        self._leave = weakref.finalize(self, workers.left.put, (pool, name, row_json))
        self._leave.atexit = False

    def begin(self) -> Future[TurnState]:
        """Make the environment; the state has the first prompt."""
        return _background.submit(self._begun())

    def answer(self, turns: Sequence[ToolTurn], text: str, reading: Reading, opened: Prompt) -> Future[TurnState]:
        """Run the calls of a completion.

        Args:
            turns: The turns before it.
            text: The completion.
            reading: What it says.
            opened: The first prompt of the episode.
        """
        return _background.submit(self._answered(tuple(turns), text, reading, opened))

    def play(self, turns: Iterable[ToolTurn]) -> Iterator[TurnState]:
        """Make the environment and run the calls of turns, waiting for each.

        Args:
            turns: The turns, each made when those before it are answered; results that they have are not looked at.

        Yields:
            The state at the beginning and after each turn, until the episode is over or a tool fails.
        """
        state = self.begin().result()
        yield state
        opened, remaining = state.prompt or "", iter(turns)
        while state.prompt is not None and not state.fault and (turn := next(remaining, None)) is not None:
            calls = tuple(ToolCall(call.name, call.arguments, are_texts=call.are_texts) for call in turn.calls)
            reading = Reading(turn.text, calls=calls, problem=turn.problem)
            state = self.answer(state.moves, turn.text, reading, opened).result()
            yield state

    def score(self, text: str) -> Future[Score]:
        """Score the episode by its environment as it is now, which is dropped."""
        score = self._workers.judged(lambda known: _background.submit(self._graded(text, known)), self._row_json)

        def drop(_: object) -> None:
            self._leave()
            self._workers.drop_left()

        score.add_done_callback(drop)
        return score

    async def _begun(self) -> TurnState:
        made = await self._make((), "reset()")
        if "prompt" not in made:
            return TurnState((), fault=made["fault"], why=f"task {self._workers.task.name}: {made['why']}")
        prompt = made["prompt"]
        return self._workers.toolbox.state((), prompt if isinstance(prompt, str) else tuple(prompt))

    async def _answered(self, turns: tuple[ToolTurn, ...], text: str, reading: Reading, opened: Prompt) -> TurnState:
        task = self._workers.task.task
        calls: list[Call] = []
        for group in side_by_side(reading.calls[: task.max_calls], self._workers.tools):
            before = (*turns, ToolTurn(text, tuple(calls)))
            answered = await self._run(group, before)
            if "calls" in answered:
                calls += [Call(**call) for call in answered["calls"]]
            elif task.on_tool_failure == "abstain" or answered["fault"] == "infrastructure":
                why = f"task {self._workers.task.name}: {answered['why']}"
                return TurnState(before, fault=answered["fault"], why=why)
            else:
                calls += [Call(call.name, call.arguments or {}, answered["why"], ok=False, ran=False) for call in group]
            if is_end(task, calls[-1]):  # what stands behind it is not run
                break
        else:
            if (surplus := len(reading.calls) - task.max_calls) > 0:
                note = f"{surplus} more calls were not run: a turn has at most {task.max_calls}."
                calls.append(Call(reading.calls[task.max_calls].name, {}, note, ok=False, ran=False))
        return self._workers.toolbox.state((*turns, ToolTurn(text, tuple(calls), reading.problem)), opened)

    async def _graded(self, text: str, known: Verdicts) -> Graded:
        workers, task = self._workers, self._workers.task.name
        late = None if workers.late is None else partial(workers.late, self._row_json)
        outcome = await self._ask("score", "the score", workers.timeout_s, fallback=late, text=text, known=known)
        if outcome.status != "ok" or not content_of(outcome, task).get("is_lost"):
            return graded_of(outcome, task)
        return await asyncio.wrap_future(workers.grade(text, self._row_json, known))

    async def _run(self, calls: Sequence[ToolCall], before: Sequence[ToolTurn]) -> dict[str, Any]:
        """The answers to calls, or the fault of a tool, which the reason names."""
        tools, limit = self._workers.tools, self._workers.timeout_s
        limits = [tools[call.name].timeout_s or limit for call in calls if call.name in tools]
        where = " and ".join(f"tool {call.name}()" for call in calls)[:100]
        while True:
            outcome = await self._ask("answer", where, max(limits, default=limit), calls=list(calls))
            if outcome.status != "ok":
                return {**content_of(outcome, self._workers.task.name), "why": f"{where}: {outcome.why}"}
            answered: dict[str, Any] = content_of(outcome, self._workers.task.name)
            if not answered.get("is_lost"):
                return answered
            made = await self._make(before, "repeating an episode whose worker was killed")
            if "prompt" not in made:
                return {**made, "fault": "infrastructure"}

    async def _make(self, turns: Sequence[ToolTurn], where: str) -> dict[str, Any]:
        limit = self._workers.limit_of(turns)
        for pause_s in BEGIN_AGAIN_S:
            outcome = await self._ask("begin", where, limit, turns=list(turns), listed=self._workers.listed)
            if outcome.status != "unavailable":
                break
            await asyncio.sleep(pause_s)
        made: dict[str, Any] = content_of(outcome, self._workers.task.name)
        return made if outcome.status == "ok" else {**made, "why": f"{where}: {outcome.why}"}

    async def _ask(
        self, op: str, where: str, limit: float, *, fallback: Callable[[], bytes] | None = None, **arguments: object
    ) -> Outcome:
        request = {"op": op, "episode": self.name, "row": self._row_json, "where": where, **arguments}
        future = self._pool.submit_as(
            encode(request), limit, lambda outcome: outcome, fallback=fallback, is_repeatable=op == "begin"
        )
        return await asyncio.wrap_future(future)
