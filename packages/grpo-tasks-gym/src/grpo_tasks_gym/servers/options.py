"""Options of a task that a server plays."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from pydantic import Field

from grpo_sdk import TaskConfig, UserError
from grpo_sdk.data import DataError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class ServerConfig(TaskConfig):
    """Options of every task that a server plays.

    Attributes:
        timeout_s: Longest time of one request; what takes longer leaves the completion without a score.
        concurrency: Requests at the same time.
        api_key_env: Environment variable that holds the server's token, if it wants one. Workers do not get it.
    """

    timeout_s: float = Field(default=60.0, gt=0, le=3600, allow_inf_nan=False)
    concurrency: int = Field(default=32, ge=1, le=1024)
    api_key_env: str = ""


def check_address(option: str, value: str) -> str:
    """An address without a slash at its end.

    Args:
        option: Name of the option, for messages.
        value: The address.

    Raises:
        DataError: it is missing: the task has no rows then.
        UserError: it is no address, or holds what may be a secret.
    """
    example = f"{option}=http://localhost:8000"
    if not value:
        raise DataError(
            f"the server is not named: start one, e.g. grpo serve, an environment of OpenEnv or a resources server of "
            f"NeMo-Gym, and give its address as an option of the task: 'TASK?{example}'."
        )
    try:
        parts = urlsplit(value)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port)
    except ValueError:
        is_address = False
    if not is_address or not value.isascii() or not value.isprintable() or " " in value:
        raise UserError(f"{option}={value[:80]!r} is no address of a server; write {example}.")
    if parts.username or parts.password or parts.query or parts.fragment:  # and do not repeat what may be a secret
        raise UserError(
            f"{option}: the address of {parts.hostname} holds a user, a query or a fragment. A token belongs into an "
            "environment variable, whose name is given by api_key_env=."
        )
    return value.rstrip("/")


def token_of(config: ServerConfig) -> str:
    """The server's token; empty where there is none.

    Raises:
        UserError: the variable is not set, or no HTTP header can carry what it holds.
    """
    variable = config.api_key_env
    if not variable:
        return ""
    if not _VARIABLE.fullmatch(variable):
        raise UserError("api_key_env is the name of an environment variable that holds the token, never the token.")
    token = os.environ.get(variable, "").strip()
    if not token:
        raise UserError(f"api_key_env={variable}: this environment variable is not set.")
    if not (token.isascii() and token.isprintable()):
        raise UserError(f"the token in {variable} has characters that no HTTP header can carry.")
    return token
