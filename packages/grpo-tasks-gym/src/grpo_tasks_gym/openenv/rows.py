"""The rows of an environment: tasks that it lists, or seeds; each is begun once, for its first observation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import count, islice
from typing import Any
from urllib.parse import quote

from grpo_sdk import InfrastructureError, UserError
from grpo_sdk.data import DataError, split_of
from grpo_tasks_gym.openenv.client import ABOUT, OF_METADATA, WHOLE, Episode, Episodes, constants_of
from grpo_tasks_gym.openenv.options import EpisodeRow, OpenEnvConfig, ToolsRow
from grpo_tasks_gym.openenv.tools import number_of, tools_of, wait_for
from grpo_tasks_gym.servers.requests import JsonClient, excerpt

USUAL = ("prompt", "messages")
"""Fields of observations that are prompts, by their names."""

SEEDS_APART = 1_000_000
"""Distance of the seeds that begin with one `seed` from those of the next."""


def load_rows(config: OpenEnvConfig) -> list[EpisodeRow]:
    """Ask the environment for its rows.

    Raises:
        DataError: nobody answers there, or not as an environment does.
        UserError: an option that does not fit the environment.
    """
    tools = None if config.actions == "text" else number_of(tools_of(config))
    try:
        return wait_for(_load(config, tools))
    except InfrastructureError as error:
        raise DataError(f"{error}. Is the environment running? Its address is everything before /ws.") from None


async def _load(config: OpenEnvConfig, tools: int | None) -> list[EpisodeRow]:
    client = JsonClient(config)
    try:
        schema = await client.get(f"{config.address}/schema")
        if not schema.is_ok:
            raise InfrastructureError(f"{config.address}/schema: HTTP {schema.status}: {excerpt(schema.content)}")
        action, shown = fields_of(config, schema.content) if tools is None else ("", "")
        resets = await _listed(config, client)
    finally:
        await client.close()
    if resets is None:
        resets = {f"seed-{seed}": {"seed": seed} for seed in islice(_seeds(config), config.size)}
    episodes = Episodes(min(config.sessions, config.concurrency), config.timeout_s)

    async def begun(reset: dict[str, int | str]) -> Episode:
        episode = await episodes.begin(lambda: Episode.begin(config, client.token, reset, (action, shown)))
        episodes.end(episode)
        return episode

    async def row(name: str, reset: dict[str, int | str]) -> EpisodeRow:
        seen = (await begun(reset)).first
        facts: dict[str, Any] = {"id": name, "reset": reset, "observation": seen, "action": action, "shown": shown}
        return EpisodeRow(**facts) if tools is None else ToolsRow(**facts, tools=tools)

    try:
        if tools is not None and resets:
            shown = opening_field(config, (await begun(next(iter(resets.values())))).begun)
        rows = await asyncio.gather(*(row(name, reset) for name, reset in resets.items()))
        repeats = not rows or (await begun(rows[0].reset)).first == rows[0].observation
    finally:
        await episodes.close()
    if not repeats:
        raise DataError(
            f"{config.address}: two resets with {rows[0].reset} gave different observations, so that its rows have no "
            "prompts of their own. Choose another field with observation=, or have the environment use its seed."
        )
    return list(rows)


def _seeds(config: OpenEnvConfig) -> Iterator[int]:
    start = abs(config.seed) * SEEDS_APART
    return (seed for seed in count(start) if split_of(f"seed {seed}") == config.split)


async def _listed(config: OpenEnvConfig, client: JsonClient) -> dict[str, dict[str, int | str]] | None:
    """Arguments of `reset` by the names of the tasks that the server lists; None where seeds are the rows."""
    if config.rows == "seeds":
        return None
    names = await client.get(f"{config.address}/list_environments")
    name = names.content[0] if names.is_ok and isinstance(names.content, list) and names.content else None
    base = f"{config.address}/{quote(str(name), safe='')}"
    splits = await client.get(f"{base}/splits") if isinstance(name, str) else names
    listed = [each for each in splits.content if isinstance(each, dict)] if isinstance(splits.content, list) else []
    if not splits.is_ok or not listed:
        if config.rows == "tasks":
            raise DataError(f"{config.address} lists no tasks; take rows=seeds.")
        return None
    by_kind = {str(each.get(kind)): str(each.get("name")) for kind in ("type", "name") for each in reversed(listed)}
    if config.split not in by_kind:
        allowed = ", ".join(str(each.get("name")) for each in listed[:20])
        raise DataError(
            f"{config.address} has no split {config.split!r}; it has {allowed}. rows=seeds takes none of them."
        )
    split = by_kind[config.split]
    counted = await client.post(f"{base}/num_tasks", {"split": split})
    number = counted.content.get("num_tasks") if isinstance(counted.content, dict) else None
    if not counted.is_ok or not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise InfrastructureError(f"{base}/num_tasks: HTTP {counted.status}: {excerpt(counted.content)}")
    return {f"{split}-{index}": {"split": split, "index": index} for index in range(min(number, config.size or number))}


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
    calls = {"tool_name", "arguments"} <= set(actions)
    if not actions or (calls and "text" not in actions):
        raise UserError(f"{config.address}: its actions are calls of tools; give actions=tools.")
    constants = constants_of(config)
    for name in constants:
        _check("constants", name, actions, config.address)
    usual = "text" if calls else _only_text(actions, needed - set(constants))  # tasks of ours take both
    action = config.action or usual
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


def opening_field(config: OpenEnvConfig, observation: Mapping[str, Any]) -> str:
    """The field of the first observation that is shown; empty where the instruction alone is the prompt.

    Raises:
        UserError: the option names no field, or nothing would be shown.
    """
    about = observation.get("metadata") or {}
    own = {name: value for name, value in observation.items() if name not in ABOUT}
    fields = {**own, **{f"{OF_METADATA}{name}": value for name, value in about.items()}}
    if config.observation:
        if config.observation != WHOLE:
            _check("observation", config.observation, fields, config.address)
        return config.observation
    texts = [name for name, value in own.items() if isinstance(value, str)]
    shown = next((name for name in USUAL if name in own), texts[0] if len(texts) == 1 else "")
    if not shown and not config.instruction:
        raise UserError(
            f"{config.address}: say what the policy is asked: instruction=TEXT, or a field of the first observation: "
            f"{_choices('observation', fields)}."
        )
    return shown


def _properties(schema: Any) -> tuple[dict[str, Any], set[str]]:
    known = schema.get("properties") if isinstance(schema, dict) else None
    needed = schema.get("required") if isinstance(schema, dict) else None
    properties = {name: field for name, field in known.items() if name not in ABOUT} if isinstance(known, dict) else {}
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
