"""Logs a run with a tracker (wandb or trackio) in a folder, in a mode: these libraries start threads and servers."""

import sys
from pathlib import Path

from grpo_core.tracking.base import TrackedRun
from grpo_sdk.plugins import variants

name, folder, mode = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
(folder / "logs").mkdir()
tracker = variants.resolve("tracker", name)(TrackedRun(folder, "p", "n", {"trainer.beta": 0.125}, mode, False))
tracker.numbers(1, {"reward": 0.5, "pg_loss": 0.25})
tracker.numbers(1, {"reward": 0.75})
tracker.table(1, "completions", ("completion", "score"), [["a | b", 0.5], ["c", None]])
tracker.note(1, "beware")
tracker.close(failed=False)
print("only this")
if name == "trackio":
    from trackio.sqlite_storage import SQLiteStorage

    print(*[{key: row[key] for key in row if key != "timestamp"} for row in SQLiteStorage.get_logs("p", "n")], sep="\n")
