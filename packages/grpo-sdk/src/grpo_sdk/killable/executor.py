from __future__ import annotations

import selectors
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from grpo_sdk.errors import InfrastructureError
from grpo_sdk.killable.items import ItemQueue


class Executor(ABC):
    """The processes of a pool, none of which is started at first; belongs to the pool's thread.

    Args:
        queue: Items that wait for a worker.

    Attributes:
        selector: Hears the processes.
        restarts: Workers that were replaced.
        warming: Futures that are done when every worker is ready; where there are some, all are started.
    """

    def __init__(self, queue: ItemQueue) -> None:
        self.selector = selectors.DefaultSelector()
        self.restarts = 0
        self.warming: list[Future[None]] = []
        self._queue = queue

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether no item waits and no worker has one."""

    @abstractmethod
    def dispatch(self) -> None:
        """Give items to workers, and start workers."""

    @abstractmethod
    def patience_s(self) -> float | None:
        """Seconds to sleep; None until something happens."""

    @abstractmethod
    def attend(self, channel: Any, mask: int) -> None:
        """Write to a channel of the selector and read from it, as `mask` says is possible."""

    @abstractmethod
    def check_workers(self) -> None:
        """Handle workers that are overdue or have ended."""

    @abstractmethod
    def shutdown(self) -> None:
        """End all."""

    @abstractmethod
    def abandon(self) -> None:
        """In a forked child: close what was inherited; the processes are the parent's."""

    def end_warming(self, why: str = "") -> None:
        """Tell who waits for the workers that they are ready, or why they are not."""
        while self.warming:
            future = self.warming.pop()
            if why:
                future.set_exception(InfrastructureError(why))
            else:
                future.set_result(None)


MakeExecutor = Callable[[ItemQueue], Executor]
"""Makes the processes of a pool."""
