"""Requests and answers between a scorer and its workers, and the handler that workers run.

    request:  text, row JSON, then each prediction, every one of them length | bytes
    answer:   the score as JSON

    request:  OUT_OF_TIME, then the same with the reason for the text
    answer:   the score of a completion whose limit ran out, as JSON

    request:  OPPONENT_PROMPT, then the same without predictions
    answer:   the opponent's prompt as JSON; null where there is none

    request:  REFUSED, then the same with the reason, why the completion counts as invalid, for the predictions
    answer:   the score as JSON

    request:  ANSWER, then the same
    answer:   the validator's answer as JSON; null where it gives none

    request:  GROUP, then an empty text, row JSON, then each valid completion of a prompt
    answer:   what the group rewards give to each, `GroupParts` as JSON

    request:  PROMPT, then the same
    answer:   the row's prompt as JSON

    request:  JUDGED, then text, row JSON and the raw values that are known, as JSON
    answer:   the score as JSON, or what judges must be asked first, `Pending` as JSON

    request:  NEXT_TURN, then the same with the moves made so far, as JSON, for the text
    answer:   what comes next, a `TurnState` as JSON

Text travels as UTF-8 with surrogates passed through, because a completion decoded byte by byte may hold lone
surrogates, which JSON in UTF-8 cannot carry.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any, cast

from grpo_sdk.errors import DataError
from grpo_sdk.killable.outcome import Outcome, Status
from grpo_sdk.plugins.tasks import received_task
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.game import Move
from grpo_sdk.task.group_grading import GroupParts, group_parts
from grpo_sdk.task.judging import Graded, JudgeQuestion, Pending
from grpo_sdk.task.row import Message, Prompt
from grpo_sdk.task.score import MAX_WHY_CHARS, Fault, Score
from grpo_sdk.task.turns import TurnState

OPPONENT_PROMPT = b"\xff\xff\xff\xff"
"""Marks a request for the opponent's prompt: as a length it would announce 4 GiB of text, which is never sent."""

NEXT_TURN = b"\xfe\xff\xff\xff"
"""Marks a request for what comes after some turns."""

OUT_OF_TIME = b"\xfd\xff\xff\xff"
"""Marks a request for the score of a completion whose limit ran out."""

REFUSED = b"\xfc\xff\xff\xff"
"""Marks a request for the score of a completion that is invalid, though the validator takes it."""

ANSWER = b"\xfb\xff\xff\xff"
"""Marks a request for the validator's answer."""

GROUP = b"\xfa\xff\xff\xff"
"""Marks a request for the group rewards of the completions of a prompt."""

PROMPT = b"\xf9\xff\xff\xff"
"""Marks a request for the prompt of a row that somebody else wrote."""

JUDGED = b"\xf8\xff\xff\xff"
"""Marks a request for a score of which judges decide parts."""

_KINDS = (OPPONENT_PROMPT, NEXT_TURN, OUT_OF_TIME, REFUSED, ANSWER, GROUP, PROMPT, JUDGED)
_LENGTH = struct.Struct("<I")
_FAULTS: dict[Status, Fault] = {
    "timeout": "timeout",
    "error": "reward",
    "crashed": "reward",
    "unavailable": "infrastructure",
}
_SCORE_FIELDS = tuple(field.name for field in fields(Score))


def encode_request(text: str, row_json: str, predictions: Sequence[str] | None) -> bytes:
    """Pack one completion, its row and the opponent's answers; `predictions=None` packs like none of them."""
    packed = bytearray()
    for part in (text, row_json, *(predictions or ())):
        data = part.encode("utf-8", "surrogatepass")
        packed += _LENGTH.pack(len(data))
        packed += data
    return bytes(packed)


def encode_out_of_time(row_json: str, why: str) -> bytes:
    """Request for the score of a completion whose limit ran out."""
    return OUT_OF_TIME + encode_request(why, row_json, None)


def decode_request(payload: bytes) -> tuple[str, str, tuple[str, ...]]:
    """Unpack what `encode_request` packed."""
    parts = []
    start = 0
    while start < len(payload):
        (length,) = _LENGTH.unpack_from(payload, start)
        start += _LENGTH.size
        parts.append(payload[start : start + length].decode("utf-8", "surrogatepass"))
        start += length
    text, row_json, *predictions = parts
    return text, row_json, tuple(predictions)


def encode_score(score: Score) -> bytes:
    """A score as JSON; lone surrogates in it are escaped."""
    return json.dumps({name: getattr(score, name) for name in _SCORE_FIELDS}).encode()


def decode_score(data: bytes) -> Score:
    """The score that `encode_score` wrote."""
    return Score(**json.loads(data))


def encode_prompt(prompt: Prompt | None) -> bytes:
    """The opponent's prompt as JSON; lone surrogates in it are escaped."""
    return json.dumps(prompt).encode()


def encode_moves(moves: Sequence[Move]) -> str:
    """Moves as JSON in ASCII."""
    return json.dumps(list(moves))


