"""Control groups around servers; where there are none to be had, that this is said and nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_tasks_code.sandbox.host import cgroups
from grpo_tasks_code.sandbox.host.cgroups import Cgroup, NoCgroupError

ROOT = Path("/sys/fs/cgroup")

IN_A_GROUP = """
import os, sys
from pathlib import Path
import psutil
group = Path(sys.argv[1])
(group / "cgroup.procs").write_text("0")
from grpo_tasks_code.sandbox import Sandbox
from grpo_tasks_code.sandbox.host import cgroups
assert "limit memory" in cgroups.description(), cgroups.description()
with Sandbox(sys.argv[2], workers=1) as sandbox:
    print(sandbox.run("print(1)", timeout_s=60, memory_mib=300).stdout, end="")
    found = {Path(f"/proc/{each.pid}/cgroup").read_text().rpartition("0::")[2].strip()
             for each in psutil.Process().children(recursive=True)}
    print([str(each).startswith(f"/{group.name}/grpo-sandbox-{os.getpid()}-") for each in found])
    made = next(group.glob("grpo-sandbox-*"))
    print((made / "memory.max").read_text().strip(), (made / "pids.max").read_text().strip())
    print(sandbox.run("bytearray(1 << 40)", timeout_s=60).status)
print(len(list(group.glob("grpo-sandbox-*"))))
"""


@pytest.mark.parametrize("level", ["L3", "L2"])
def test_a_server_and_its_programs_have_a_group(level: str) -> None:
    divided = ROOT / "cgroup.subtree_control"
    if os.getuid() != 0 or not divided.exists() or not set(cgroups.CONTROLLERS) <= set(divided.read_text().split()):
        pytest.skip("control groups of version 2 with their controllers, and root")
    group = ROOT / f"grpo-test-{os.getpid()}"
    group.mkdir()
    try:
        command = [sys.executable, "-c", IN_A_GROUP, str(group), level]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        expected = ["1", "[True]", str((300 << 20) + cgroups.SERVER_BYTES), "600", "memory", "0"]
        assert done.stdout.splitlines() == expected, done.stderr
    finally:
        (group / cgroups.LEADER).rmdir()
        group.rmdir()


def test_a_group_that_is_not_ours_alone_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("")
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids")
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    monkeypatch.setattr(cgroups, "_own", lambda: tmp_path)
    with pytest.raises(NoCgroupError, match=r"has other processes too; systemd-run --user --scope"):
        Cgroup()
    assert len(list(tmp_path.iterdir())) == 3


def test_a_group_without_the_controllers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("")
    (tmp_path / "cgroup.controllers").write_text("hugetlb")
    monkeypatch.setattr(cgroups, "_own", lambda: tmp_path)
    assert cgroups.description() == (
        f"no control groups of its own ({tmp_path} has hugetlb, not memory, pids, cpu); the limits of each process hold"
    )


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
