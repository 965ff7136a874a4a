"""The accelerator of this machine, as far as settings depend on it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from grpo_sdk.errors import UserError
from grpo_sdk.plugins.gpu_profile import Backend

GIB = 2**30

METAL_SHARE = 0.7
"""Share of unified memory that Metal lets one process work with; Apple's recommendedMaxWorkingSetSize is 2/3 to 3/4."""

DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Devices of NVIDIA's driver, of WSL's and of AMD's: without any of them torch finds no accelerator on Linux."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What a model runs on.

    Attributes:
        backend: Torch's backend; `cpu` where there is no accelerator.
        name: As the driver reports it, such as `NVIDIA A100-SXM4-80GB`.
        memory: Memory in bytes; a MIG slice's own.
        capability: CUDA compute capability, such as `8.0`, or ROCm's architecture, such as `gfx942`; else empty.
    """

    backend: Backend
    name: str
    memory: int
    capability: str = ""

    @property
    def memory_gib(self) -> float:
        """Memory in GiB."""
        return self.memory / GIB

    def __str__(self) -> str:
        what = "architecture" if self.backend == "rocm" else "compute capability"
        capability = f", {what} {self.capability}" if self.capability else ""
        return f"{self.name}, {self.memory_gib:.1f} GiB{capability}"


def detect(device: str = "auto") -> Accelerator:
    """The accelerator that a run with this `device` uses.

    Torch is imported only where a driver is present: elsewhere it can find nothing but the CPU.

    Args:
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`; one that is not present gives the CPU, and is refused when the
            model is loaded.
    """
    import psutil

    if device != "cpu" and _may_have_accelerator():
        import torch

        if device != "mps" and torch.cuda.is_available():
            index = _index(device)
            if index < torch.cuda.device_count():
                properties = torch.cuda.get_device_properties(index)
                backend: Backend = "cuda"
                capability = f"{properties.major}.{properties.minor}"
                if torch.version.hip is not None:  # whose major and minor number other things
                    backend, capability = "rocm", properties.gcnArchName.partition(":")[0]  # gfx942:sramecc+:xnack-
                return Accelerator(backend, properties.name, int(properties.total_memory), capability)
        if not device.startswith("cuda") and torch.backends.mps.is_available():
            memory = int(METAL_SHARE * psutil.virtual_memory().total)
            return Accelerator("mps", f"Apple {platform.processor() or 'GPU'}", memory)
    return Accelerator("cpu", "CPU", psutil.virtual_memory().total)


def check_device(device: str) -> None:
    """Refuse an accelerator where there is no driver, which is known without torch.

    Raises:
        UserError: names what the machine has.
    """
    if device.startswith(("cuda", "mps")) and not _may_have_accelerator():
        raise UserError(f"device={device}: this machine has no driver of an accelerator; it has cpu. Use device=auto.")


_planned: ContextVar[tuple[int, int] | None] = ContextVar("_planned", default=None)
"""Processes of a run that is planned here, and those of each of its machines."""


@contextmanager
def planned_processes(size: int, node_size: int) -> Iterator[None]:
    """Count processes within the block as each of a run will, which is not started yet.

    Args:
        size: Processes of the run.
        node_size: Processes of each machine.
    """
    token = _planned.set((size, node_size))
    try:
        yield
    finally:
        _planned.reset(token)


def process_count() -> int:
    """Processes of this run, as torchrun's variable `WORLD_SIZE` says; 1 without it.

    Raises:
        UserError: it is no such number.
    """
    planned = _planned.get()
    return planned[0] if planned else _count("WORLD_SIZE", 1)


def node_process_count() -> int:
    """Processes of this run on this machine, as torchrun's variable `LOCAL_WORLD_SIZE` says; without it, all.

    Raises:
        UserError: it is no such number.
    """
    planned = _planned.get()
    return planned[1] if planned else _count("LOCAL_WORLD_SIZE", process_count())


def process_options() -> list[str]:
    """Options of `grpo` that start as many processes as this run has, for a command that is printed.

    Of a run on several machines it is the part that is the same on each; `grpo` asks for the rest.
    """
    size, node_size = process_count(), node_process_count()
    if size == 1:
        return []
    machines = [] if size == node_size else ["--nnodes", str(-(-size // node_size))]
    return [*machines, "--nproc", str(node_size)]


def _count(variable: str, default: int) -> int:
    text = os.environ.get(variable, str(default))
    if not (text.isascii() and text.isdigit() and int(text[:9]) >= 1):
        raise UserError(
            f"{variable}={text[:40]!r} is no number of processes: unset it, or start several with --nproc or torchrun."
        )
    return int(text)


def _index(device: str) -> int:
    """Index of the CUDA device; each of several processes on a machine has its own, as `policy.ranks` assigns them."""
    rank = os.environ.get("LOCAL_RANK", os.environ.get("RANK", ""))
    if process_count() > 1 and rank.isdigit():
        return int(rank)
    return int(device.partition(":")[2] or 0)


def _may_have_accelerator() -> bool:
    match platform.system():
        case "Linux":
            return any(Path(driver).exists() for driver in DRIVERS)
        case "Darwin":
            return platform.machine() == "arm64"
        case _:
            return True
