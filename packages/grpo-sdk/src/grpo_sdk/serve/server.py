"""`grpo serve` as an object: a bounded server of tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from grpo_sdk.episodes.opponents import endpoint_opponent
from grpo_sdk.plugins.task_objects import AnyTask
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.serve.app import TaskApplication
from grpo_sdk.serve.bounded import BoundedServer, Certificate
from grpo_sdk.serve.guard import Access, Bounds
from grpo_sdk.serve.openenv import OpenEnv
from grpo_sdk.serve.scoring import Service
from grpo_sdk.serve.tasks import ServedTask, ServedTasks
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.marks import END_TOKENS

DEFAULT_PORT = 8710

DEFAULT_BOUNDS = Bounds(connections=1024, requests=64, waiting=512, body_bytes=16 << 20, head_s=20.0, grace_s=30.0)
"""At most 1 GiB of bodies at once; 64 connections are what slime opens, and its client keeps idle ones for 15 s."""

ACCESS = Access(methods=frozenset({"GET", "POST"}), open_paths=frozenset({"/health"}), own_pages=True, websockets=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Options of a server of tasks.

    Attributes:
        workers: Processes for each task; by default one per usable core.
        timeout_s: Limit per completion; by default the task's own.
        memory_mib: Address space that one completion may take.
        opponent_url: Endpoint that plays the opponents of tasks that have one: `http://host:port/v1#model`.
        end_tokens: Texts that are removed from the end of completions, beside those of common models.
        bounds: Resource limits of clients.
    """

    workers: int | None = None
    timeout_s: float | None = None
    memory_mib: int | None = 4096
    opponent_url: str | None = None
    end_tokens: tuple[str, ...] = ()
    bounds: Bounds = DEFAULT_BOUNDS


class TaskServer(BoundedServer):
    """Serves tasks to other trainers; listens as soon as it is constructed.

    Args:
        tasks: Tasks, or their specs.
        token: Token that clients must send; without a token only this machine is served.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one, see `address`.
        options: Scorers, opponents and limits.
        certificate: TLS certificate, for https.

    Attributes:
        tasks: The tasks, and their scorers.

    Raises:
        UserError: no such task or option, or the address cannot be used.
    """

    def __init__(
        self,
        tasks: Sequence[AnyTask | BoundTask],
        token: str = "",
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        options: ServeOptions | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        options = options or ServeOptions()
        bound = [task if isinstance(task, BoundTask) else load_task(task) for task in tasks]
        served = [
            ServedTask(label, task, endpoint_opponent(task, options.opponent_url))
            for label, task in zip(_labels(bound), bound, strict=True)
        ]
        limits: dict[str, Any] = {"timeout_s": options.timeout_s, "memory_mib": options.memory_mib}
        self.tasks = ServedTasks(served, partial(Scorer, workers=options.workers, **limits))
        service = Service(self.tasks, end_tokens=(*END_TOKENS, *options.end_tokens))
        super().__init__(
            TaskApplication(service, OpenEnv(service)).app,
            token,
            host=host,
            port=port,
            bounds=options.bounds,
            access=ACCESS,
            certificate=certificate,
        )

    def warm(self) -> None:
        """Start the workers, of 16 tasks at most, and wait for them.

        Raises:
            InfrastructureError: a worker cannot start.
        """
        self.tasks.warm()

    def close(self) -> None:
        """Stop listening and end all workers."""
        super().close()
        self.tasks.close()


def _labels(tasks: Sequence[BoundTask]) -> list[str]:
    """Name of each task in paths: its own, with a number where several have the same."""
    seen: Counter[str] = Counter()
    labels = []
    for task in tasks:
        seen[task.label] += 1
        labels.append(task.label if seen[task.label] == 1 else f"{task.label}-{seen[task.label]}")
    return labels
