"""Enters a control group, and prints what a sandbox makes of it and leaves there."""

import os
import sys
from pathlib import Path

import psutil

group = Path(sys.argv[1])
(group / "cgroup.procs").write_text("0")

from grpo_tasks_code.sandbox import Sandbox  # noqa: E402  # in the group
from grpo_tasks_code.sandbox.host import cgroups  # noqa: E402

assert "limit memory" in cgroups.description(), cgroups.description()
with Sandbox(sys.argv[2], workers=1) as sandbox:
    print(sandbox.run("print(1)", timeout_s=60, memory_mib=300).stdout, end="")
    processes = psutil.Process().children(recursive=True)
    found = {Path(f"/proc/{each.pid}/cgroup").read_text().rpartition("0::")[2].strip() for each in processes}
    print([each.startswith(f"/{group.name}/grpo-sandbox-{os.getpid()}-") for each in found])
    made = next(group.glob("grpo-sandbox-*"))
    print((made / "memory.max").read_text().strip(), (made / "pids.max").read_text().strip())
    print(sandbox.run("bytearray(1 << 40)", timeout_s=60).status)
print(len(list(group.glob("grpo-sandbox-*"))))
