"""Plays rollouts as episodes of an environment, each on a connection of its own.

    {"type": "reset", "data": {"seed": 3}}          {"type": "observation", "data": {"observation", "reward", "done"}}
    {"type": "step", "data": {"text": "…"}}         the same, or {"type": "error", "data": {"message", "code"}}

Read in openenv 0.10.0, `openenv/core/env_server`. Its own client brings FastAPI, Gradio and more, and reads messages of
any length; this one needs `websockets` alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from grpo_sdk import InfrastructureError, Moves, Prompt, RemoteReply, RemoteTurn, Row, UserError
from grpo_tasks_gym.openenv.options import EpisodeRow, OpenEnvConfig, as_messages
from grpo_tasks_gym.servers.options import token_of
from grpo_tasks_gym.servers.requests import MAX_REPLY_BYTES, Health, excerpt, read_json
from grpo_tasks_gym.servers.verdicts import Verdict, number_of, parts_of

CLOSE_S = 1.0
"""Time for the server to say goodbye, too."""

PING_S = 20.0

RETRY_S = 0.1
"""Mean pause before a full server is asked again, which may take a moment to see that an episode is closed."""

MAX_RETRY_S = 2.0

GROW_AFTER = 64
"""Episodes after which a server that was full may have room for one more."""

MAX_ENDED = 16_384
"""Verdicts of episodes that are over, which are kept until they are asked for."""

MAX_PROMPT_CHARS = 2**20

WHOLE = "*"
"""The whole observation as JSON."""

OF_METADATA = "metadata."
"""Before the name of a field of the observation's metadata."""

ABOUT = ("metadata", "done", "reward")
"""Fields of every action or observation."""

Shown = str | tuple[dict[str, str], ...]
"""What is shown of an observation: a text, or chat messages."""

Key = tuple[str, tuple[str | int, ...]]
"""Row and moves. Rollouts that are equal so far may exchange their episodes: the model has seen the same of both."""


class CapacityError(InfrastructureError):
    """The server plays as many episodes as it may."""


@dataclass(frozen=True, slots=True)
class Result:
    """A server's answer to `reset` or `step`.

    Attributes:
        observation: The observation.
        reward: Reward of the step; None where there is none.
        is_done: Whether the episode is over.
        metadata: More about the observation.
    """

    observation: Mapping[str, Any]
    reward: float | None
    is_done: bool
    metadata: Mapping[str, Any]


