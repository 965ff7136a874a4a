"""The wheels of this workspace and its example plugins, built as for a release."""

import importlib.metadata
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

TREES = (
    "packages/grpo-core",
    "packages/grpo-sdk",
    "packages/grpo-tasks-chess",
    "packages/grpo-tasks-code",
    "packages/grpo-tasks-games",
    "packages/grpo-tasks-gym",
    "packages/grpo-tasks-math",
    "examples/rhyme",
    "tests/plugins/good",
)

OF_THE_CHECKOUT = ("PYTHONPATH", "VIRTUAL_ENV", "UV_RUN_RECURSION_DEPTH")
"""Variables of the environment that runs the tests; by the last one programs see that `uv run` has started them."""


def call(*command: str, cwd: Path, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program that does not see the checkout's own environment: what works here works without it."""
    clean = {key: value for key, value in os.environ.items() if key not in OF_THE_CHECKOUT}
    clean |= {"HF_HUB_OFFLINE": "1", "COLUMNS": "200", **environment}
    done = subprocess.run(command, cwd=cwd, env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0 or not check, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done


def links(folder: Path) -> list[str]:
    """Options of uv for what lies in a folder, and where UV_FIND_LINKS says: the option replaces the variable."""
    folders = [str(folder), *os.environ.get("UV_FIND_LINKS", "").split()]
    return [part for each in folders for part in ("--find-links", each)]


def new_environment(folder: Path, wheels: Path, *requirements: str, python: str = "3.11") -> Path:
    """Make `venv` in a folder, with requirements that our wheels serve, too, and options of uv; returns its Python."""
    made = folder / "venv" / "bin" / "python"
    call("uv", "venv", "--python", python, str(folder / "venv"), cwd=folder)
    call("uv", "pip", "install", "--python", str(made), *links(wheels), *requirements, cwd=folder)
    return made


def with_torch_of_here(folder: Path) -> tuple[str, str]:
    """Options of uv for the torch of this environment: elsewhere, it is a build for CUDA of gigabytes."""
    (file := folder / "torch.txt").write_text(f"torch=={importlib.metadata.version('torch').partition('+')[0]}")
    return "--constraint", str(file)


def build_wheels(folder: Path) -> Path:
    """Build them into a folder, with the pinned versions in constraints.txt beside them."""
    for tree in TREES:
        # A copy, so that a build sees nothing but the tree and leaves nothing in it.
        copy = folder / "trees" / tree
        shutil.copytree(ROOT / tree, copy, ignore=shutil.ignore_patterns("__pycache__", "dist", "tests"))
        call("uv", "build", "--wheel", "--out-dir", str(folder), str(copy), cwd=folder)
    constraints = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["constraint-dependencies"]
    (folder / "constraints.txt").write_text("\n".join(constraints))
    return folder
