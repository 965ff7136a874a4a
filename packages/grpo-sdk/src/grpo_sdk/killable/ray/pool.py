from __future__ import annotations

import json
import math
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from grpo_sdk.killable.executor import Executor, MakeExecutor
from grpo_sdk.killable.items import Item, ItemQueue
from grpo_sdk.killable.outcome import Outcome
from grpo_sdk.killable.pool import KillablePool
from grpo_sdk.killable.process import Frames, Launch
from grpo_sdk.killable.ray.cluster import REPLY, REQUEST, STATUSES, Kind, Node, RayCluster
from grpo_sdk.killable.secrets import withheld, worker_environment
from grpo_sdk.killable.supervisor import FIRST_PAUSE_S, LONGEST_PAUSE_S, fork_lock

AHEAD_S = 0.02
"""Work that each worker of a node may have ahead: several times the way there and back (2 ms on one machine)."""

MIN_DEPTH, MAX_DEPTH = 2, 64
"""Payloads that a worker of a node may have at least and at most."""

GREETING_S = 60.0
"""Limit of a node's answer to the greeting."""

CLOSE_S = 3.0
"""Time for leaving the cluster."""

NOT_BY_UV = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
"""Of Ray 2.60: under `uv run` it would send the working directory to the nodes, and make an environment there."""

_MEAN_DECAY = 0.95


class RayPool(KillablePool):
    """A `KillablePool` whose workers are on the nodes of a Ray cluster, in one actor per node.

    Deadlines, kills and outcomes are those of `KillablePool`, which each actor has. What a lost node had is run on
    another one, once; after a second loss, and where no node is left, it is `unavailable`. Nodes that join, or come
    back, are used within seconds. The actors reserve no CPUs, and nodes without CPUs (`ray start --num-cpus=0`) get
    none. What a handler prints goes to Ray's logs.

    Args:
        target: "module:factory", importable on the nodes.
        cluster: The cluster, and what its nodes need.
        workers: Processes per node; by default one per CPU that the node has by Ray's count, at most 16.
        options: Other arguments of `KillablePool`. The limit of starting is also that of joining the cluster.
    """

    def __init__(self, target: str, *, cluster: RayCluster, workers: int | None = None, **options: Any) -> None:
        self._cluster = cluster
        super().__init__(target, workers=workers, **options)
        self._remake = partial(RayPool, target, cluster=cluster, workers=workers, **options)

    def nodes(self) -> tuple[Node, ...]:
        """The nodes that are ready, by name, after `warm` has started them."""
        nodes = self._dispatcher.executor
        return tuple(sorted(nodes.nodes, key=lambda node: node.name)) if isinstance(nodes, NodeSet) else ()

    def _executor(self, launch: Launch, workers: int | None) -> MakeExecutor:
        return partial(NodeSet, self._cluster, launch, workers)


@dataclass(slots=True, eq=False)
class _Load:
    """A node and the number of items that it has."""

    node: Node
    held: int = 0


class Channel(Frames):
    """The bridge's process and the socket to it.

    Args:
        selector: Hears the socket.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        path = os.pathsep.join(str(entry) for entry in sys.path)
        with fork_lock:
            channel, theirs = socket.socketpair()
            super().__init__(channel, REQUEST, REPLY)
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "grpo_sdk.killable.ray.bridge", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # stdout is for results
                    env={NOT_BY_UV: "0", **worker_environment(), "PYTHONPATH": path},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is for the trainer
                )
            except OSError:
                channel.close()
                raise
            finally:
                theirs.close()
        selector.register(self.channel, selectors.EVENT_READ, self)

    def send(self, payload: bytes, item: int, node: int, limit_s: float) -> None:
        """Send an item to a node; the setup is item 0."""
        self.put(payload, item, node, limit_s)
        self.flush()

    def flush(self) -> bool:
        """Send what there is room for, and wait for more only while bytes are left; returns whether that was all."""
        is_all = super().flush()
        self.listen(self._selector)
        return is_all

    def close(self) -> None:
        """End the process, which leaves the cluster at the end of the file."""
        self._selector.unregister(self.channel)
        self.channel.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def cause_of_death(self) -> str:
        """How the process ended."""
        try:
            return f"ended with status {self._process.wait(CLOSE_S)}"
        except subprocess.TimeoutExpired:
            return "closed its socket"

    def abandon(self) -> None:
        """In a forked child: close what was inherited; the process is the parent's."""
        self.channel.close()
        self._process.returncode = 0  # not our child: nothing to wait for


