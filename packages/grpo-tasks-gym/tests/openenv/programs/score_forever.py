"""Scores completions by a server that never answers."""

import signal
import sys

from grpo_sdk import Scorer, load_task

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    task = load_task(sys.argv[1])
    with Scorer(task, workers=1) as scorer:
        scorer.score(["a"] * 4, [task.rows()[0]] * 4)
