"""MCP servers, whose tools are tools of a task: one session of a server for each episode."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo_sdk.errors import UserError

START_S = 60.0
"""Seconds in which a server must start and list its tools: npx and uvx may download it first."""

FOLDER = "{folder}"
"""What stands for the episode's folder where a server is named."""

FOLDER_NAME = "/episode"
"""Path by which the policy knows it."""


def mcp(
    server: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    only: Sequence[str] | None = None,
    env: Sequence[str] | Mapping[str, str] = (),
    headers: Mapping[str, str] | None = None,
    start_s: float = START_S,
) -> tuple[McpServer]:
    """Tools of an MCP server: `Task(…, tools=mcp("uvx mcp-server-time"), max_turns=4)`.

    A command is started for each episode, in an empty folder of its own that `reset(row, folder)` of the task's
    `Environment` may fill before, and ends with it; of an address each episode gets a session of its own. The list of
    tools must stay as it was when the run began. Calls have the task's `timeout_s`, and are not sent again because they
    failed; an episode that lost its process to another one's call is made anew, and its calls are repeated.

    Args:
        server: Command with its arguments, or the address of a streamable HTTP server. `{folder}` in an argument is the
            episode's folder.
        only: Names of the tools that the policy gets; by default all.
        env: Environment variables of a command beside PATH, HOME and the like: `NAME`, handed on from the run's, or
            `NAME=value`, where `{folder}` is the episode's folder; or values by name.
        headers: HTTP headers of an address; `{NAME}` is an environment variable of the run.
        start_s: Seconds in which it must answer at first.

    Returns:
        The server as the only one of a tuple, so that others may follow: `tools=(*mcp("…"), convert)`.

    Raises:
        UserError: an argument that is not allowed.
    """
    is_url = isinstance(server, str) and re.match(r"https?://", server) is not None
    if isinstance(server, os.PathLike):
        server = [server]
    if not _are(server, str, os.PathLike):
        raise UserError(f"mcp({server!r:.80}) must be a command, as a text or a list of its words, or an address.")
    try:
        words = () if is_url else tuple(shlex.split(server) if isinstance(server, str) else map(str, server))
    except ValueError as error:
        raise UserError(f"mcp({server!r:.80}) is no command: {error}; give a list of its words.") from None
    if not is_url and not words:
        raise UserError(f"mcp({server!r}) must be a command or an address, e.g. mcp('uvx mcp-server-time').")
    if is_url and env:
        raise UserError(f"mcp({server!r}, env=…): an address has no environment; headers= may name variables.")
    if headers and not is_url:
        raise UserError(f"mcp({server!r}, headers=…): a command takes no headers; env= names its variables.")
    if isinstance(env, Mapping):
        env = [f"{name}={value}" if isinstance(value, str) else value for name, value in env.items()]
    for name, value in (("only", only or ()), ("env", env)):
        if isinstance(value, str) or not _are(value, str):
            raise UserError(f"mcp({server!r}, {name}={value!r:.80}) must be a list of texts, e.g. only=['read_file'].")
    if not isinstance(headers or {}, Mapping) or not _are(list((headers or {}).values()), str):
        raise UserError(f"mcp({server!r}, headers={headers!r:.80}) must have a text for each name.")
    if only is not None and not only:
        raise UserError(f"mcp({server!r}, only={only!r}) leaves none of its tools; name one, or leave out only=.")
    if not isinstance(start_s, int | float) or not 0 < start_s < float("inf"):
        raise UserError(f"mcp({server!r}, start_s={start_s!r}) must be a finite time above 0 seconds.")
    return (
        McpServer(
            str(server) if is_url else "",
            words,
            tuple(dict.fromkeys(only or ())),
            tuple(env),
            dict(headers or {}),
            start_s,
        ),
    )


def _are(texts: object, *kinds: type) -> bool:
    """Whether it is a text, or a sequence of texts."""
    if isinstance(texts, str):
        return True
    return (
        isinstance(texts, Sequence) and not isinstance(texts, bytes) and all(isinstance(each, kinds) for each in texts)
    )


@dataclass(frozen=True, slots=True, eq=False)
class McpServer:
    """A server; see `mcp`."""

    url: str
    command: tuple[str, ...]
    only: tuple[str, ...]
    env: tuple[str, ...]
    headers: Mapping[str, str]
    start_s: float

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"MCP server {self.url or shlex.join(self.command)!r:.100}"
