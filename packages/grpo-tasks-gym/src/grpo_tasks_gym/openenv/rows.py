"""The rows of an environment: tasks that it lists, or seeds; each is begun once, for its first observation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any
from urllib.parse import quote

from grpo_core import InfrastructureError
from grpo_core.data import DataError, split_of
from grpo_tasks_gym.openenv.connection import Connection
from grpo_tasks_gym.openenv.episodes import Episodes
from grpo_tasks_gym.openenv.observations import fields_of, shown_of
from grpo_tasks_gym.openenv.options import EpisodeRow, OpenEnvConfig
from grpo_tasks_gym.servers.options import token_of
from grpo_tasks_gym.servers.requests import JsonClient, excerpt, run_now

SEEDS_APART = 1_000_000
"""Distance of the seeds that begin with one `seed` from those of the next."""


def load_rows(config: OpenEnvConfig) -> list[EpisodeRow]:
    """Ask the environment for its rows.

    Raises:
        DataError: nobody answers there, or not as an environment does.
        UserError: an option that does not fit the environment.
    """
    try:
        return run_now(_load(config))
    except InfrastructureError as error:
        raise DataError(f"{error}. Is the environment running? Its address is everything before /ws.") from None


async def _load(config: OpenEnvConfig) -> list[EpisodeRow]:
    client = JsonClient(config)
    try:
        schema = await client.get(f"{config.address}/schema")
        if not schema.is_ok:
            raise InfrastructureError(f"{config.address}/schema: HTTP {schema.status}: {excerpt(schema.content)}")
        action, shown = fields_of(config, schema.content)
        resets = await _listed(config, client)
    finally:
        await client.close()
    if resets is None:
        resets = {f"seed-{seed}": {"seed": seed} for seed in islice(_seeds(config), config.size)}
    episodes: Episodes[_Begun] = Episodes(min(config.sessions, config.concurrency), config.timeout_s)

    async def observation(reset: dict[str, int | str]) -> Any:
        begun = await episodes.begin(lambda: _begin(config, reset, shown))
        episodes.end(begun)
        return begun.shown

    async def row(name: str, reset: dict[str, int | str]) -> EpisodeRow:
        seen = await observation(reset)
        return EpisodeRow(id=name, reset=reset, observation=seen, action=action, shown=shown)

    rows = await asyncio.gather(*(row(name, reset) for name, reset in resets.items()))
    repeats = not rows or await observation(rows[0].reset) == rows[0].observation
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


@dataclass(frozen=True, slots=True)
class _Begun:
    """An episode that was begun to see its first observation."""

    connection: Connection
    shown: Any


async def _begin(config: OpenEnvConfig, reset: dict[str, int | str], shown: str) -> _Begun:
    connection = await Connection.open(config.address, token_of(config), config.timeout_s)
    try:
        result = await connection.reset(reset)
        if result.is_done:
            raise InfrastructureError(f"{config.address}: an episode was over before its first turn")
        return _Begun(connection, shown_of(result.observation, shown, config.address))
    except BaseException:
        await connection.close()
        raise


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
