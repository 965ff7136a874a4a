"""Where a run's numbers come from: hashes of configuration and data, versions of packages, conditions of scores."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

import orjson

from grpo_core.config import RunConfig, flatten
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.host import default_host
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.fingerprint import name_changes
from grpo_sdk.task.row import Row

FREE = frozenset(
    {
        "device", "engine.fallback", "engine.gather_weights", "engine.url", "output_dir",
        "trainer.cpu_offload", "trainer.ddp_timeout", "trainer.keep_last",
        "trainer.log_completions", "trainer.logging_steps", "trainer.max_minutes",
        "trainer.save_every", "trainer.save_minutes", "trainer.shard_size", "trainer.sharding", "trainer.stop_after",
    }
)  # fmt: skip
"""Settings that may differ after a resume: what is trained does not depend on them."""

_REPORTED = ("grpo-core", "grpo-sdk", "torch", "transformers", "peft", "numpy")
_DIGEST_BYTES = 8


def is_free(key: str) -> bool:
    """Whether a setting may differ after a resume."""
    return key in FREE or key.startswith("tracking.")


def config_hash(config: RunConfig) -> str:
    """Hash of every setting that decides what is trained: 16 hex digits."""
    deciding = {key: value for key, value in flatten(config).items() if not is_free(key)}
    return _hashed([orjson.dumps(deciding, option=orjson.OPT_SORT_KEYS, default=str)])


def data_hash(rows: Mapping[str, Sequence[Row]]) -> str:
    """Hash of the rows that are trained on, by label and in order, less those that were filtered out."""
    return _hashed(
        part
        for label, task_rows in rows.items()
        for part in (label.encode(), *(row.model_dump_json().encode() for row in task_rows))
    )


def versions(tasks: Iterable[BoundTask] = ()) -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on, those of the tasks' plugins among them."""
    packages = {"python": platform.python_version(), **{name: metadata.version(name) for name in _REPORTED}}
    host = default_host()
    for plugin in sorted({task.plugin for task in tasks if task.plugin is not None}):
        if plugin in host.names:
            name, _, version = host.distribution(plugin).rpartition(" ")
            packages[name or plugin] = version
    return packages


def check_identities(tasks: Iterable[BoundTask], info: Mapping[str, Any], allow: Collection[str]) -> None:
    """Refuse tasks that are not those of a checkpoint, unless `allow` names `data`.

    Args:
        tasks: The tasks that are trained on.
        info: What the checkpoint was made with.
        allow: What may differ.

    Raises:
        UserError: a task differs; names the ingredients of its identity that do.
    """
    tasks, stored = list(tasks), info["identities"]
    if "data" in allow:
        return
    changed = [task for task in tasks if task.identity != stored.get(task.spec)]
    if changed:
        packages = versions(tasks)
        raise UserError(" ".join([*(_changed_task(task, info, packages) for task in changed), _ALLOW_TASK]))


_ALLOW_TASK = "grpo replay shows what that does to scores; allow it with --allow task."


def _changed_task(task: BoundTask, info: Mapping[str, Any], packages: Mapping[str, str]) -> str:
    """A sentence about a task that is not the checkpoint's: which ingredients of its identity differ."""
    what = name_changes(task.ingredients, info["ingredients"].get(task.spec, {}))
    then = info["versions"]
    installed = [
        f"{name} is {version} now and was {then.get(name, 'not used')}"
        for name, version in packages.items()
        if version != then.get(name)
    ]
    return "; ".join([f"task {task.spec} changed since the checkpoint: {what}", *installed]) + "."


def _hashed(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(hashlib.blake2b(part).digest())
    return digest.hexdigest()
