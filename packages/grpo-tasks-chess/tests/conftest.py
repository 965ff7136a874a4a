import stat
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

MakeEngine = Callable[..., str]


@pytest.fixture
def make_engine(tmp_path: Path) -> MakeEngine:
    """`make_engine("dies")` -> the path of a program that speaks UCI and behaves so; see fake_engine.py."""

    def make(mode: str = "plays") -> str:
        folder = tmp_path / f"engine-{mode}"
        folder.mkdir(exist_ok=True)
        program = folder / "engine"
        script = Path(__file__).with_name("fake_engine.py")
        program.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{script}' '{mode}' '{folder}'\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return str(program)

    return make


@pytest.fixture
def pids(tmp_path: Path) -> Callable[[], list[int]]:
    """Processes of fake engines that are alive."""

    def alive(pid: int) -> bool:
        try:  # one whose parent is gone may stay a zombie where init does not reap
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return lambda: [
        pid for path in tmp_path.glob("engine-*/pid-*") if alive(pid := int(path.name.removeprefix("pid-")))
    ]
