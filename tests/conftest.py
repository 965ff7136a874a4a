"""What the tests across packages share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Install = Callable[..., None]


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the checkout."""
    return Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder that a module's tests install packages into."""
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="module")
def install(site: Path, root: Path) -> Install:
    """Install source trees into `site` as an installer would: modules, and metadata from their pyproject.toml."""

    def put(*trees: str) -> None:
        for tree in trees:
            source = root / tree
            project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
            code = source / "src" if (source / "src").is_dir() else source
            shutil.copytree(
                code, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "pyproject.toml")
            )
            info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
            info.mkdir()
            head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
            (info / "METADATA").write_text(head)
            points = [f"{name} = {target}\n" for name, target in project["entry-points"]["grpo"].items()]
            (info / "entry_points.txt").write_text("[grpo]\n" + "".join(points))

    return put


@pytest.fixture(scope="module")
def run(site: Path) -> Run:
    """Run a command where what is in `site` is installed, beside the environment's own packages."""

    def call(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1", "NO_COLOR": "1", **environment}
        program = [sys.executable] if command[0] == "-c" else [str(Path(sys.executable).with_name(command[0]))]
        arguments = command if command[0] == "-c" else command[1:]
        return subprocess.run(
            [*program, *arguments], env=environment, cwd=site, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    return call
