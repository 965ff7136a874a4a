"""Control groups around servers; where there are none to be had, that this is said and nothing else changes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_tasks_code.sandbox.host import cgroups
from grpo_tasks_code.sandbox.host.cgroups import Cgroup, NoCgroupError

ROOT = Path("/sys/fs/cgroup")
PROGRAM = Path(__file__).parent / "programs" / "in_a_group.py"


def test_a_server_and_its_programs_have_a_group(level: str) -> None:
    divided = ROOT / "cgroup.subtree_control"
    if os.getuid() != 0 or not divided.exists() or not set(cgroups.CONTROLLERS) <= set(divided.read_text().split()):
        pytest.skip("control groups of version 2 with their controllers, and root")
    group = ROOT / f"grpo-test-{os.getpid()}"
    group.mkdir()
    try:
        command = [sys.executable, PROGRAM, group, level]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        expected = ["1", "[True]", str((300 << 20) + cgroups.SERVER_BYTES), "600", "memory", "0"]
        assert done.stdout.splitlines() == expected, done.stderr
    finally:
        (group / cgroups.LEADER).rmdir()
        group.rmdir()


@pytest.mark.parametrize(("controllers", "processes", "reason"), [
    ("cpu io memory pids", "{pid}\n1\n", "has other processes too; systemd-run --user --scope"),
    ("hugetlb", "", "has hugetlb, not memory, pids, cpu"),
])  # fmt: skip
def test_a_group_that_cannot_be_divided_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, controllers: str, processes: str, reason: str
) -> None:
    for name, text in (("subtree_control", ""), ("controllers", controllers), ("procs", processes)):
        (tmp_path / f"cgroup.{name}").write_text(text.format(pid=os.getpid()))
    monkeypatch.setattr(cgroups, "_own", lambda: tmp_path)
    with pytest.raises(NoCgroupError, match=reason):
        Cgroup()
    assert len(list(tmp_path.iterdir())) == 3
    assert "no control groups of its own" in cgroups.description()


def test_groups_that_killed_processes_left_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids")
    monkeypatch.setattr(cgroups, "_own", lambda: tmp_path / cgroups.LEADER)
    dead, alive = tmp_path / "grpo-sandbox-99999999-0", tmp_path / f"grpo-sandbox-{os.getpid()}-900"
    dead.mkdir()
    alive.mkdir()
    made = Cgroup()
    assert not dead.exists() and alive.exists()
    assert made.path.parent == tmp_path
    made.close()
    assert not made.path.exists()
