"""What a scorer asks its workers, and what they answer, as JSON.

    request:  {"op": an operation, "row": the row as JSON, …}, with what the operation takes beside the row
    answer:   what it returns; {"fault": …, "why": …} where the row cannot be read

The JSON is UTF-8 with surrogates passed through, because a completion decoded byte by byte may hold lone surrogates,
which orjson refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import orjson

from grpo_sdk.errors import DataError
from grpo_sdk.killable.outcome import Outcome, Status
from grpo_sdk.plugins.tasks import received_task
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.game import Move
from grpo_sdk.task.grading import fault_of
from grpo_sdk.task.group_grading import GroupParts, group_parts
from grpo_sdk.task.judging import Graded, JudgeQuestion, Pending
from grpo_sdk.task.row import Message, Prompt, Row
from grpo_sdk.task.score import MAX_WHY_CHARS, Fault, Score
from grpo_sdk.task.tools.calls import Call, ToolCall, ToolTurn
from grpo_sdk.task.tools.session import Session, where_of
from grpo_sdk.task.turns import Toolbox, TurnState, partner_of

OPERATIONS: Mapping[str, Callable[[BoundTask], Callable[..., object]]] = {
    "grade": lambda task: task.grader.grade,
    "refuse": lambda task: task.grader.refuse,
    "out_of_time": lambda task: task.grader.out_of_time,
    "answer": lambda task: task.answer,
    "opponent_prompt": lambda task: task.grader.opponent_prompt,
    "prompt": lambda task: task.prompt,
    "next_turn": lambda task: task.next_turn,
    "group": lambda task: partial(group_parts, task),
}
"""What a worker can be asked about a row: a function of keyword arguments, `row` among them."""

MAX_KEPT_ROWS = 64
"""Rows that a worker keeps: the completions of a group share theirs."""

_FAULTS: dict[Status, Fault] = {
    "timeout": "timeout",
    "error": "reward",
    "crashed": "reward",
    "unavailable": "infrastructure",
}


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


_surrogates_encode = json.JSONEncoder(ensure_ascii=False, default=_fields).encode


def encode(content: object) -> bytes:
    """Plain values and dataclasses with slots as JSON."""
    try:
        return orjson.dumps(content)
    except TypeError:
        return _surrogates_encode(content).encode("utf-8", "surrogatepass")


def decode(data: bytes) -> Any:
    """The plain values that `encode` wrote."""
    try:
        return orjson.loads(data)
    except ValueError:
        return json.loads(data.decode("utf-8", "surrogatepass"))


def make_handler(*sent: str) -> Callable[[bytes], bytes]:
    """Load the task that was sent and return the function that answers each request; a worker calls it once."""
    return handler_of(received_task(*sent))


def handler_of(task: BoundTask) -> Callable[[bytes], bytes]:
    """The function that answers each request about a task."""
    kept: dict[str, Row] = {}

    def handle(payload: bytes) -> bytes:
        request = decode(payload)
        row_json = request.pop("row")
        if (row := kept.get(row_json)) is None:
            try:
                row = task.row_from_json(row_json)
            except DataError as error:  # whoever gave the row is wrong, not the reward
                return encode({"fault": "infrastructure", "why": str(error)})
            with suppress(TypeError):  # it holds e.g. a list, which a reward may change: each completion gets its own
                hash(row)
                if len(kept) == MAX_KEPT_ROWS:
                    kept.clear()
                kept[row_json] = row
        return encode(OPERATIONS[request.pop("op")](task)(row=row, **request))

    return handle


def make_tool_handler(*sent: str) -> Callable[[bytes], bytes]:
    """As `make_handler`, for a worker that also keeps the tools of episodes; see `Sessions`."""
    task = received_task(*sent)
    return Sessions(task, handler_of(task)).handle


class Sessions:
    """The episodes whose tools are in this process, by name.

        begin   makes the tools of an episode, or makes them anew and repeats its turns: the first prompt
        answer  runs calls
        score   scores the episode as it is now
        end     closes it

    A request about an episode that is not here gets {"is_lost": true}: its worker was killed in between.

    Args:
        task: A task with tools.
        handle: Answers every other request.
    """

    def __init__(self, task: BoundTask, handle: Callable[[bytes], bytes]) -> None:
        self._task, self._handle = task, handle
        self._kept: dict[str, Session] = {}

    def handle(self, payload: bytes) -> bytes:
        """Answer a request."""
        request = decode(payload)
        if "episode" not in request:
            return self._handle(payload)
        try:
            return encode(self._answer(**request))
        except DataError as error:  # whoever gave the row is wrong, not the tools
            return encode({"fault": "infrastructure", "why": str(error)})
        except BaseException as error:  # the task's code met what the policy wrote
            if (session := self._kept.pop(request["episode"], None)) is not None:
                session.close_safely()
            return encode(_fields(fault_of(where_of(error, request["where"]), error)))

    def _answer(self, op: str, episode: str, row: str, where: str, **arguments: Any) -> object:
        task, config = self._task.task, self._task.config
        if op == "begin":
            read = self._task.row_from_json(row)
            session = self._kept[episode] = Session(task, config, read, arguments["listed"])
            session.repeat(turns_of(arguments["turns"]))
            toolbox = partner_of(task, config, self._task.max_turns)
            assert isinstance(toolbox, Toolbox)
            return {"prompt": toolbox.opened(read, session.opening)}
        if episode not in self._kept:
            return {"is_lost": True}
        if op == "answer":
            return {"calls": self._kept[episode].answer([ToolCall(**call) for call in arguments["calls"]])}
        if op == "score":
            session = self._kept[episode]
            return self._task.grader.grade(row=self._task.row_from_json(row), session=session, **arguments)
        self._kept.pop(episode).close()
        return {}


def turns_of(content: Sequence[Mapping[str, Any]]) -> list[ToolTurn]:
    """Turns of an episode with tools, from plain values."""
    return [ToolTurn(turn["text"], tuple(Call(**call) for call in turn["calls"]), turn["problem"]) for turn in content]


def content_of(outcome: Outcome, task: str) -> Any:
    """What a worker answered, or the fault with the reason, which names the task."""
    return decode(outcome.value) if outcome.value else _fields(abstention(outcome.why, task, _FAULTS[outcome.status]))


def graded_of(outcome: Outcome, task: str) -> Graded:
    """The score that a worker answered with, or what judges must be asked first."""
    content = content_of(outcome, task)
    if "questions" in content:
        return Pending(content["parts"], _questions(content))
    return Score(**{"value": None, **content})


def score_of(outcome: Outcome, task: str) -> Score:
    """The score that a worker answered with, of what waits for no judge."""
    return Score(**{"value": None, **content_of(outcome, task)})


def abstention(why: str, task: str, fault: Fault) -> Score:
    """A score without value, whose reason names the task."""
    return Score(None, why=f"task {task}: {why}"[:MAX_WHY_CHARS], fault=fault)


def text_of(outcome: Outcome) -> Any:
    """The text or the prompt that a worker answered with; None where it failed."""
    content = decode(outcome.value) if outcome.status == "ok" else None
    return None if isinstance(content, dict) else _prompt(content)


def turn_state_of(outcome: Outcome, task: str, moves: Sequence[Move]) -> TurnState:
    """The turn state that a worker answered with, or one with the fault, after the `moves` of the request."""
    content = content_of(outcome, task)
    if content["fault"] and "moves" not in content:
        return TurnState(tuple(moves), fault=content["fault"], why=content["why"])
    tuples = {name: tuple(content[name]) for name in ("moves", "replaced", "messages")}
    return TurnState(**{**content, **tuples, "prompt": _prompt(content["prompt"])})


def group_parts_of(outcome: Outcome, task: str) -> GroupParts:
    """The group rewards that a worker answered with, or the fault."""
    content = content_of(outcome, task)
    if "questions" not in content:
        return GroupParts(fault=content["fault"], why=content["why"])
    return GroupParts(**{**content, "questions": _questions(content)})


def _questions(content: Mapping[str, Any]) -> dict[str, JudgeQuestion]:
    return {name: JudgeQuestion.from_json(question) for name, question in content["questions"].items()}


def _prompt(content: Any) -> Prompt | None:
    if not isinstance(content, list):
        return cast("str | None", content)
    return cast("tuple[Message, ...]", tuple(content))
