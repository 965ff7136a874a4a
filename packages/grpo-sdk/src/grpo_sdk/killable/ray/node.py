"""The actor on each node. It is sent by value, and imports this package only after its version is checked."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

Reply = tuple[int, str, bytes, float]
"""Item, status, value or reason in UTF-8, seconds."""


class NodeActor:
    """Runs payloads in a `KillablePool` of its node.

    Args:
        setup: How `RayPool` starts workers, and what the node must have.
        workers: Processes, where the options do not say.
    """

    def __init__(self, setup: Mapping[str, Any], workers: int) -> None:
        self._setup, self._workers = setup, setup["workers"] or workers
        self._pool: Any = None
        self._finished: list[Reply] = []
        self._news = asyncio.Event()

    def problem(self) -> str:
        """What the node lacks, in one line; empty where it has all."""
        missing = []
        for name, wanted in self._setup["versions"].items():
            try:
                own = metadata.version(name)
            except metadata.PackageNotFoundError:
                missing.append(f"{name} {wanted} is not installed there")
            else:
                if own != wanted:
                    missing.append(f"{name} is {own} there and {wanted} here")
        if missing:
            missing.append(f"its Python is {sys.executable} ({platform.python_version()})")
        return "; ".join(missing)

    async def start(self) -> str:
        """Start every worker, and return the answer to the greeting.

        Raises:
            InfrastructureError: one cannot; says why.
            RuntimeError: the greeting has no answer.
        """
        from grpo_sdk.killable import KillablePool
        from grpo_sdk.killable.secrets import withhold

        setup = self._setup
        for variable in setup["withheld"]:
            withhold(variable)
        # A folder that both machines have, e.g. of a shared home; the node's own come first.
        sys.path += [entry for entry in setup["path"] if entry not in sys.path and os.path.exists(entry)]
        cwd, args = setup["launch"].pop("cwd"), tuple(setup["launch"].pop("args"))
        if cwd and os.path.isdir(cwd):
            os.chdir(cwd)
        os.environ.update(setup["environment"])
        self._pool = KillablePool(args=args, workers=self._workers, **setup["launch"])
        await asyncio.to_thread(self._pool.warm)
        if setup["greeting"] is None:
            return ""
        (outcome,) = await self._pool.amap([setup["greeting"].encode()], setup["greeting_timeout_s"])
        if outcome.status != "ok":
            raise RuntimeError(outcome.why)
        return str(outcome.value.decode())

    async def put(self, items: Sequence[tuple[int, bytes, float]]) -> None:
        """Queue items: number, payload, limit in seconds."""
        loop = asyncio.get_running_loop()
        for number, payload, timeout_s in items:
            future = self._pool.submit(payload, timeout_s)
            future.add_done_callback(lambda done, number=number: loop.call_soon_threadsafe(self._finish, number, done))

    def _finish(self, number: int, done: Any) -> None:
        outcome = done.result()
        value = outcome.value if outcome.status == "ok" else outcome.why.encode("utf-8", "replace")
        self._finished.append((number, outcome.status, value, outcome.seconds))
        self._news.set()

    async def take(self) -> tuple[list[Reply], int]:
        """Outcomes since the last call, at least one, and the workers that were replaced so far."""
        await self._news.wait()
        self._news.clear()
        finished, self._finished = self._finished, []
        return finished, self._pool.stats.restarts
