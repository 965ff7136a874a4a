"""What can be seen without importing anything of size: interpreter, processor, memory, disk, packages."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import psutil

from grpo_core.killable.pool import usable_cores
from grpo_core.plugins.facts import Diagnosis, Status

DISTRIBUTION = "grpo-core"

GIB = 2**30

LITTLE_MEMORY = 2 * GIB
"""Below this, torch with its libraries leaves nothing for a model."""

LITTLE_DISK = 6 * GIB
"""A checkpoint of half a billion parameters with its optimizer: 4 bytes each for weight and two moments."""

NO_DISK = GIB // 8
"""Below this not even the embedded model's checkpoints fit, of 20 MiB each."""

CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")
"""A container's limit, where there is one (cgroup v2)."""

_OF_EXTRA = re.compile(r"(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)[^;]*;.*\bextra\s*==\s*['\"](?P<extra>[^'\"]+)['\"]")


def python() -> Diagnosis:
    """The interpreter and our own version."""
    own = metadata.version(DISTRIBUTION)
    return Diagnosis(
        "python", "ok", f"{platform.python_version()} ({platform.python_implementation()}), grpo-core {own}"
    )


def system() -> Diagnosis:
    """The operating system."""
    return Diagnosis("system", "ok", f"{platform.system()} {platform.release()}, {platform.machine()}")


def processor() -> Diagnosis:
    """Cores of this process."""
    usable, there = usable_cores(), os.cpu_count() or 1
    fewer = "" if usable == there else f": the process may use no more of the machine's {there}"
    return Diagnosis("cores", "ok", f"{usable}{fewer}; as many scoring workers, up to 16")


def memory() -> Diagnosis:
    """Memory of the machine, or of the container."""
    found = psutil.virtual_memory()
    limit = _container_limit()
    total = min(found.total, limit or found.total)
    available = min(found.available, total)
    status: Status = "warn" if available < LITTLE_MEMORY else "ok"
    advice = "; little for a model: end other programs" if status == "warn" else ""
    inside = " (the container's limit)" if limit and limit < found.total else ""
    return Diagnosis("memory", status, f"{size(available)} of {size(total)}{inside} available{advice}")


def disk(folder: Path) -> Diagnosis:
    """Room for runs.

    Args:
        folder: That receives them; need not exist.
    """
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        return Diagnosis("disk", "fail", f"{folder}: {there} cannot be written; give another --output-dir")
    free = shutil.disk_usage(there).free
    text = f"{size(free)} free for runs in {folder}"
    if free < NO_DISK:
        return Diagnosis("disk", "fail", f"{text}: no checkpoint fits; make room or give another --output-dir")
    if free < LITTLE_DISK:
        return Diagnosis("disk", "warn", f"{text}: few checkpoints fit; set trainer.keep_last")
    return Diagnosis("disk", "ok", text)


def extras() -> Iterator[Diagnosis]:
    """What can be installed beside grpo-core, and whether it is."""
    for extra, packages in sorted(packages_of_extras().items()):
        there = {package: _version(package) for package in packages}
        missing = [package for package, version in there.items() if version is None]
        if missing:
            text = f"not installed: pip install '{DISTRIBUTION}[{extra}]'"
        else:
            text = ", ".join(f"{package} {version}" for package, version in there.items())
        yield Diagnosis(f"extra {extra}", "ok", text)


def packages_of_extras(distribution: str = DISTRIBUTION) -> dict[str, list[str]]:
    """The packages that each extra brings, as the installed distribution says."""
    found: dict[str, list[str]] = {}
    for requirement in metadata.requires(distribution) or ():
        if match := _OF_EXTRA.match(requirement):
            found.setdefault(match["extra"], []).append(match["package"])
    return found


def size(count: float) -> str:
    """Bytes as a person reads them: `15.5 GiB`."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.0f} MiB"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _container_limit() -> int | None:
    try:
        text = CGROUP_MEMORY.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() and len(text) < 20 else None