class Episode:
    """An episode on a connection of its own; made by `begin`.

    Args:
        socket: The connection.
        config: Options of the task.
        token: The server's token, which no message repeats.
        fields: The field of the action that holds a completion, and that of the observation which is shown.

    Attributes:
        begun: The first observation.
        first: What is shown of it; empty where no field is.
        turns: Turns played.
        is_over: Whether no turn follows.
    """

    def __init__(self, socket: ClientConnection, config: OpenEnvConfig, token: str, fields: tuple[str, str]) -> None:
        self.begun: Mapping[str, Any] = {}
        self.first: Shown = ""
        self.turns, self.is_over = 0, False
        self._socket, self._config, self._token, self._address = socket, config, token, config.address
        self._action, self._shown = fields
        self._told: Shown = ""
        self._rewards: list[float | None] = []
        self._last: Result | None = None

    @classmethod
    async def begin(
        cls, config: OpenEnvConfig, token: str, reset: Mapping[str, int | str] | None, fields: tuple[str, str]
    ) -> Self:
        """Connect, and reset the environment, unless `reset` is None.

        Raises:
            InfrastructureError: it fails, or the episode is over before its first turn.
            CapacityError: the server plays as many episodes as it may.
            UserError: the server refuses the token.
        """
        episode = cls(await _connected(config.address, token, config.timeout_s), config, token, fields)
        try:
            if reset is not None:
                result = await episode._ask("reset", reset)
                if result.is_done:
                    raise InfrastructureError(f"{config.address}: an episode was over before its first turn")
                episode.begun = result.observation
                if fields[1]:
                    episode.first = episode._told = shown_of(result.observation, fields[1], config.address)
        except BaseException:
            await episode.close()
            raise
        return episode

    @classmethod
    async def of_row(cls, config: OpenEnvConfig, token: str, row: EpisodeRow) -> Self:
        """Begin an episode of a row.

        Raises:
            InfrastructureError: as `begin`, or its first observation is not the row's.
        """
        episode = await cls.begin(config, token, row.reset, (row.action, row.shown))
        if episode.first != row.observation:
            await episode.close()
            arguments = ", ".join(f"{name}={value}" for name, value in row.reset.items())
            raise InfrastructureError(
                f"{config.address}: reset({arguments}) gave another observation than when rows were loaded"
            )
        return episode

    async def close(self) -> None:
        """Say goodbye."""
        await self._socket.close()

    async def act(self, action: Mapping[str, Any]) -> Result:
        """Take an action that counts; returns what the environment says.

        Raises:
            InfrastructureError: the environment fails.
        """
        result = await self._ask("step", action)
        self.turns += 1
        self._rewards.append(result.reward)
        self._last, self.is_over = result, result.is_done
        return result

    async def look(self) -> Result:
        """Ask an environment whose actions are tool calls for its tools."""
        return await self._ask("step", {"type": "list_tools"})

    async def step(self, text: str) -> tuple[int, Prompt | None]:
        """Play a completion; returns the number of the observation, and what the conversation goes on with.

        Raises:
            InfrastructureError: the environment fails.
        """
        result = await self.act({**constants_of(self._config), self._action: text})
        self.is_over = result.is_done or self.turns >= self._config.max_turns
        if self.is_over:
            return digest_of(None), None
        shown = shown_of(result.observation, self._shown, self._address)
        return digest_of(shown), self._following(text, shown)

    def verdict(self) -> RemoteReply:
        """The episode's reward, also of one that was cut off.

        Raises:
            InfrastructureError: it ended without a reward.
        """
        end = self._last if self._last is not None and self._last.is_done else None
        counted = self._rewards[-1:] if self._config.reward == "last" else self._rewards
        rewards = [reward for reward in counted if reward is not None]
        if end is not None and not rewards:
            why = end.metadata.get("abstained")
            because = f": {excerpt(why)}" if why else ""
            raise InfrastructureError(f"{self._address}: the episode ended without a reward{because}")
        seen = end.observation if end is not None else {}
        solved, parts = seen.get("solved"), seen.get("parts")  # as `grpo serve` has them
        if not isinstance(parts, dict) or not all(isinstance(value, int | float) for value in parts.values()):
            parts = None  # elsewhere the name may mean anything
        is_solved = solved if isinstance(solved, bool) else None
        verdict = Verdict(reward=sum(rewards), solved=is_solved, turns=self.turns, finished=end is not None)
        return verdict.reply(parts_of(parts, self._address))

    async def _ask(self, kind: str, data: Mapping[str, Any]) -> Result:
        message = json.dumps({"type": kind, "data": dict(data)})  # which escapes the lone surrogates of a completion
        try:
            async with asyncio.timeout(self._config.timeout_s):
                with suppress(ConnectionClosed):  # a server that is full says so, and closes, before it is asked
                    await self._socket.send(message)
                answer = await self._socket.recv()
        except TimeoutError:
            raise InfrastructureError(f"{self._address}: no answer within {self._config.timeout_s:g} s") from None
        except ConnectionClosed as error:
            why = excerpt(str(error), self._token)
            raise InfrastructureError(f"{self._address}: the connection ended: {why}") from None
        except (OSError, WebSocketException) as error:
            raise InfrastructureError(f"{self._address}: {excerpt(str(error), self._token)}") from None
        return self._result(answer)

    def _result(self, data: str | bytes) -> Result:
        try:
            answer = read_json(data)
        except ValueError as error:
            raise InfrastructureError(f"{self._address}: an answer that is not JSON: {error}") from None
        content = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(content, dict):
            raise InfrastructureError(f"{self._address}: {excerpt(answer, self._token)} is no answer of OpenEnv")
        if answer.get("type") == "error":
            code, why = excerpt(content.get("code")), excerpt(content.get("message"), self._token)
            kind = CapacityError if code == "CAPACITY_REACHED" else InfrastructureError
            raise kind(f"{self._address}: {code}: {why}")
        observation, is_done, reward = content.get("observation"), content.get("done"), content.get("reward")
        if answer.get("type") != "observation" or not isinstance(observation, dict) or not isinstance(is_done, bool):
            raise InfrastructureError(f"{self._address}: {excerpt(answer, self._token)} is no observation")
        metadata = content.get("metadata") or observation.get("metadata")
        return Result(
            observation,
            None if reward is None else number_of(reward, f"{self._address}: 'reward'"),
            is_done,
            metadata if isinstance(metadata, dict) else {},
        )

    def _following(self, text: str, shown: Shown) -> Prompt:
        """What the conversation goes on with: the server may repeat what it told so far in each observation.

        Raises:
            InfrastructureError: there is nothing, or messages follow a text.
        """
        is_chat = self._config.chat or not isinstance(self.first, str)
        if isinstance(shown, str):
            earlier = self._told + text if isinstance(self._told, str) else ""
            repeats = bool(earlier) and shown.startswith(earlier)
            self._told = shown if repeats else f"{earlier}{shown}"
            if repeats:
                return shown[len(earlier) :]
            return shown if is_chat else f"\n{shown}" if shown.endswith((" ", "\n")) else f"\n{shown}\n"
        if not is_chat:
            raise InfrastructureError(f"{self._address}: an observation of messages follows one of text")
        before = self._told if isinstance(self._told, tuple) else ()
        told_messages = (*before, {"role": "assistant", "content": text})
        repeats = shown[: len(told_messages)] == told_messages
        following = shown[len(told_messages) :] if repeats else shown
        self._told = (*told_messages, *following)
        if not following:
            raise InfrastructureError(f"{self._address}: an observation without a message")
        return as_messages(following)


