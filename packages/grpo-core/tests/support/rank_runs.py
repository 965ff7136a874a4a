"""What several ranks do, one job after another: `python -m torch.distributed.run … rank_runs.py FOLDER JOBS`.

Importing torch takes longer than most jobs. FOLDER has `model` and `tasks.py`; JOBS is a JSON list of

    {"out": FOLDER, "variant": NAME, "settings": {…}}    train; stopped after "stop_at_update", failing after "fail_at",
                                                         "gpus" in place of each rank's own: [GiB, capability],
                                                         "engine" with settings of its own
    {"resume": FOLDER}                                   go on with the run in it
    {"updates": FILE, "layout": {…}, "cases": […]}       the cases of `sharded_updates`, in shards of that layout
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from resumed_runs import config

from grpo_core.config import EngineConfig, RunConfig


@contextmanager
def after_updates(n: int | None, act: Callable[[], None]) -> Iterator[None]:
    """Do something when an updater of the block has taken n optimizer steps."""
    from grpo_core.training.update import Updater

    step = Updater._step

    def stepping(updater: Updater, part: Any) -> dict[str, float]:
        metrics = step(updater, part)
        if updater.optimizer.updates == n:
            act()
        return metrics

    Updater._step = stepping  # type: ignore[method-assign]
    try:
        yield
    finally:
        Updater._step = step  # type: ignore[method-assign]


@contextmanager
def with_gpus(gpus: list[tuple[float, str]]) -> Iterator[None]:
    """Each rank resolves its configuration as on its own GPU of these; without any, as it is."""
    from grpo_core.profiles import accelerator as accelerators

    detect = accelerators.detect
    if gpus:
        memory, capability = gpus[int(os.environ["RANK"])]
        gpu = accelerators.Accelerator("cuda", "a GPU", int(memory * accelerators.GIB), capability)
        accelerators.detect = lambda device="auto": gpu
    try:
        yield
    finally:
        accelerators.detect = detect


def fail() -> None:
    if os.environ["RANK"] == "1":
        raise RuntimeError("this rank's accelerator fell off")


def run(folder: Path, job: dict[str, Any]) -> None:
    from grpo_core import train
    from grpo_core.training.resume import resume

    if "resume" in job:
        (found,) = Path(job["resume"]).glob("run_*")
        resume(found)
    elif "updates" in job:
        import sharded_updates

        layout = sharded_updates.ShardLayout(**job.get("layout", {}))
        sharded_updates.main(job["updates"], layout, job.get("cases", list(sharded_updates.CASES)))
    else:
        made = config(folder, Path(job["out"]), job["variant"], **job.get("settings", {}))
        engine = EngineConfig(gather_weights=job.get("gather_weights", False), **job.get("engine", {}))
        made = made.model_copy(update={"engine": engine})
        if "gpus" in job:  # which recommend a precision where none is set
            made = RunConfig(**{name: getattr(made, name) for name in made.model_fields_set - {"precision"}})
        stop = after_updates(job.get("stop_at_update"), lambda: signal.raise_signal(signal.SIGTERM))
        with with_gpus(job.get("gpus", [])), stop, after_updates(job.get("fail_at"), fail):
            train(made)


def main(folder: str, jobs: str) -> None:
    for job in json.loads(jobs):
        run(Path(folder), job)


if __name__ == "__main__":
    main(*sys.argv[1:])
