#!/usr/bin/env bash
# What: swanlab.finish() in another thread than the main one raises "signal only works in main thread" if the run was
#   begun in the main thread, although log() works in all of them and a run begun in a thread can be finished there.
# Versions: swanlab==0.10.3
# Expected: finish() can be called where log() can; trackers are closed from callbacks, timers and servers' threads.
# Seen: ValueError: signal only works in main thread of the main interpreter; a run begun and finished in one thread
#   ends without an error.
# Matters: a trainer that closes its trackers under a time limit (in a thread, so that a hanging service can't hold the
#   run up), or from Ray's or an agent server's threads, fails in its last step.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export HOME=$work
venv swanlab==0.10.3
run <<'PYTHON'
import threading

import swanlab


def begin():
    swanlab.init(project="p", mode="offline", logdir="logs")
    swanlab.log({"reward": 1.0})


def finish(said):
    try:
        swanlab.log({"reward": 2.0})
        swanlab.finish()
        said.append("ends")
    except Exception as error:
        said.append(f"{type(error).__name__}: {error}")


def in_a_thread(*functions):
    said = []
    thread = threading.Thread(target=lambda: [function(said) for function in functions])
    thread.start()
    thread.join()
    return said


whole = in_a_thread(lambda said: begin(), finish)
begin()
last = in_a_thread(finish)
print("begun and finished in a thread:", whole)
print("begun in the main thread, finished in another:", last)
assert whole == ["ends"], f"a run of one thread says {whole} now"
assert last[0].startswith("ValueError: signal only works in main thread"), f"finish() in a thread says {last} now"
PYTHON
