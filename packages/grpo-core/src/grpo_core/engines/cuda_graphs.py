"""Steps captured as CUDA graphs: launching thousands of kernels one by one takes longer than they run."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

MAX_GRAPHS = 32
"""Graphs kept; the one that was not used for longest is dropped first."""


class Graphs:
    """Graphs by key, with one pool of memory, since only one runs at a time.

    Attributes:
        failed: Why nothing is captured any more; None while captures succeed.
        captures: Captures made.
    """

    def __init__(self, device: torch.device, most: int = MAX_GRAPHS) -> None:
        self._device, self._most = device, most
        self._graphs: OrderedDict[Hashable, tuple[torch.cuda.CUDAGraph, Tensor]] = OrderedDict()
        self._ran: set[Hashable] = set()
        self._pool: Any = None
        self.failed: str | None = None
        self.captures = 0

    def __len__(self) -> int:
        return len(self._graphs)

    def run(self, key: Hashable, step: Callable[[], Tensor]) -> Tensor:
        """Run a step: as it is the first time, which loads its kernels, and from its graph afterwards.

        Args:
            key: What the step's kernels and addresses depend on.
            step: Reads and writes tensors on the device, which must stay where they are until `clear`.

        Returns:
            What the step returned, valid until the next run.
        """
        found = self._graphs.get(key)
        if found is None and (self.failed is not None or key not in self._ran):
            self._ran.add(key)
            return step()
        if found is None:
            try:
                found = self._captured(step)
            except RuntimeError as error:  # out of memory, too
                self._give_up(error)
                return step()
            self._graphs[key] = found
            while len(self._graphs) > self._most:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        graph, output = found
        graph.replay()
        return output

    def clear(self) -> None:
        """Drop all graphs and their memory."""
        if self._graphs:
            torch.cuda.synchronize(self._device)  # one may still run
        self._graphs.clear()
        self._ran.clear()
        self._pool = None

    def _captured(self, step: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        with torch.cuda.device(self._device):
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            # Other threads, as the trainer while the sampler runs ahead, go on using the device.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                output = step()
        self.captures += 1
        return graph, output

    def _give_up(self, error: RuntimeError) -> None:
        self.clear()
        self.failed = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        warnings.warn(
            f"sampling goes on without CUDA graphs, one kernel launch at a time: the capture failed ({self.failed}). "
            "engine.args.cuda_graphs=off avoids the attempt.",
            stacklevel=2,
        )
