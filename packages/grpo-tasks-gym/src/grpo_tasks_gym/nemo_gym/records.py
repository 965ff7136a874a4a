"""Rows of NeMo-Gym's JSONL: the request to a model, and whatever a verifier needs beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import orjson
from pydantic import Field

from grpo_sdk import Message, Row
from grpo_sdk.data import DataError, DatasetConfig, Record, read_rows, stable_id
from grpo_tasks_gym.servers.options import ServerConfig, check_address

REQUEST = "responses_create_params"

MAX_PROMPT_CHARS = 2**20

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class NemoConfig(ServerConfig, DatasetConfig):
    """Options of `nemo_gym.rows`.

    Attributes:
        path: JSONL file of NeMo-Gym; with `{split}` in it, one for each split.
        verify: Address of the resources server, with or without `/verify`.
        chat: Whether the prompt is its messages, for models with a chat template; else their text.
        session: Whether `/seed_session` precedes `/verify`: `auto` asks the server's `/reverify_mode`.
        solved_at: Reward from which a completion counts as solved.
    """

    verify: str = ""
    chat: bool = True
    session: Literal["auto", "always", "never"] = "auto"
    solved_at: float = Field(default=1.0, allow_inf_nan=False)

    @property
    def address(self) -> str:
        """Address of the server, without `/verify`.

        Raises:
            UserError: there is none. Errors of options repeat their values, which may hold a secret: not this one.
        """
        return check_address("verify", self.verify).removesuffix("/verify")


class NemoRow(Row):
    """A row.

    Attributes:
        record: The line of the file, which goes to `/verify` as it is.
        messages: Its prompt.
    """

    record: dict[str, Any]
    messages: tuple[dict[str, str], ...]


def read(config: NemoConfig) -> Iterator[NemoRow]:
    """Read the rows; equal lines, by which NeMo-Gym repeats a prompt, are one row.

    Raises:
        DataError: no file, or a line that is no row: file, line, field.
    """
    check_address("verify", config.verify)
    if config.fields:
        raise DataError(
            "fields=: lines of NeMo-Gym go to its server as they are, so none can be renamed. Leave it out."
        )
    seen: set[str] = set()
    for row in read_rows(config, _row, needs=()):
        if row.id not in seen:
            seen.add(row.id)
            yield row


def _row(record: Record) -> NemoRow:
    content = dict(record)
    if REQUEST not in content:
        raise ValueError(
            f"no field {REQUEST!r}, which every line of NeMo-Gym has (this one has {', '.join(content)[:200]}): give a "
            "file that ng_prepare_data wrote, or an example.jsonl of a resources server; core.qa reads rows of any form"
        )
    messages = tuple(dict(message) for message in messages_of(content[REQUEST]))
    return NemoRow(
        id=stable_id(orjson.dumps(content, option=orjson.OPT_SORT_KEYS).decode()), record=content, messages=messages
    )


def messages_of(request: Any) -> tuple[Message, ...]:
    """The chat messages of a request in OpenAI's Responses form.

    Raises:
        ValueError: it asks for more than text: names that.
    """
    if not isinstance(request, dict):
        raise ValueError(f"{REQUEST} is an object with 'input'")
    if request.get("tools"):
        raise ValueError(f"{REQUEST}.tools: {_names(request['tools'])}; rows with tools cannot be used, only text")
    given = request.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise ValueError(f"{REQUEST}.input is a text or a list of messages")
    if isinstance(request.get("instructions"), str) and request["instructions"]:
        items = [{"role": "system", "content": request["instructions"]}, *items]
    messages = tuple(_message(item, f"{REQUEST}.input[{place}]") for place, item in enumerate(items))
    if sum(len(message["content"]) for message in messages) > MAX_PROMPT_CHARS:
        raise ValueError(f"{REQUEST}.input has more than {MAX_PROMPT_CHARS} characters")
    return messages


def _message(item: Any, where: str) -> Message:
    if not isinstance(item, dict) or item.get("type", "message") != "message":
        kind = item.get("type") if isinstance(item, dict) else item
        raise ValueError(f"{where} is {kind!r:.40}; only messages can be used")
    if item.get("role") not in _ROLES:
        raise ValueError(f"{where}.role is {item.get('role')!r:.40}; there are {', '.join(_ROLES)}")
    content = item.get("content")
    blocks = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise ValueError(f"{where}.content is a text or a list of texts")
    for block in blocks:
        if block.get("type") not in ("input_text", "output_text", "text") or not isinstance(block.get("text"), str):
            raise ValueError(f"{where}.content holds {block.get('type')!r:.40}; only text can be used")
    return Message(role=_ROLES[item["role"]], content="".join(block["text"] for block in blocks))


def _names(tools: Any) -> str:
    items = tools if isinstance(tools, list) else []
    return ", ".join(str(tool.get("name") or tool.get("type")) for tool in items[:5] if isinstance(tool, dict))[:80]
