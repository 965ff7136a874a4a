"""Scoring on the nodes of a Ray cluster: what they get and need, and what the scores depend on there."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.errors import InfrastructureError, UserError
from grpo_sdk.files import replace_file
from grpo_sdk.killable import KillablePool
from grpo_sdk.killable.ray import RayCluster, RayPool
from grpo_sdk.killable.ray.cluster import Node
from grpo_sdk.plugins.folders import cache_folder
from grpo_sdk.plugins.host import default_host
from grpo_sdk.plugins.task_objects import send
from grpo_sdk.plugins.tasks import load_task, received_task
from grpo_sdk.scoring.wire import handler_of
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.spec import TaskSpec, parse_task_specs

ENVIRONMENT = ("GRPO_SANDBOX_ALLOW_WEAK", "GRPO_SANDBOX_LEVEL")
"""What the user demands of the sandbox holds on every node; other variables, and secrets, stay here."""

MAX_NAMED = 4
"""Nodes that are named; of more, the first ones."""


def ray_cluster(address: str | None = None) -> RayCluster:
    """The cluster that scores.

    Args:
        address: `host:port` of the head; None for `RAY_ADDRESS`, or else for the cluster that this machine is part of.

    Raises:
        UserError: Ray is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError("scoring.executor=ray needs Ray, here and on each node: pip install 'grpo-sdk[ray]'")
    return RayCluster(address, environment=ENVIRONMENT)


def node_pool(task: BoundTask, sent: Sequence[str], cluster: RayCluster, **options: Any) -> KillablePool:
    """The pool of a task's workers on the nodes.

    Args:
        task: The task.
        sent: What `send` returns for it.
        cluster: The cluster.
        options: Options of the pool.
    """
    cluster = replace(cluster, versions=_versions([task]))
    return RayPool(f"{__name__}:make_node_handler", args=_portable(task, sent), cluster=cluster, **options)


def use_nodes(cluster: RayCluster, tasks: Sequence[BoundTask]) -> list[ResolvedDefault]:
    """Check that every node can score the tasks; their `conditions` become those of the nodes.

    Args:
        cluster: The cluster.
        tasks: Tasks that will be scored there.

    Returns:
        The nodes, as a choice to be shown.

    Raises:
        InfrastructureError: the cluster cannot be joined, or a node lacks something; says what.
    """
    sent = [_portable(task, send(task, with_rows=task.task.conditions is not None)) for task in tasks]
    cluster = replace(cluster, versions=_versions(tasks), greeting=b"{}")
    with RayPool(
        f"{__name__}:make_check", args=sent, cluster=cluster, workers=1, has_spare=False, name="check"
    ) as pool:
        try:
            pool.warm()
        except InfrastructureError as error:
            raise InfrastructureError(f"scoring.executor=ray: {error}") from None
        nodes = pool.nodes()
    of_nodes = [json.loads(node.greeting) for node in nodes]
    for index, task in enumerate(tasks):
        task.conditions = _merged(nodes, [conditions[index] for conditions in of_nodes])
    count = f"{len(nodes)} node{'s' * (len(nodes) > 1)} of a Ray cluster"
    return [ResolvedDefault("scoring", count, f"scoring.executor=ray: {_named(nodes)}")]


def _merged(nodes: Sequence[Node], conditions: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Conditions of all nodes: one text where they agree, else each text with its nodes."""
    merged = {}
    for name in dict.fromkeys(name for each in conditions for name in each):
        of: dict[str, list[Node]] = {}
        for node, each in zip(nodes, conditions, strict=True):
            of.setdefault(each.get(name, "none"), []).append(node)
        texts = [f"{text} (on {_named(members)})" for text, members in of.items()]
        merged[name] = next(iter(of)) if len(of) == 1 else "; ".join(texts)
    return merged


def _named(nodes: Sequence[Node]) -> str:
    rest = f" and {len(nodes) - MAX_NAMED} more" if len(nodes) > MAX_NAMED else ""
    return ", ".join(node.name for node in nodes[:MAX_NAMED]) + rest


def _versions(tasks: Sequence[BoundTask]) -> dict[str, str]:
    """Distributions that score the tasks, with their versions here."""
    plugins = {"core", *(task.plugin for task in tasks if task.plugin is not None)}
    packages = [package for plugin in plugins for package in default_host().distribution(plugin).split(" and ")]
    return {name: version for name, _, version in (package.rpartition(" ") for package in sorted(packages))}


def _portable(task: BoundTask, sent: Sequence[str]) -> tuple[str, ...]:
    """What `_node_task` makes the task of: what was sent, and the name and the text of its file, if it has one."""
    if not task.source:
        return tuple(sent)
    (spec,) = parse_task_specs(task.spec)
    file, _, attribute = spec.name.rpartition(":")
    return "", Path(file).name, task.source, attribute, json.dumps(spec.options)


def _node_task(sent: Sequence[str]) -> BoundTask:
    """Make a task on a node, from what `_portable` returned there."""
    if sent[0]:
        return received_task(*sent)
    _, name, text, attribute, options = sent
    path = _stored(name, text.encode("utf-8", "surrogateescape"))
    return load_task(str(TaskSpec(f"{path}:{attribute}", 1.0, json.loads(options))))


def _stored(name: str, source: bytes) -> Path:
    """The file with this content in this node's cache, which several workers may write at once."""
    folder = cache_folder() / "task_files" / hashlib.sha256(source).hexdigest()[:16]
    path = folder / name
    if not path.is_file() or path.read_bytes() != source:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, source)
    return path


def make_node_handler(*sent: str) -> Callable[[bytes], bytes]:
    """What a worker on a node calls once: `handler_of` the task."""
    return handler_of(_node_task(sent))


def make_check(*sent: Sequence[str]) -> Callable[[bytes], bytes]:
    """Load tasks on a node, and return what answers with the conditions of each."""
    tasks = [_node_task(each) for each in sent]
    return lambda _: json.dumps([dict(task.conditions) for task in tasks]).encode()
