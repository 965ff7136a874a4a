"""Runs the corpus on a copy of the sandbox without its system-call filter, its rules for files and its self-attack."""

import runpy
import shutil
import sys
from pathlib import Path

import grpo_tasks_code
from grpo_tasks_code.sandbox.host import levels, process

copy = Path(sys.argv[1], "grpo_tasks_code")
shutil.copytree(Path(grpo_tasks_code.__file__).parent, copy)
confinement = copy / "sandbox" / "inside" / "confinement.py"
text = confinement.read_text()
for call in ("self.ruleset.enforce()", "self.filter.install(os.getpid())"):
    assert text.count(call) == 1
    text = text.replace(call, "pass")
confinement.write_text(text)
process._PACKAGE = copy
levels.withstands = lambda server: None
sys.argv[:] = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
