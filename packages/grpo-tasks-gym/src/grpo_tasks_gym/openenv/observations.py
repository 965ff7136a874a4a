"""What a model sees of an observation, and which fields of actions and observations are text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from grpo_core import InfrastructureError, Message, Prompt, UserError
from grpo_tasks_gym.openenv.options import OpenEnvConfig

WHOLE = "*"
"""The whole observation as JSON."""

USUAL = ("prompt", "messages")
"""Fields of observations that are prompts, by their names."""

MAX_PROMPT_CHARS = 2**20

Shown = str | tuple[dict[str, str], ...]
"""What is shown of an observation: a text, or chat messages."""

_ABOUT = ("metadata", "done", "reward")
"""Fields of every action or observation."""


def fields_of(config: OpenEnvConfig, schema: Any) -> tuple[str, str]:
    """The field of the action that holds a completion, and that of the observation which is shown.

    Args:
        config: Options, which may name them.
        schema: Answer of `/schema`.

    Raises:
        UserError: an option names no field, or it has to name one.
    """
    parts = schema if isinstance(schema, dict) else {}
    actions, needed = _properties(parts.get("action"))
    observations, _ = _properties(parts.get("reset_observation") or parts.get("observation"))
    constants = constants_of(config)
    for name in constants:
        _check("constants", name, actions, config.address)
    action = config.action or _only_text(actions, needed - set(constants))
    if not action:
        choices = _choices("action", actions)
        raise UserError(f"{config.address}: say which field of the action holds the completion: {choices}.")
    _check("action", action, actions, config.address)
    if missing := sorted(needed - {action} - set(constants)):
        raise UserError(
            f"{config.address}: the action needs {', '.join(missing)}, too: give constants={missing[0]}:VALUE."
        )
    shown = config.observation or next((name for name in USUAL if name in observations), "") or _only_text(observations)
    if not shown:
        raise UserError(
            f"{config.address}: say which field of the observation is shown: {_choices('observation', observations)}, "
            f"or observation={WHOLE} for all of it as JSON."
        )
    if shown != WHOLE:
        _check("observation", shown, observations, config.address)
    return action, shown


def constants_of(config: OpenEnvConfig) -> dict[str, str]:
    """Other fields of the action with their values.

    Raises:
        UserError: the option is not readable.
    """
    pairs = [item.partition(":") for item in config.constants]
    if not all(name and colon for name, colon, _ in pairs):
        raise UserError(f"constants={','.join(config.constants)[:80]}: write field:value, separated by commas.")
    return {name: value for name, _, value in pairs}


def _properties(schema: Any) -> tuple[dict[str, Any], set[str]]:
    known = schema.get("properties") if isinstance(schema, dict) else None
    needed = schema.get("required") if isinstance(schema, dict) else None
    properties = {name: field for name, field in known.items() if name not in _ABOUT} if isinstance(known, dict) else {}
    return properties, {name for name in needed if name in properties} if isinstance(needed, list) else set()


def _only_text(properties: Mapping[str, Any], needed: set[str] | None = None) -> str:
    """The only field that is text, or the only one among those that are needed; empty where there are several."""
    texts = [name for name, field in properties.items() if isinstance(field, dict) and field.get("type") == "string"]
    required = [name for name in texts if needed and name in needed]
    return texts[0] if len(texts) == 1 else required[0] if len(required) == 1 else ""


def _choices(option: str, properties: Mapping[str, Any]) -> str:
    return " or ".join(f"{option}={name}" for name in list(properties)[:8]) or "it has none"


def _check(option: str, name: str, properties: Mapping[str, Any], address: str) -> None:
    if name not in properties:
        near = get_close_matches(name, properties, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        known = ", ".join(list(properties)[:20]) or "none"
        raise UserError(f"{address}: {option}={name[:80]!r} is no field there.{hint} Fields: {known}")


def shown_of(observation: Mapping[str, Any], field: str, address: str) -> Shown:
    """What is shown of an observation: a text, or chat messages.

    Raises:
        InfrastructureError: the field is not there, or too long.
    """
    if field == WHOLE:
        known = {name: value for name, value in observation.items() if name not in _ABOUT}
        value: Any = json.dumps(known, ensure_ascii=False, sort_keys=True)
    elif field not in observation:
        raise InfrastructureError(f"{address}: an observation without {field!r}")
    else:
        value = observation[field]
    if isinstance(value, list) and value and all(_is_message(item) for item in value):
        value = tuple({"role": _readable(item["role"]), "content": _readable(item["content"])} for item in value)
        length = sum(len(message["content"]) for message in value)
    else:
        value = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
        value = _readable(value)
        length = len(value)
    if length > MAX_PROMPT_CHARS:
        raise InfrastructureError(f"{address}: an observation of {length} characters; the limit is {MAX_PROMPT_CHARS}")
    return value  # type: ignore[no-any-return]


def _readable(text: str) -> str:
    """A text without lone surrogates, which no tokenizer reads."""
    return text.encode("utf-8", "replace").decode()


def _is_message(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("role"), str) and isinstance(item.get("content"), str)


def as_messages(shown: tuple[dict[str, str], ...]) -> tuple[Message, ...]:
    """Chat messages of what is shown."""
    return tuple(Message(role=each["role"], content=each["content"]) for each in shown)


def first_prompt(shown: Shown, config: OpenEnvConfig) -> Prompt:
    """The prompt of an episode's first completion."""
    if isinstance(shown, str) and not config.chat:
        return f"{config.instruction}\n\n{shown}" if config.instruction else shown
    messages = (Message(role="user", content=shown),) if isinstance(shown, str) else as_messages(shown)
    return (Message(role="system", content=config.instruction), *messages) if config.instruction else messages


class Conversation:
    """An episode as its server tells it, which may repeat the conversation so far in each observation.

    Args:
        shown: What is shown of the first observation.
        is_chat: Whether the prompt is messages.
        address: Address of the server, for messages.
    """

    def __init__(self, shown: Shown, is_chat: bool, address: str) -> None:
        self._told, self._is_chat, self._address = shown, is_chat or not isinstance(shown, str), address

    def follow(self, text: str, shown: Shown) -> Prompt:
        """What the conversation goes on with after a completion.

        Raises:
            InfrastructureError: there is nothing, or messages follow a text.
        """
        if isinstance(shown, str):
            earlier = self._told + text if isinstance(self._told, str) else ""
            repeats = bool(earlier) and shown.startswith(earlier)
            self._told = shown if repeats else f"{earlier}{shown}"
            if repeats:
                return shown[len(earlier) :]
            return shown if self._is_chat else f"\n{shown}" if shown.endswith((" ", "\n")) else f"\n{shown}\n"
        if not self._is_chat:
            raise InfrastructureError(f"{self._address}: an observation of messages follows one of text")
        before = self._told if isinstance(self._told, tuple) else ()
        told_messages = (*before, {"role": "assistant", "content": text})
        repeats = shown[: len(told_messages)] == told_messages
        following = shown[len(told_messages) :] if repeats else shown
        self._told = (*told_messages, *following)
        if not following:
            raise InfrastructureError(f"{self._address}: an observation without a message")
        return as_messages(following)


def digest_of(shown: object) -> int:
    """A number by which an observation is recognized; JSON of other languages holds it exactly."""
    digest = hashlib.blake2b(json.dumps(shown).encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")
