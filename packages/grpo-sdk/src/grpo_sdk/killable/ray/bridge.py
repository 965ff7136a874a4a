"""Passes payloads between a `RayPool` and the actors of its nodes: a process that ends with its socket."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from grpo_sdk.errors import GrpoError
from grpo_sdk.killable.pool import MAX_DEFAULT_WORKERS
from grpo_sdk.killable.ray import node as node_module
from grpo_sdk.killable.ray.cluster import REPLY, REQUEST, STATUSES, Kind, Node
from grpo_sdk.killable.scheduling import patience_s

REACH_S = 5.0
"""Limit of the first connection to an address: a wrong one is known before Ray begins its own, longer attempts."""

SEARCH_S = 5.0
"""Interval at which nodes that have joined are looked for."""

WATCH_S = 1.0
"""Interval at which a node with payloads is checked for silence."""

MAX_CALLS = 1000
"""Calls that an actor takes at once: one `take`, and each `put` while its payloads are read."""

MAX_REASON_CHARS = 300


class ClusterError(Exception):
    """Why the cluster cannot be used, in one line."""


@dataclass(slots=True, eq=False)
class _Member:
    """A node that takes part.

    Attributes:
        id: Ray's id of the node.
        name: Its name for people.
        actor: Ray's handle of its actor.
        limits_s: Limit of each item that it has.
        heard: When it last answered or got its first item, by the monotonic clock.
    """

    id: str
    name: str
    actor: Any
    limits_s: dict[int, float] = field(default_factory=dict)
    heard: float = 0.0


class Bridge:
    """The connection of a pool to a cluster.

    Args:
        writer: To the pool.
        setup: What `NodeSet` says of the pool.
    """

    def __init__(self, writer: asyncio.StreamWriter, setup: dict[str, Any]) -> None:
        self._writer, self._setup = writer, setup
        self._members: dict[int, _Member] = {}
        self._refused: set[str] = set()
        self._has_changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsent: dict[int, list[tuple[int, bytes, float]]] = {}
        self._joined = 0

    async def run(self) -> None:
        """Join the cluster, start the actors, and look for nodes that join later."""
        try:
            await asyncio.to_thread(_connect, self._setup["address"])
            await self._search(is_first=True)
        except ClusterError as error:
            self._reply(Kind.FAILED, value=str(error).encode())
            return
        while True:
            self._reply(Kind.SETTLED)
            self._has_changed.clear()
            while not self._has_changed.is_set():
                try:
                    await asyncio.wait_for(self._has_changed.wait(), SEARCH_S)
                except TimeoutError:
                    await self._search()
            await self._search()

    def give(self, node: int, item: int, payload: bytes, limit_s: float) -> None:
        """Send an item to a node, with all that come before the event loop looks around."""
        member = self._members.get(node)
        if member is None:  # lost: the pool has been told
            return
        if not member.limits_s:
            member.heard = time.monotonic()
        member.limits_s[item] = limit_s
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._send)
        self._unsent.setdefault(node, []).append((item, payload, limit_s))

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for node, items in unsent.items():
            if node in self._members:
                self._spawn(self._put(node, self._members[node], items))

    async def _put(self, node: int, member: _Member, items: list[tuple[int, bytes, float]]) -> None:
        try:
            await member.actor.put.remote(items)
        except RayError as error:
            self._lose(node, _reason(error))

    async def _search(self, *, is_first: bool = False) -> None:
        """Start the actors of new nodes."""
        known = {member.id for member in self._members.values()} | self._refused
        alive = [node for node in await asyncio.to_thread(ray.nodes) if node["Alive"]]
        usable = [node for node in alive if node["Resources"].get("CPU", 0) >= 1]
        started = [self._start(node) for node in usable if node["NodeID"] not in known]
        for problem in filter(None, await asyncio.gather(*started)):
            if is_first:
                raise ClusterError(problem)
            print(f"warning: {problem}; it is not used", file=sys.stderr, flush=True)
        if is_first and not self._members:
            raise ClusterError(
                f"the Ray cluster has no node to score on ({len(alive)} alive, {len(usable)} with a CPU): start one "
                "with ray start --address=HOST:PORT"
            )

    async def _start(self, node: dict[str, Any]) -> str:
        """Start the actor of a node; the reason why it cannot be used, or empty where it can, or has gone."""
        workers = min(int(node["Resources"]["CPU"]), MAX_DEFAULT_WORKERS)
        name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}, {node['NodeID'][:8]})"
        actor: Any = (
            ray.remote(node_module.NodeActor)
            .options(
                num_cpus=0,
                max_concurrency=MAX_CALLS,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            )
            .remote(self._setup, workers)
        )
        try:
            problem = await actor.problem.remote()
            greeting = "" if problem else await actor.start.remote()
        except RayTaskError as error:
            problem = _reason(error)
        except RayError as error:
            print(f"warning: node {name} of the Ray cluster: {_reason(error)}", file=sys.stderr, flush=True)
            return ""
        if problem:
            self._refused.add(node["NodeID"])
            ray.kill(actor)
            return f"node {name} of the Ray cluster cannot score: {problem}"
        self._joined += 1
        member = _Member(node["NodeID"], name, actor)
        self._members[self._joined] = member
        ready = Node(name, self._setup["workers"] or workers, greeting)
        self._reply(Kind.READY, self._joined, value=json.dumps(asdict(ready)).encode())
        self._spawn(self._listen(self._joined, member))
        return ""

    async def _listen(self, node: int, member: _Member) -> None:
        """Pass a node's outcomes on until it is lost."""
        restarts = 0
        try:
            while True:
                taken = asyncio.ensure_future(_awaited(member.actor.take.remote()))
                while not (await asyncio.wait({taken}, timeout=WATCH_S))[0]:
                    if self._is_silent(member):
                        taken.cancel()
                        self._lose(node, f"no answer for {time.monotonic() - member.heard:.0f} s")
                        return
                replies, count = taken.result()
                member.heard = time.monotonic()
                if count != restarts:
                    restarts = count
                    self._reply(Kind.RESTARTS, node, value=str(count).encode())
                for item, status, value, seconds in replies:
                    member.limits_s.pop(item, None)
                    self._reply(STATUSES.index(status), item, seconds, value)
        except RayError as error:
            self._lose(node, _reason(error))

    def _is_silent(self, member: _Member) -> bool:
        """Whether a node has items, and has answered none for longer than any of them, and its worker, may take."""
        longest_s = max(member.limits_s.values(), default=float("inf"))
        silence_s: float = patience_s(longest_s) + self._setup["launch"]["start_timeout_s"]
        return time.monotonic() - member.heard > silence_s

    def _lose(self, node: int, why: str) -> None:
        member = self._members.pop(node, None)
        if member is None:
            return
        ray.kill(member.actor)
        print(f"warning: node {member.name} of the Ray cluster was lost: {why}", file=sys.stderr, flush=True)
        self._reply(Kind.LOST, node, value=f"node {member.name} of the Ray cluster was lost: {why}".encode())
        self._has_changed.set()

    def _reply(self, kind: int, number: int = 0, seconds: float = 0.0, value: bytes = b"") -> None:
        self._writer.write(REPLY.pack(kind, number, seconds, len(value)) + value)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _end(self._writer, f"{type(error).__name__}: {error}")


