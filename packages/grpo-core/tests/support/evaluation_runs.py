"""A run's folder whose checkpoints are empty, and a process that evaluates them without a model, for tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

from grpo_core.checkpoints import CheckpointStore
from grpo_core.config import EvalConfig, RunConfig, TrainerConfig, to_yaml

TASKS = """
from grpo_core import EvaluationDefaults, Invalid, Row, Task, reward

class Letter(Row):
    letter: str

def load(config) -> list[Letter]:
    first = {"train": 97, "validation": 105, "test": 113}[config.split]
    rows = [chr(first + index) for index in range(8)]
    return [Letter(id=letter, letter=letter, gold=letter, difficulty=1.0 + (index > 3)) for index, letter in
            enumerate(rows)]

def prompt(row):
    return row.letter * 2

def validate(text, row):
    if not text:
        raise Invalid("nothing")
    return text

@reward(1.0)
def right(answer, row):
    return float(answer[:1] == row.letter)

@reward(1.0)
def graded(answer):
    return ord(answer[0]) % 7 / 6

letters = Task("letters", load, prompt, validate, (right,), max_completion_length=4, default_model="tiny")
again = Task("again", load, prompt, validate, (right,), max_completion_length=4, default_model="tiny")
wishful = Task("wishful", load, prompt, validate, (right,), max_completion_length=4, default_model="tiny",
               evaluation=lambda config: EvaluationDefaults(size=3, split="validation", num_completions=2,
                                                            temperature=0.5))
several = Task("several", load, prompt, validate, (graded,), max_completion_length=4, default_model="tiny")
"""

FAKE_WORKER = r"""
import csv, json, os, sys, time
job = json.loads(sys.stdin.readline())
step = job["step"]
open(os.environ["FAKE_LOG"], "a").write(json.dumps(job) + "\n")
behaviour = json.loads(os.environ.get("FAKE_BEHAVIOUR", "{}")).get(step, "")
print("a plugin prints this")
print(json.dumps({"progress": ["evaluating letters", 1, 2]}), flush=True)
if behaviour == "hang":
    time.sleep(600)
if behaviour == "raise":
    raise MemoryError("the last word")
if behaviour == "refuse":
    print(json.dumps({"error": "the weights are damaged"}), flush=True)
    sys.exit(2)
if behaviour == "vanish":
    os.kill(os.getpid(), 9)
share = json.loads(os.environ.get("FAKE_SHARES", "{}")).get(step, 0.5)
for label, folder in job["folders"].items():
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/metrics.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "solved_rate", "reward"])
        for letter in "qrstuvwx":
            writer.writerow([letter, share, share])
    settings = job["settings"][label]
    deciding = {name: value for name, value in settings.items() if name not in ("batch_size", "surprisal")}
    summary = {"solved_rate": share, "ci_low": 0.0, "ci_high": 1.0, "n": 8, "completions_per_row": settings["n"]}
    meta = dict(run=job["run"], step=step, model=job["model"], adapter=job["adapter"], task=job["tasks"][label][0],
                identity=json.loads(os.environ["FAKE_IDENTITIES"])[label], settings=deciding, summary=summary,
                steps_done=job["steps_done"], precision=job["options"]["precision"],
                timing=dict(seconds=1.0, samples_per_s=64.0, tokens_per_s=128.0, peak_memory_mib=1.0), version=1)
    with open(folder + "/run_meta.json", "w") as file:
        json.dump(meta, file)
print(json.dumps({"done": True}), flush=True)
"""


def make_run(folder: Path, steps: tuple[int, ...] = (2, 10), *, final: bool = True, adapter: bool = False) -> Path:
    """A run with complete, empty checkpoints, which trained `./tasks.py:letters` in the working directory."""
    run = folder / "training_runs" / "run_2026-11-21_12-30-52"
    run.mkdir(parents=True)
    config = RunConfig(
        task=f"{folder}/tasks.py:letters",
        model="tiny",
        seed=5,
        output_dir=str(folder / "training_runs"),
        trainer=TrainerConfig(max_completion_length=8),
        eval=EvalConfig(size=8),
    )
    (folder / "tasks.py").write_text(TASKS)
    (run / "config.yaml").write_text(to_yaml(config))
    for step in (*steps, *(("final",) if final else ())):
        write_checkpoint(run, step, adapter=adapter)
    return run


def write_checkpoint(run: Path, which: int | Literal["final"], *, adapter: bool = False, **info: Any) -> None:
    """Write an empty checkpoint in place of one that is there; `info` is its training_info.json."""
    with CheckpointStore(run).writing(which) as checkpoint:
        (checkpoint / "model").mkdir()
        name = "adapter_config.json" if adapter else "config.json"
        (checkpoint / "model" / name).write_text("{}")
        if info:
            (checkpoint / "training_info.json").write_text(json.dumps(info))


def fake_worker(folder: Path) -> tuple[str, ...]:
    """The command of a process that takes a job and writes results without a model."""
    script = folder / "fake_worker.py"
    script.write_text(FAKE_WORKER)
    return (sys.executable, "-I", "-S", str(script))