async def _connected(address: str, token: str, timeout_s: float) -> ClientConnection:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with asyncio.timeout(timeout_s):
            return await connect(
                f"ws{address.removeprefix('http')}/ws",
                additional_headers=headers,
                compression=None,
                max_size=MAX_REPLY_BYTES,
                max_queue=4,
                open_timeout=None,
                close_timeout=CLOSE_S,
                ping_interval=PING_S,
                ping_timeout=max(PING_S, timeout_s),
            )
    except TimeoutError:
        raise InfrastructureError(f"{address}: no answer within {timeout_s:g} s") from None
    except InvalidStatus as error:
        status = error.response.status_code
        if status in (401, 403):
            hint = "" if token else "; name the variable of a token with api_key_env="
            raise UserError(f"{address}/ws: HTTP {status}: the server refuses the connection{hint}.") from None
        raise InfrastructureError(f"{address}/ws: HTTP {status}: no environment of OpenEnv") from None
    except (OSError, WebSocketException, ValueError) as error:
        raise InfrastructureError(f"{address}: {excerpt(str(error) or type(error).__name__, token)}") from None


def constants_of(config: OpenEnvConfig) -> dict[str, str]:
    """Other fields of the action with their values.

    Raises:
        UserError: the option is not readable.
    """
    pairs = [item.partition(":") for item in config.constants]
    if not all(name and colon for name, colon, _ in pairs):
        raise UserError(f"constants={','.join(config.constants)[:80]}: write field:value, separated by commas.")
    return {name: value for name, _, value in pairs}


def shown_of(observation: Mapping[str, Any], field: str, address: str) -> Shown:
    """What is shown of an observation: a text, or chat messages.

    Raises:
        InfrastructureError: the field is not there, or too long.
    """
    if field.startswith(OF_METADATA):
        about = observation.get("metadata")
        observation = {f"{OF_METADATA}{name}": value for name, value in about.items()} if about else {}
    if field == WHOLE:
        known = {name: value for name, value in observation.items() if name not in ABOUT}
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


