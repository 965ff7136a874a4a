from __future__ import annotations

import json
import math
import os
import selectors
import sys
import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from grpo_sdk.errors import InfrastructureError
from grpo_sdk.killable.dispatcher import MakeExecutor
from grpo_sdk.killable.items import Item, ItemQueue
from grpo_sdk.killable.outcome import Outcome
from grpo_sdk.killable.pool import KillablePool
from grpo_sdk.killable.process import Launch
from grpo_sdk.killable.ray.channel import Channel
from grpo_sdk.killable.ray.cluster import FAILED, LOST, READY, RESTARTS, SETTLED, STATUSES, Node, RayCluster
from grpo_sdk.killable.secrets import withheld
from grpo_sdk.killable.supervisor import FIRST_PAUSE_S, LONGEST_PAUSE_S

AHEAD_S = 0.02
"""Work that each worker of a node may have ahead: several times the way there and back (2 ms on one machine)."""

MIN_DEPTH, MAX_DEPTH = 2, 64
"""Payloads that a worker of a node may have at least and at most."""

GREETING_S = 60.0
"""Limit of a node's answer to the greeting."""

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

    def _executor(self, launch: Launch, workers: int | None, start_timeout_s: float) -> MakeExecutor:
        return partial(NodeSet, self._cluster, launch, workers, start_timeout_s)


@dataclass(slots=True, eq=False)
class _Load:
    """A node and the number of items that it has."""

    node: Node
    held: int = 0


class NodeSet:
    """Gives a pool's items to the nodes of a Ray cluster, by way of a bridge; belongs to the pool's thread.

    The bridge is started when it is first needed. After a failure the next attempt waits for a pause to pass.

    Args:
        cluster: The cluster, and what its nodes need.
        launch: How workers are started on the nodes.
        workers: Processes per node; None is one per CPU.
        start_timeout_s: Limit of joining the cluster, and of loading the target there.
        queue: Items that wait for a node.
    """

    def __init__(
        self, cluster: RayCluster, launch: Launch, workers: int | None, start_timeout_s: float, queue: ItemQueue
    ) -> None:
        self.selector = selectors.DefaultSelector()
        self._cluster, self._launch, self._workers = cluster, launch, workers
        self._start_timeout_s, self._queue = start_timeout_s, queue
        self._channel: Channel | None = None
        self._loads: dict[int, _Load] = {}
        self._held: dict[int, tuple[Item, int]] = {}
        self._restarts: dict[tuple[int, int], int] = {}
        self._bridges, self._sent = 0, 0
        self._warming: list[Future[None]] = []
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
    def restarts(self) -> int:
        """Workers that were replaced, on all nodes."""
        return sum(list(self._restarts.values()))

    @property
    def is_idle(self) -> bool:
        """Whether no item waits and no node has one."""
        return not (self._queue.waiting or self._held)

    def warm(self, future: Future[None]) -> None:
        """Start every worker of every node; the future is done when all are ready."""
        self._warming.append(future)

    def dispatch(self) -> None:
        """Give items to nodes, and start the bridge; where there is no node, fail what waits for one."""
        if self._channel is None and (self._queue.waiting or self._warming):
            if time.monotonic() >= self._next_start:
                self._start()
            else:
                self._fail_waiting(self._trouble)
        if not self._is_settled:
            return
        if not self._loads:
            self._fail_waiting(f"no node of the Ray cluster is left: {self._trouble}")
            return
        while self._warming:
            self._warming.pop().set_result(None)
        self._assign()

    def patience_s(self) -> float | None:
        """Seconds to sleep: None when nothing can happen but a submission or an answer."""
        return None if self._deadline == math.inf else max(0.0, self._deadline - time.monotonic())

    def check_workers(self) -> None:
        """Give up a bridge that does not become ready."""
        if time.monotonic() >= self._deadline:
            self._failed(f"the Ray cluster was not ready after {self._start_timeout_s:g} s")

    def attend(self, _: object, mask: int, /) -> None:
        """Write to the bridge and read from it, as the selector's `mask` says is possible."""
        channel = self._channel
        if channel is None:
            return
        if mask & selectors.EVENT_WRITE:
            channel.flush()
        if mask & selectors.EVENT_READ:
            replies, is_open = channel.receive()
            for reply in replies:
                if self._channel is channel:  # a reply may end it
                    self._accept(*reply)
            if not is_open and self._channel is channel:
                self._failed(f"the process that is connected to the Ray cluster {channel.cause_of_death()}")

    def give_up(self, futures: Iterable[Future[None]], why: str) -> None:
        """Fail what waits for workers, because the pool ends; the futures were not passed to `warm` yet."""
        self._held.clear()
        self._warming.extend(futures)
        self._fail_waiting(why)

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
        self._deadline = time.monotonic() + self._start_timeout_s
        setup = _setup(self._cluster, self._launch, self._workers, self._start_timeout_s)
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
        elif kind == READY:
            self._loads[number] = _Load(Node(**json.loads(value)))
        elif kind == SETTLED:
            self._is_settled, self._deadline, self._failures = True, math.inf, 0
        elif kind == RESTARTS:
            self._restarts[self._bridges, number] = int(value)
        elif kind == LOST:
            self._is_settled, self._trouble = False, value.decode("utf-8", "replace")
            del self._loads[number]
            self._lose({item for item, (_, node) in self._held.items() if node == number}, self._trouble)
        elif kind == FAILED:
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
        while self._warming:
            self._warming.pop().set_exception(InfrastructureError(why))

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, self._is_settled, self._deadline = None, False, math.inf
        self._loads.clear()


def _setup(cluster: RayCluster, launch: Launch, workers: int | None, start_timeout_s: float) -> dict[str, object]:
    """What the bridge and the actors need to know."""
    return {
        "address": cluster.address,
        "target": launch.target,
        "args": launch.args,
        "workers": workers,
        "options": {
            "memory_mib": launch.memory_mib,
            "name": launch.name,
            "has_spare": launch.has_spare,
            "environment": dict(launch.environment),
            "start_timeout_s": start_timeout_s,
        },
        "versions": dict(cluster.versions),
        "withheld": withheld(),
        "path": [str(entry) for entry in sys.path],
        "cwd": launch.cwd,
        "environment": {name: os.environ[name] for name in cluster.environment if name in os.environ},
        "greeting": None if cluster.greeting is None else cluster.greeting.decode(),
        "greeting_timeout_s": GREETING_S,
    }
