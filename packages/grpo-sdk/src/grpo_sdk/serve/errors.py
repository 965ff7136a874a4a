"""Errors of a request, with their HTTP status."""

from __future__ import annotations

from http import HTTPStatus

from grpo_sdk.task.score import Score


class RequestError(Exception):
    """A request that is refused.

    Args:
        status: HTTP status.
        why: Reason, in one line.
        headers: More headers of the response.
    """

    def __init__(self, status: HTTPStatus, why: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(why)
        self.status, self.why, self.headers = status, why, headers or {}


def bad_request(why: str) -> RequestError:
    """Error of a request that cannot be understood."""
    return RequestError(HTTPStatus.BAD_REQUEST, why)


def abstention_of(score: Score) -> str | None:
    """Why a completion has no score, with the kind of failure; None where it has one."""
    return f"{score.fault}: {score.why}" if score.abstained else None


def not_scored(score: Score) -> RequestError:
    """Error of a completion that could not be scored, for a protocol that has no other way to say so."""
    return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, f"not scored: {abstention_of(score)}")