def digest_of(shown: object) -> int:
    """A number by which an observation is recognized; JSON of other languages holds it exactly."""
    digest = hashlib.blake2b(json.dumps(shown).encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")


def _popped(kept: OrderedDict[Key, list[Episode]], key: Key) -> Episode | None:
    """Take one of the episodes of a key; None where there is none."""
    episodes = kept.get(key, [])
    episode = episodes.pop() if episodes else None
    if not episodes:
        kept.pop(key, None)
    return episode


class Episodes:
    """Keeps episodes between their turns, and bounds how many there are.

    Args:
        limit: Most episodes at once; fewer, once the server says that it is full.
        timeout_s: Longest time for which a full server is asked again.
    """

    def __init__(self, limit: int, timeout_s: float) -> None:
        self._most, self._limit, self._timeout_s, self._open, self._begun = limit, limit, timeout_s, 0, 0
        self._waiting: OrderedDict[Key, list[Episode]] = OrderedDict()  # least recently played first
        self._changed = asyncio.Condition()
        self._closing: set[asyncio.Task[None]] = set()

    def take(self, key: Key) -> Episode | None:
        """An episode that has come this far; None where there is none."""
        return _popped(self._waiting, key)

    async def keep(self, key: Key, episode: Episode) -> None:
        """Keep an episode for its next turn."""
        self._waiting.setdefault(key, []).append(episode)
        self._waiting.move_to_end(key)
        async with self._changed:
            self._changed.notify()

    async def begin(self, start: Callable[[], Awaitable[Episode]]) -> Episode:
        """Begin an episode, once there may be another; one that waits for its next turn gives way.

        Args:
            start: Connects and begins.

        Raises:
            InfrastructureError: that of `start`, or the server stays full.
        """
        deadline, pause_s = time.monotonic() + self._timeout_s, RETRY_S
        while True:
            await self._reserve()
            try:
                episode = await start()
                self._begun += 1
                self._limit = min(self._most, self._limit + (self._begun % GROW_AFTER == 0))
                return episode
            except CapacityError:
                await self._release(is_full=True)
                if time.monotonic() > deadline:
                    raise
            except BaseException:
                await self._release()
                raise
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, MAX_RETRY_S)

    def end(self, episode: Episode) -> None:
        """Close an episode, without waiting for the server."""
        task = asyncio.ensure_future(self._close(episode))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all."""
        for episodes in self._waiting.values():
            for episode in episodes:
                self.end(episode)
        self._waiting.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _close(self, episode: Episode) -> None:
        try:
            await episode.close()
        except (OSError, InfrastructureError, TimeoutError):
            pass  # the server has gone before
        finally:
            await self._release()

    async def _reserve(self) -> None:
        async with self._changed:
            while self._open >= self._limit:
                if self._waiting and not self._closing:
                    key = next(iter(self._waiting))
                    episode = self.take(key)
                    assert episode is not None
                    self.end(episode)
                await self._changed.wait()
            self._open += 1

    async def _release(self, *, is_full: bool = False) -> None:
        async with self._changed:
            self._open -= 1
            if is_full:
                self._limit = max(1, min(self._limit, self._open))
            self._changed.notify()


class Environment:
    """Plays the rollouts of a task.

    A rollout keeps its connection from one turn to the next. Where that is gone, since the server allows fewer or the
    rollout comes from another process, the completions are played again, and every observation must be the same.

    Args:
        config: Options of the task.

    Attributes:
        secrets: Environment variables that worker processes do not get.

    Raises:
        UserError: no address, or no token.
    """

    def __init__(self, config: OpenEnvConfig) -> None:
        self.secrets: tuple[str, ...] = (config.api_key_env,) if config.api_key_env else ()
        self._config, self._address, self._token = config, config.address, token_of(config)
        self._episodes = Episodes(config.sessions, config.timeout_s)
        self._ended: OrderedDict[Key, list[Episode]] = OrderedDict()
        self._slots, self._health = asyncio.Semaphore(config.concurrency), Health(config.concurrency)

    async def follow(self, moves: Moves, row: Row) -> RemoteTurn:
        """Play the last completion.

        Raises:
            InfrastructureError: the environment fails.
        """
        assert isinstance(row, EpisodeRow)
        *before, text = moves
        async with self._slots:
            return await self._health.watch(lambda: self._play(tuple(before), str(text), row))

    async def reply(self, moves: Moves, row: Row) -> RemoteReply:
        """The reward of an episode.

        Raises:
            InfrastructureError: the environment fails, or gives none.
        """
        assert isinstance(row, EpisodeRow)
        if isinstance(moves[-1], str):  # nobody has played it
            moves = (await self.follow(moves, row)).moves
        key = (row.id, tuple(moves))
        if (ended := _popped(self._ended, key)) is not None:
            return ended.verdict()
        async with self._slots:
            episode = await self._health.watch(lambda: self._at(key[1], row))
        if not episode.is_over:
            self._episodes.end(episode)
        return episode.verdict()

    async def close(self) -> None:
        """Close the connections."""
        await self._episodes.close()

    async def _play(self, before: tuple[str | int, ...], text: str, row: EpisodeRow) -> RemoteTurn:
        episode = await self._at(before, row)
        number, prompt = await self._step(episode, text)
        moves = (*before, text, number)
        if prompt is None:
            self._ended.setdefault((row.id, moves), []).append(episode)
            while len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)
        else:
            await self._episodes.keep((row.id, moves), episode)
        return RemoteTurn(moves, prompt)

    async def _step(self, episode: Episode, text: str) -> tuple[int, Prompt | None]:
        try:
            number, prompt = await episode.step(text)
        except BaseException:
            self._episodes.end(episode)
            raise
        if episode.is_over:
            self._episodes.end(episode)
        return number, prompt

    async def _at(self, moves: tuple[str | int, ...], row: EpisodeRow) -> Episode:
        """An episode after these moves, played again if there is none."""
        if moves and (waiting := self._episodes.take((row.id, moves))) is not None:
            return waiting
        episode = await self._episodes.begin(lambda: Episode.of_row(self._config, self._token, row))
        for text, number in zip(moves[::2], moves[1::2], strict=True):
            seen, _ = await self._step(episode, str(text))
            if seen != number:
                if not episode.is_over:
                    self._episodes.end(episode)
                raise InfrastructureError(
                    f"{self._address}: turn {episode.turns} went another way when it was played again; the "
                    "environment does not repeat itself"
                )
        return episode
