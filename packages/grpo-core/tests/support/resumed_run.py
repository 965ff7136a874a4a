"""What a trainer tells of a run that is resumed; also a program, in environments of trackers of their own.

    resumed_run.py TRACKER FOLDER PHASE…

A phase is `FIRST-LAST` with options: `branch` for a resume by --from-step, `kill` for SIGKILL after the last step.
"""

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from heard import Heard

from grpo_core.config import RunConfig, TrackingConfig
from grpo_core.tracking.events import EventLog
from grpo_core.tracking.observe import observe
from grpo_core.training.run_folder import RunFolder
from grpo_sdk.callbacks import RunInfo, StepRecord

options: dict[str, Any] = {}
"""Options of the phase that runs, for a tracker of a test."""


def run(tracker: str, folder: Path, phase: str) -> list[str]:
    """Run some steps with an evaluation after every second; returns the warnings."""
    steps, *words = phase.split()
    first, last = map(int, steps.split("-"))
    options.clear()
    options.update((name, int(value or 1)) for name, _, value in (word.partition("=") for word in words))
    (folder / "logs").mkdir(exist_ok=True)
    if done := first - 1:
        EventLog.write_resume(folder, done, 100)
    said = Heard()
    config = RunConfig(tracking=TrackingConfig(trackers=(tracker,), project="p", wandb_mode="offline"))
    with ExitStack() as resources:
        logs = RunFolder.reopen(folder, done)
        callbacks, _ = observe(config, [said], resources, branches="branch" in options)
        callbacks.on_run_start(RunInfo(folder, {}, (), 100, step=done))
        for step in range(done, last + 1):
            if step > done:
                callbacks.on_step_end(step)
                logs.log_step(step, {"reward": step / 8})
                callbacks.on_step(StepRecord(step, {"reward": step / 8}))
            if step % 2 == 0 and (step > done or not done):
                callbacks.on_evaluation("math.a", "interval", {"n": step})
        if "kill" in options:
            os.kill(os.getpid(), signal.SIGKILL)
        logs.close()
    return said.warnings


if __name__ == "__main__":
    print(*run(sys.argv[1], Path(sys.argv[2]), " ".join(sys.argv[3:])), sep="\n")
