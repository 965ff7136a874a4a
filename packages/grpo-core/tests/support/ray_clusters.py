"""Ray clusters of simulated nodes on this machine."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from grpo_sdk.killable import KillablePool
from grpo_sdk.killable.ray import RayCluster

EXECUTORS = (pytest.param("local"), pytest.param("ray", marks=pytest.mark.slow))
POOLS = (*EXECUTORS, pytest.param("forked", marks=pytest.mark.slow))
"""With the workers that are forked from a process which shares its imports."""


@contextmanager
def ray_cluster(*cpus: int) -> Iterator[Any]:
    """A running cluster, whose first node is the head; skips where Ray is not installed."""
    utils = pytest.importorskip("ray.cluster_utils", reason="ray is not installed: pip install 'grpo-sdk[ray]'")
    cluster = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": cpus[0], "include_dashboard": False})
    try:
        for count in cpus[1:]:
            cluster.add_node(num_cpus=count)
        yield cluster
    finally:
        cluster.shutdown()


@contextmanager
def executing(kind: str, module: str, names: dict[str, Any]) -> Iterator[None]:
    """Replace classes in a test module by those that use a cluster of one node, where the kind is `ray`.

    Args:
        kind: One of `POOLS`.
        module: Name of the test module.
        names: Name there -> what takes the cluster, by keyword.
    """
    if kind == "local":
        yield
        return
    if kind == "forked":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys.modules[module], "KillablePool", partial(KillablePool, preload="killable_targets"))
            yield
        return
    with ray_cluster(2) as cluster, pytest.MonkeyPatch.context() as patch:
        for name, made in names.items():
            patch.setattr(sys.modules[module], name, partial(made, cluster=RayCluster(cluster.address)))
        yield


def local_only(kind: str, why: str) -> None:
    """Skip a test that is about this machine's workers alone."""
    if kind == "ray":
        pytest.skip(why)
