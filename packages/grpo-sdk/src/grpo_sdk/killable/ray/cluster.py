from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, auto

from grpo_sdk.killable.outcome import Status

REQUEST = struct.Struct("<QIdI")
"""Before each payload to the bridge: the item, the node, the limit in seconds, its length. The setup is item 0."""

REPLY = struct.Struct("<BQdI")
"""Before each value from the bridge: the kind, the item, the seconds that the handler ran, its length."""

STATUSES: tuple[Status, ...] = ("ok", "error", "timeout", "crashed", "unavailable")
"""Kinds of replies that are outcomes; the value is the handler's, or says why there is none."""


class Kind(IntEnum):
    """Other kinds of replies, most of which are of a node in place of the item.

    READY: it can be given items; the value is its `Node` as JSON. LOST: it is lost; why. SETTLED: every node that there
    is is ready. FAILED: the bridge fails; why. RESTARTS: the workers that a node has replaced so far.
    """

    READY = len(STATUSES)
    LOST = auto()
    SETTLED = auto()
    FAILED = auto()
    RESTARTS = auto()


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A Ray cluster, and what its nodes need.

    Attributes:
        address: `host:port` of the head; None for `RAY_ADDRESS`, or else for the cluster that this machine is part of.
        versions: Versions that each node must have, by distribution.
        environment: Environment variables of this process that workers on the nodes get, too.
        greeting: Payload that each node answers once, for `RayPool.nodes`; None is no such payload.
    """

    address: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: tuple[str, ...] = ()
    greeting: bytes | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster.

    Attributes:
        name: Its address, with its name where it has another one.
        workers: Processes that may be busy there at once.
        greeting: Its answer to the cluster's greeting; empty where there is none.
    """

    name: str
    workers: int
    greeting: str = ""
