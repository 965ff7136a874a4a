"""Stands in for `grpo run` and `grpo resume` in tests of sweeps: writes a run's files in milliseconds, without torch.

`trainer.learning_rate` decides the result, `trainer.beta` above 0 fails, `trainer.entropy_coef` above 0 is once
interrupted from outside, `trainer.max_steps` steps take `trainer.epsilon` seconds each; SIGTERM saves a checkpoint.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import orjson

from grpo_core.checkpoints import CheckpointStore
from grpo_core.checkpoints.checksums import seal
from grpo_core.tracking import presence

is_stopped = False


def stop(*_: Any) -> None:
    global is_stopped
    is_stopped = True


def main(words: list[str]) -> int:
    signal.signal(signal.SIGTERM, stop)
    if words[0] == "resume":
        path = Path(words[1])
        settings = dict(line.split(": ", 1) for line in (path / "settings").read_text().splitlines())
        first = CheckpointStore(path).steps()[-1] + 1
    else:
        settings = dict(word.split("=", 1) for word in words if "=" in word)
        path, first = Path(words[words.index("--output-dir") + 1]) / f"run_2026-01-01_00-00-00_{os.getpid()}", 1
        (path / "logs").mkdir(parents=True)
        (path / "settings").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        (path / "config.yaml").write_text(f"task: math.a\nseed: {settings.get('seed', 0)}\n")
    presence.announce(path)
    log(path, "events", {"kind": "start", "total_steps": int(settings.get("trainer.max_steps", 2))})
    try:
        return train(path, settings, first)
    finally:
        presence.withdraw(path)


def train(path: Path, settings: dict[str, str], first: int) -> int:
    facts = f"threads {os.environ.get('OMP_NUM_THREADS')}, devices {os.environ.get('CUDA_VISIBLE_DEVICES')}"
    print(facts, flush=True)  # before what is said on stderr
    solved = 0.5 + 10 * float(settings.get("trainer.learning_rate", 0)) + 0.01 * int(settings.get("seed", 0))
    for step in range(first, int(settings.get("trainer.max_steps", 2)) + 1):
        time.sleep(float(settings.get("trainer.epsilon", 0)))
        if float(settings.get("trainer.beta", 0)) > 0:
            log(path, "events", {"kind": "failed", "error": "the model broke down"})
            print("error: the model broke down\x1b[31m", file=sys.stderr)
            return 1
        if step == 1 and float(settings.get("trainer.entropy_coef", 0)) > 0:
            signal.raise_signal(signal.SIGTERM)
        log(path, "train_log", {"step": step, "reward": solved / 2, "solved_rate": 0.25})
        log(path, "evaluations", {"step": step, "phase": "interval", "eval/math.a/solved_rate": solved})
        if is_stopped:
            checkpoint = path / "training_state" / f"step_{step}"
            checkpoint.mkdir(parents=True)
            seal(checkpoint, step)
            log(path, "events", {"kind": "end", "interrupted": True})
            return 130
    result = {"solved_rate": solved, "ci_low": solved - 0.1, "ci_high": solved + 0.1, "n": 16}
    evaluated = "math.b" if settings.get("task") == "math.echo" else "math.a"
    (path / "summary.json").write_bytes(orjson.dumps({"tasks": {evaluated: {"final": result}}, "seconds": 3.5}))
    log(path, "events", {"kind": "end", "interrupted": False})
    return 0


def log(path: Path, name: str, line: dict[str, Any]) -> None:
    with (path / "logs" / f"{name}.jsonl").open("ab") as file:
        file.write(orjson.dumps(line) + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
