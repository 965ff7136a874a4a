#!/usr/bin/env bash
# What: an offline experiment of Comet has its .zip in the offline directory from the start, but empty: all metrics are
#   in the system's temporary folder until end(), and flush(), which returns True, moves nothing.
# Versions: comet-ml==3.58.8
# Expected: what was flushed is in the directory that the user named for it, so that a run that is preempted keeps
#   what it logged; or there is no archive as long as there is nothing in it.
# Seen: 50 metrics, flush() -> True, then the process is killed: the archive has 22 bytes and no file in it; a
#   messages.json with the 50 metrics is left in a folder of random name in $TMPDIR. With end() it is in the archive.
# Matters: on clusters with preemption, time limits or a node's own /tmp, the uploaded run is empty, and the data
#   are gone with the node.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export HOME=$work
venv comet-ml==3.58.8
run <<'PYTHON'
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

PROGRAM = """
import os, signal, sys
import comet_ml
quiet = dict(log_code=False, log_git_metadata=False, log_git_patch=False, auto_output_logging=False)
config = comet_ml.ExperimentConfig(offline_directory=sys.argv[1], **quiet)
experiment = comet_ml.start(online=False, project_name="p", experiment_config=config)
for step in range(50):
    experiment.log_metric("reward", step / 10, step=step)
print(experiment.flush(), flush=True)
if sys.argv[1] == "ended":
    experiment.end()
os.kill(os.getpid(), signal.SIGKILL)
"""
Path("temporary").mkdir()
kept = {}
for how in ("killed", "ended"):
    environment = {**os.environ, "TMPDIR": os.path.abspath("temporary")}
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.split() == ["True"], f"flush() says {done.stdout!r} now"
    (archive,) = Path(how).glob("*.zip")
    kept[how] = sorted(zipfile.ZipFile(archive).namelist())
    left = [path for path in Path("temporary").rglob("messages.json") if "reward" in path.read_text()]
    print(f"{how}: {archive.stat().st_size} bytes with {kept[how]}, {len(left)} file(s) of metrics in $TMPDIR")
assert "messages.json" in kept["ended"], f"an ended experiment's archive has {kept['ended']} now"
assert kept["killed"] == [] and left, f"a killed experiment's archive has {kept['killed']} now"
PYTHON
