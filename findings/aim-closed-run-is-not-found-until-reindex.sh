#!/usr/bin/env bash
# What: the metrics of an Aim run that was closed properly can't be read from its repository, neither by a query nor by
#   the run's own hash, until somebody runs `aim storage reindex` (or has the UI open, which indexes beside it).
# Versions: aim==3.29.1
# Expected: Run.close() makes the run complete, and what was tracked can be read at once, as it can from
#   TensorBoard's or MLflow's folders. The run itself is listed, after all.
# Seen: after close() and the end of its process, list_all_runs() has the hash, iter_runs() is empty, query_metrics()
#   finds nothing and Run(hash, read_only=True).metrics() is empty; after the reindex all have it. No warning.
# Matters: scripts that compare runs or choose a checkpoint by a metric see no runs, or only older ones, and go on.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export HOME=$work
venv aim==3.29.1
run <<'PYTHON'
import os
import subprocess
import sys

import aim

WRITE = """
import aim
run = aim.Run(repo="repo", system_tracking_interval=None, capture_terminal_logs=False, log_system_params=False)
for step in range(5):
    run.track(step / 10, name="reward", step=step)
run.close()
"""
READ = """
import aim
repo = aim.Repo("repo")
hashes = repo.list_all_runs()
listed = len(list(repo.iter_runs()))
found = sum(len(list(run)) for run in repo.query_metrics("metric.name == 'reward'").iter_runs())
own = sum(len(list(aim.Run(run, repo="repo", read_only=True).metrics())) for run in hashes)
print(len(hashes), listed, found, own)
"""


def python(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


os.mkdir("repo")
aim.Repo.from_path("repo", init=True)
python(WRITE)
before = python(READ)
command = [os.path.join(os.path.dirname(sys.executable), "aim"), "storage", "--repo", "repo", "reindex", "-y"]
subprocess.run(command, capture_output=True, check=True)
after = python(READ)
print("hashes, runs, metrics by query, metrics by hash:", before, "and once reindexed:", after)
assert after == "1 1 1 1", f"once reindexed they are {after} now"
assert before == "1 0 0 0", f"after close() they are {before} now"
PYTHON
