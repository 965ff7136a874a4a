"""Trainers that are processes 2 to 5 of a container: a program's own number in its namespace is then the trainer's."""

import os
import sys
from pathlib import Path

from grpo_tasks_code.sandbox import Sandbox

sys.path.insert(0, str(Path(__file__).parents[2] / "sandbox_corpus"))

from run import isolate  # of that folder

if not isolate():
    sys.exit("skip: no private namespaces")
for pid in range(2, 6):
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
    trainer = os.fork()
    if trainer == 0:
        with Sandbox("L3") as sandbox:
            print(os.getpid(), sandbox.level.name, sandbox.run("print(1)").stdout, end="", flush=True)
        os._exit(0)
    os.waitpid(trainer, 0)
