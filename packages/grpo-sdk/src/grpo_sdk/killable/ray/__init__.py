"""Workers on the nodes of a Ray cluster: `RayPool`.

    trainer's process                 bridge (a child)              each node
    RayPool ── NodeSet ── socket ──── bridge.py ── Ray's calls ──── node.Node ── KillablePool ── workers

Ray is imported by the bridge alone: a driver of Ray ends when the cluster's head does, cannot fork, and shares the
interpreter lock with what it serves.
"""

from grpo_sdk.killable.ray.cluster import RayCluster
from grpo_sdk.killable.ray.pool import RayPool

__all__ = ["RayCluster", "RayPool"]
