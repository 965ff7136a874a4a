"""Trainers that are processes 2 to 5 of a container: a program's own number in its namespace is then the trainer's."""

import os
import platform
import sys
from pathlib import Path

from grpo_tasks_code.sandbox import Sandbox
from grpo_tasks_code.sandbox.inside import kernel
from grpo_tasks_code.sandbox.inside.syscalls import required

uid, gid = os.getuid(), os.getgid()
flags = kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | (kernel.CLONE_NEWUSER if uid else 0)
try:
    kernel.syscall(required("unshare", platform.machine()), flags, what="unshare")
except OSError as error:
    sys.exit(f"skip: {error}")
if uid:
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
first = os.fork()
if first:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))
kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
kernel.mount("proc", "/proc", "proc", 0)
for pid in range(2, 6):
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
    trainer = os.fork()
    if trainer == 0:
        with Sandbox("L3") as sandbox:
            print(os.getpid(), sandbox.level.name, sandbox.run("print(1)").stdout, end="", flush=True)
        os._exit(0)
    os.waitpid(trainer, 0)