class NodeSet(Executor):
    """Gives a pool's items to the nodes of a Ray cluster, by way of a bridge; belongs to the pool's thread.

    The bridge is started when it is first needed. After a failure the next attempt waits for a pause to pass.

    Args:
        cluster: The cluster, and what its nodes need.
        launch: How workers are started on the nodes; its limit of loading is that of joining the cluster, too.
        workers: Processes per node; None is one per CPU.
        queue: Items that wait for a node.
    """

    def __init__(self, cluster: RayCluster, launch: Launch, workers: int | None, queue: ItemQueue) -> None:
        super().__init__(queue)
        self._cluster, self._launch, self._workers = cluster, launch, workers
        self._channel: Channel | None = None
        self._loads: dict[int, _Load] = {}
        self._held: dict[int, tuple[Item, int]] = {}
        self._restarts: dict[tuple[int, int], int] = {}
        self._bridges, self._sent = 0, 0
        self._is_settled = False
        self._deadline = math.inf
        self._trouble = ""
        self._failures, self._next_start = 0, 0.0
        self._mean_s = AHEAD_S

    @property
    def nodes(self) -> list[Node]:
        """The nodes that are ready."""
        return [load.node for load in list(self._loads.values())]

    @property
    def is_idle(self) -> bool:
        """Whether no item waits and no node has one."""
        return not (self._queue.waiting or self._held)

    def dispatch(self) -> None:
        """Give items to nodes, and start the bridge; where there is no node, fail what waits for one."""
        if self._channel is None and (self._queue.waiting or self.warming):
            if time.monotonic() >= self._next_start:
                self._start()
            else:
                self._fail_waiting(self._trouble)
        if not self._is_settled:
            return
        if not self._loads:
            self._fail_waiting(f"no node of the Ray cluster is left: {self._trouble}")
            return
        self.end_warming()
        self._assign()

    def patience_s(self) -> float | None:
        """Seconds to sleep: None when nothing can happen but a submission or an answer."""
        return None if self._deadline == math.inf else max(0.0, self._deadline - time.monotonic())

    def check_workers(self) -> None:
        """Give up a bridge that does not become ready."""
        if time.monotonic() >= self._deadline:
            self._failed(f"the Ray cluster was not ready after {self._launch.start_timeout_s:g} s")

    def attend(self, _: object, mask: int, /) -> None:
        """Write to the bridge and read from it, as the selector's `mask` says is possible."""
        channel = self._channel
        if channel is None:
            return
        if mask & selectors.EVENT_WRITE:
            channel.flush()
        if mask & selectors.EVENT_READ:
            replies, is_open = channel.receive()
            for (kind, number, seconds), value in replies:
                if self._channel is channel:  # a reply may end it
                    self._accept(kind, number, seconds, value)
            if not is_open and self._channel is channel:
                self._failed(f"the process that is connected to the Ray cluster {channel.cause_of_death()}")

    def shutdown(self) -> None:
        """Leave the cluster, which ends the actors and their workers."""
        self._close()
        self.selector.close()

    def abandon(self) -> None:
        """In a forked child: close what was inherited; the bridge is the parent's."""
        if self._channel is not None:
            self._channel.abandon()
        self.selector.close()

    def _start(self) -> None:
        try:
            self._channel = Channel(self.selector)
        except OSError as error:
            self._failed(f"cannot start a process: {error}")
            return
        self._bridges += 1
        self._deadline = time.monotonic() + self._launch.start_timeout_s
        setup = _setup(self._cluster, self._launch, self._workers)
        self._channel.send(json.dumps(setup).encode(), 0, 0, 0.0)

    def _assign(self) -> None:
        assert self._channel is not None
        depth = min(MAX_DEPTH, max(MIN_DEPTH, AHEAD_S / max(self._mean_s, 1e-6)))
        while self._queue.waiting:
            number, load = min(self._loads.items(), key=lambda pair: pair[1].held / pair[1].node.workers)
            if load.held >= depth * load.node.workers:
                return
            if item := self._queue.take():
                load.held += 1
                self._sent += 1
                self._held[self._sent] = item, number
                self._channel.send(item.payload, self._sent, number, item.timeout_s)

    def _accept(self, kind: int, number: int, seconds: float, value: bytes) -> None:
        if kind < len(STATUSES):
            self._finished(kind, number, seconds, value)
        elif kind == Kind.READY:
            self._loads[number] = _Load(Node(**json.loads(value)))
        elif kind == Kind.SETTLED:
            self._is_settled, self._deadline, self._failures = True, math.inf, 0
        elif kind == Kind.RESTARTS:
            self._restarts[self._bridges, number] = int(value)
            self.restarts = sum(self._restarts.values())
        elif kind == Kind.LOST:
            self._is_settled, self._trouble = False, value.decode("utf-8", "replace")
            del self._loads[number]
            self._lose({item for item, (_, node) in self._held.items() if node == number}, self._trouble)
        elif kind == Kind.FAILED:
            self._failed(value.decode("utf-8", "replace"))

    def _finished(self, kind: int, number: int, seconds: float, value: bytes) -> None:
        if number not in self._held:  # of a node that was given up
            return
        item, node = self._held.pop(number)
        self._loads[node].held -= 1
        self._mean_s = _MEAN_DECAY * self._mean_s + (1 - _MEAN_DECAY) * seconds
        status = STATUSES[kind]
        if status in ("timeout", "crashed") and not seconds and self._queue.answer_from_quarantine(item):
            return  # it did not run: its twin had gone to the same node, whose quarantine answered
        if status == "ok":
            outcome = Outcome(status, value, seconds=seconds)
        else:
            outcome = Outcome(status, why=value.decode("utf-8", "replace"), seconds=seconds)
        self._queue.finish(item, outcome)

    def _lose(self, numbers: Iterable[int], why: str) -> None:
        """Give the items of a lost node to another one; those that lose a second one are done."""
        lost = [self._held.pop(number)[0] for number in sorted(numbers)]
        for item in lost:
            if item.has_killed:
                self._queue.finish(item, Outcome("unavailable", why=f"lost twice: {why}"))
        self._queue.put_back([item for item in lost if not item.has_killed])
        for item in lost:
            item.has_killed = True

    def _failed(self, why: str) -> None:
        """End the bridge. The next one is started at once where this one was of use, else when a pause has passed."""
        self._trouble, has_served = why, bool(self._loads)
        self._close()
        self._lose(list(self._held), why)
        if has_served:
            return
        self._next_start = time.monotonic() + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures, 16))
        self._failures += 1
        self._fail_waiting(why)

    def _fail_waiting(self, why: str) -> None:
        self._queue.give_up(why)
        self.end_warming(why)

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, self._is_settled, self._deadline = None, False, math.inf
        self._loads.clear()


def _setup(cluster: RayCluster, launch: Launch, workers: int | None) -> dict[str, object]:
    """What the bridge and the actors need to know."""
    return {
        "address": cluster.address,
        "launch": asdict(launch),
        "workers": workers,
        "versions": dict(cluster.versions),
        "withheld": withheld(),
        "path": [str(entry) for entry in sys.path],
        "environment": {name: os.environ[name] for name in cluster.environment if name in os.environ},
        "greeting": None if cluster.greeting is None else cluster.greeting.decode(),
        "greeting_timeout_s": GREETING_S,
    }
