"""`on_a_small_disk.py FOLDER DISK`: a run in DISK, which is full after two steps, is resumed and compared."""

import sys
from pathlib import Path

from resumed_runs import assert_same, config

from grpo_core.callbacks import Callback
from grpo_core.training.resume import resume
from grpo_core.training.trainer import train

folder, disk = Path(sys.argv[1]), Path(sys.argv[2])


class Filler(Callback):
    def on_step(self, record):
        if record.step == 2:
            try:
                with open(disk / "filler", "wb", buffering=0) as file:
                    while True:
                        file.write(bytes(4096))
            except OSError as error:
                print(f"filled: {error.strerror}")


try:
    train(config(folder, disk, "plain", max_steps=12), [Filler()])
except OSError as error:
    print(f"ended: {error.strerror}")
(disk / "filler").unlink()
[run] = disk.glob("run_*")
print([path.name for path in sorted((run / "training_state").glob("step_*"))])
resume(run)
assert_same(train(config(folder, folder, "plain", max_steps=12)).run_dir, run)
print("the same")