async def _awaited(ref: Any) -> Any:
    return await ref


def _connect(address: str | None) -> None:
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    if "://" in address:
        raise ClusterError(
            f"{address}: the machine of the run must be a node of the Ray cluster: join it with ray start "
            "--address=HOST:PORT, and give that HOST:PORT"
        )
    if address != "auto":
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
        except (OSError, ValueError, OverflowError) as error:
            raise ClusterError(f"no Ray cluster answers at {address}: {error}") from None
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except ConnectionError as error:
        advice = "start one with ray start --head, or join one with ray start --address=HOST:PORT"
        reason = "no Ray cluster runs here" if address == "auto" else f"{address}: {_reason(error)}"
        raise ClusterError(f"{reason}: {advice}") from None
    except (RuntimeError, ValueError, RayError, TimeoutError) as error:
        raise ClusterError(f"the Ray cluster at {address} cannot be joined: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """One line; of an error on a node, without the traceback there."""
    cause = getattr(error, "cause", None)
    error = cause if isinstance(cause, BaseException) else error
    text = " ".join(str(error).split())[:MAX_REASON_CHARS]
    return text if isinstance(error, GrpoError | RayError | OSError) else f"{type(error).__name__}: {text}"


def _end(writer: asyncio.StreamWriter, why: str) -> None:
    value = why.encode("utf-8", "replace")
    writer.write(REPLY.pack(Kind.FAILED, 0, 0.0, len(value)) + value)


async def _read(reader: asyncio.StreamReader) -> tuple[int, int, float, bytes]:
    item, node, limit_s, length = REQUEST.unpack(await reader.readexactly(REQUEST.size))
    return item, node, limit_s, await reader.readexactly(length)


async def _serve(channel: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=channel, limit=1 << 20)
    try:
        *_, setup = await _read(reader)
        bridge = Bridge(writer, json.loads(setup))
        bridge._spawn(bridge.run())
        while True:
            item, node, limit_s, payload = await _read(reader)
            bridge.give(node, item, payload, limit_s)
    except (asyncio.IncompleteReadError, ConnectionError):  # the pool is closed, or its process has ended
        return


def main(descriptor: int) -> NoReturn:
    """Serve the pool at the other end of a socket.

    Args:
        descriptor: The socket, inherited.
    """
    cloudpickle: Any = ray.cloudpickle  # it has no types
    cloudpickle.register_pickle_by_value(node_module)
    asyncio.run(_serve(socket.socket(fileno=descriptor)))
    if ray.is_initialized():
        ray.shutdown()
    os._exit(0)  # a thread may still be connecting


if __name__ == "__main__":
    main(int(sys.argv[1]))
