"""How a completion and its row reach a worker, and how the score comes back; also what the worker runs.

    request:  text, row JSON, then each prediction, every one of them length | bytes
    answer:   the score as JSON

    request:  OUT_OF_TIME, then the same with the reason for the text
    answer:   the score of a completion whose limit ran out, as JSON

    request:  OPPONENT_PROMPT, then the same without predictions
    answer:   the opponent's prompt as JSON; null where there is none

    request:  REFUSED, then the same with the reason, why the completion counts as invalid, for the predictions
    answer:   the score as JSON

    request:  NEXT_TURN, then the same with the moves made so far, as JSON, for the text
    answer:   what comes next, a `TurnState` as JSON

Text travels as UTF-8 with surrogates passed through, because a completion decoded byte by byte may hold lone
surrogates, which JSON in UTF-8 cannot carry.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, cast

from grpo_core.errors import DataError
from grpo_core.plugins.tasks import load_task
from grpo_core.task.game import Move
from grpo_core.task.row import Message, Prompt
from grpo_core.task.score import Score
from grpo_core.task.turns import TurnState

OPPONENT_PROMPT = b"\xff\xff\xff\xff"
"""Marks a request for the opponent's prompt: as a length it would announce 4 GiB of text, which is never sent."""

NEXT_TURN = b"\xfe\xff\xff\xff"
"""Marks a request for what comes after some turns."""

OUT_OF_TIME = b"\xfd\xff\xff\xff"
"""Marks a request for the score of a completion whose limit ran out."""

REFUSED = b"\xfc\xff\xff\xff"
"""Marks a request for the score of a completion that is invalid, though the validator takes it."""

_LENGTH = struct.Struct("<I")
_SCORE_FIELDS = tuple(field.name for field in fields(Score))


def encode_request(text: str, row_json: str, predictions: Sequence[str] | None) -> bytes:
    """Pack one completion, its row and the opponent's answers; `predictions=None` packs like none of them."""
    packed = bytearray()
    for part in (text, row_json, *(predictions or ())):
        data = part.encode("utf-8", "surrogatepass")
        packed += _LENGTH.pack(len(data))
        packed += data
    return bytes(packed)


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


def decode_prompt(data: bytes) -> Prompt | None:
    """The opponent's prompt that a worker answered with."""
    return _prompt(json.loads(data))


def encode_moves(moves: Sequence[Move]) -> str:
    """Moves as JSON in ASCII."""
    return json.dumps(list(moves))


def encode_turn_state(made: TurnState) -> bytes:
    """What comes next, as JSON; lone surrogates in it are escaped."""
    return json.dumps({field.name: getattr(made, field.name) for field in fields(TurnState)}).encode()


def decode_turn_state(data: bytes) -> TurnState:
    """What `encode_turn_state` wrote."""
    made = json.loads(data)
    tuples = {name: tuple(made[name]) for name in ("moves", "replaced")}
    return TurnState(**{**made, **tuples, "prompt": _prompt(made["prompt"])})


def _prompt(made: Any) -> Prompt | None:
    if not isinstance(made, list):
        return cast("str | None", made)
    return tuple(Message(role=message["role"], content=message["content"]) for message in made)


def make_handler(spec: str) -> Callable[[bytes], bytes]:
    """What a worker runs: load the task once, then answer request after request in process."""
    task = load_task(spec)

    def handle(payload: bytes) -> bytes:
        asked = payload[:4] if payload[:4] in (OPPONENT_PROMPT, NEXT_TURN, OUT_OF_TIME, REFUSED) else b""
        text, row_json, predictions = decode_request(payload.removeprefix(asked))
        try:
            row = task.row_from_json(row_json)
        except DataError as error:  # whoever gave the row is wrong, not the reward
            if asked == OPPONENT_PROMPT:
                return encode_prompt(None)
            if asked == NEXT_TURN:
                return encode_turn_state(TurnState((), fault="infrastructure", why=str(error)))
            return encode_score(Score(None, why=str(error), fault="infrastructure"))
        if asked == OPPONENT_PROMPT:
            return encode_prompt(task.opponent_prompt(text, row))
        if asked == NEXT_TURN:
            return encode_turn_state(task.next_turn(row, json.loads(text)))
        if asked == OUT_OF_TIME:
            return encode_score(task.out_of_time(row, text))
        if asked == REFUSED:
            return encode_score(task.refuse(text, row, predictions[0]))
        return encode_score(task.score(text, row, predictions))

    return handle
