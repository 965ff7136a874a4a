"""JSON of requests and responses: bounded, without NaN, and with the lone surrogates that completions may hold.

What is refused raises the error of its HTTP status, whose detail is the reason in one line.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, NoReturn, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException

from grpo_sdk.task.row import first_problem
from grpo_sdk.task.score import Score

MAX_COMPLETIONS = 1024
"""Completions of one request: some hundred times what a group has."""

Model = TypeVar("Model", bound="Message")


class Message(BaseModel):
    """A request whose fields are checked: no other fields, no conversion of types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def loads(data: str | bytes) -> dict[str, Any]:
    """Parse a request, which is a JSON object.

    Raises:
        HTTPException: it is something else.
    """
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        body = _loads_with_surrogates(data)
    if not isinstance(body, dict):
        raise bad_request(f"a request is a JSON object {{…}}, not a {type(body).__name__}.")
    return body


def dumps(value: Any) -> bytes:
    """Write a response; lone surrogates are escaped."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value).encode()


def parse(kind: type[Model], body: dict[str, Any]) -> Model:
    """Check the fields of a request.

    Raises:
        HTTPException: a field is missing, unknown or of a wrong type; names it.
    """
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise bad_request(first_problem(error)) from None


def check_count(count: int) -> None:
    """Check how many completions a request has.

    Raises:
        HTTPException: too many, or none.
    """
    if not 1 <= count <= MAX_COMPLETIONS:
        raise bad_request(f"{count} completions: give 1 to {MAX_COMPLETIONS} in one request.")


def _loads_with_surrogates(data: str | bytes) -> Any:
    """Parse what orjson refuses: the completion of a model may hold half of a surrogate pair."""
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # also bytes that are not UTF-8, and numbers of thousands of digits
        raise bad_request(f"not JSON: {error}.") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def bad_request(why: str) -> HTTPException:
    """Error of a request that cannot be understood."""
    return HTTPException(HTTPStatus.BAD_REQUEST, why)


def abstention_of(score: Score) -> str | None:
    """Why a completion has no score, with the kind of failure; None where it has one."""
    return f"{score.fault}: {score.why}" if score.abstained else None


def not_scored(score: Score) -> HTTPException:
    """Error of a completion that could not be scored, for a protocol that has no other way to say so."""
    return HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"not scored: {abstention_of(score)}")
