from __future__ import annotations

from functools import partial
from typing import Any

from grpo_sdk.killable.dispatcher import MakeExecutor
from grpo_sdk.killable.pool import KillablePool
from grpo_sdk.killable.process import Launch
from grpo_sdk.killable.ray.cluster import Node, RayCluster
from grpo_sdk.killable.ray.node_set import NodeSet


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