def encode_turn_state(state: TurnState) -> bytes:
    """A turn state as JSON; lone surrogates in it are escaped."""
    return json.dumps({field.name: getattr(state, field.name) for field in fields(TurnState)}).encode()


def score_of(outcome: Outcome, task: str) -> Score:
    """The score that a worker answered with, or an abstention that names the task."""
    if outcome.value:
        return decode_score(outcome.value)
    return abstention(outcome.why, task, _FAULTS[outcome.status])


def abstention(why: str, task: str, fault: Fault) -> Score:
    """A score without value, whose reason names the task."""
    return Score(None, why=_reason(why, task), fault=fault)


def prompt_of(outcome: Outcome) -> Prompt | None:
    """The opponent's prompt that a worker answered with; None where it failed."""
    return _prompt(json.loads(outcome.value)) if outcome.status == "ok" else None


def turn_state_of(outcome: Outcome, task: str, moves: Sequence[Move]) -> TurnState:
    """The turn state that a worker answered with, or one with the fault.

    Args:
        outcome: Outcome of a request with `NEXT_TURN`.
        task: Name of the task, for the reason.
        moves: Moves of the request.
    """
    if outcome.status != "ok":
        return TurnState(tuple(moves), fault=_FAULTS[outcome.status], why=_reason(outcome.why, task))
    state = json.loads(outcome.value)
    tuples = {name: tuple(state[name]) for name in ("moves", "replaced", "messages")}
    return TurnState(**{**state, **tuples, "prompt": _prompt(state["prompt"])})


def group_parts_of(task: str, outcome: Outcome) -> GroupParts:
    """The group rewards that a worker answered with, or the fault, whose reason names the task."""
    if outcome.status != "ok":
        return GroupParts(fault=_FAULTS[outcome.status], why=_reason(outcome.why, task))
    content = json.loads(outcome.value)
    questions = {name: JudgeQuestion.from_json(question) for name, question in content["questions"].items()}
    return GroupParts(**{**content, "questions": questions})


def encode_graded(graded: Graded) -> bytes:
    """A score as JSON, or what judges must be asked first; lone surrogates in it are escaped."""
    if isinstance(graded, Score):
        return encode_score(graded)
    return json.dumps(asdict(graded)).encode()


def graded_of(outcome: Outcome, task: str) -> Graded:
    """The score that a worker answered a `JUDGED` request with, or what judges must be asked first."""
    content = json.loads(outcome.value) if outcome.value else {}
    if "questions" not in content:
        return score_of(outcome, task)
    questions = {name: JudgeQuestion.from_json(question) for name, question in content["questions"].items()}
    return Pending(content["parts"], questions)


def _reason(why: str, task: str) -> str:
    return f"task {task}: {why}"[:MAX_WHY_CHARS]


def _prompt(content: Any) -> Prompt | None:
    if not isinstance(content, list):
        return cast("str | None", content)
    return tuple(Message(role=message["role"], content=message["content"]) for message in content)


def make_handler(*sent: str) -> Callable[[bytes], bytes]:
    """Load the task that was sent and return the function that answers each request; a worker calls it once."""
    return handler_of(received_task(*sent))


def handler_of(task: BoundTask) -> Callable[[bytes], bytes]:
    """The function that answers each request about a task."""

    def handle(payload: bytes) -> bytes:
        kind = payload[:4] if payload[:4] in _KINDS else b""
        text, row_json, predictions = decode_request(payload.removeprefix(kind))
        try:
            row = task.row_from_json(row_json)
        except DataError as error:  # whoever gave the row is wrong, not the reward
            if kind in (OPPONENT_PROMPT, ANSWER, PROMPT):
                return encode_prompt(None)
            if kind == NEXT_TURN:
                return encode_turn_state(TurnState((), fault="infrastructure", why=str(error)))
            if kind == GROUP:
                return json.dumps(asdict(GroupParts(fault="infrastructure", why=str(error)))).encode()
            return encode_score(Score(None, why=str(error), fault="infrastructure"))
        if kind == ANSWER:
            return encode_prompt(task.answer(text, row))
        if kind == PROMPT:
            return encode_prompt(task.prompt(row))
        if kind == OPPONENT_PROMPT:
            return encode_prompt(task.opponent_prompt(text, row))
        if kind == NEXT_TURN:
            return encode_turn_state(task.next_turn(row, json.loads(text)))
        if kind == GROUP:
            return json.dumps(asdict(group_parts(task, predictions, row))).encode()
        if kind == JUDGED:
            return encode_graded(task.grader.graded(text, row, json.loads(predictions[0])))
        if kind == OUT_OF_TIME:
            return encode_score(task.out_of_time(row, text))
        if kind == REFUSED:
            return encode_score(task.refuse(text, row, predictions[0]))
        return encode_score(task.grader.score(text, row, predictions))  # the text may be a server's reply

    return handle
