"""What another machine has to install to run as this one does."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.metadata import Distribution, distribution, entry_points
from pathlib import Path
from urllib.parse import unquote, urlsplit

from grpo_core.errors import UserError


def installed() -> list[Distribution]:
    """Return grpo-core and the installed packages with plugins, by name."""
    names = {"grpo-core"} | {entry.dist.name for entry in entry_points(group="grpo") if entry.dist is not None}
    return [distribution(name) for name in sorted(names)]


def named() -> list[str]:
    """Return these packages as another machine finds them: in the working folder, or as an index has them."""
    here = Path.cwd().resolve()
    wanted = []
    for package in installed():
        source = source_folder(package)
        is_here = source is not None and source.is_relative_to(here)
        wanted.append(f"./{source.relative_to(here)}" if source and is_here else f"{package.name}=={package.version}")
    return wanted


def source_folder(package: Distribution) -> Path | None:
    """Return the folder that a package was installed from; None where it is from an index."""
    text = package.read_text("direct_url.json")
    url = urlsplit(json.loads(text)["url"]) if text else None
    return Path(unquote(url.path)) if url is not None and url.scheme == "file" else None


def requirements(wheels: Path, folder: str) -> list[str]:
    """Return what to install, building a wheel of each package that is here from source.

    Args:
        wheels: Folder that receives the wheels.
        folder: Path by which the other machine finds that folder.

    Raises:
        UserError: a wheel has to be built and uv is missing, or the build fails.
    """
    wanted = []
    for package in installed():
        source = source_folder(package)
        if source is None:
            wanted.append(f"{package.name}=={package.version}")
        elif source.is_dir():
            _build(source, wheels)
        else:  # a wheel
            shutil.copy(source, wheels)
    return [*(f"{folder}/{wheel.name}" for wheel in sorted(wheels.glob("*.whl"))), *wanted]


def _build(source: Path, wheels: Path) -> None:
    if shutil.which("uv") is None:
        raise UserError(f"no uv here: it builds a wheel of {source}, which is installed from source.")
    command = ["uv", "build", "--quiet", "--wheel", "--out-dir", str(wheels), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"uv cannot build a wheel of {source}: {done.stderr.strip()[-500:]}")
