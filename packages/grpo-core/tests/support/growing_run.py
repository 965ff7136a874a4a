"""The folder of a run that a test lets grow, as a trainer writes it."""

from pathlib import Path
from typing import Any

import orjson


class GrowingRun:
    """A run's folder.

    Args:
        path: The folder, which is made.
        planned: Steps that it plans.
    """

    def __init__(self, path: Path, planned: int = 40) -> None:
        self.path, self.logs = path, path / "logs"
        self.logs.mkdir(parents=True)
        (path / "config.yaml").write_text("task: math.a\nmodel: tiny\nseed: 0\n")
        self.event("start", total_steps=planned, step=0, time="2026-11-21T10:00:00+00:00")

    def append(self, name: str, *lines: dict[str, Any]) -> None:
        with (self.logs / name).open("ab") as file:
            file.write(b"".join(orjson.dumps(line) + b"\n" for line in lines))

    def event(self, kind: str, **fields: Any) -> None:
        self.append("events.jsonl", {"kind": kind, "step": 0, **fields})

    def evaluation(self, step: int, solved: float) -> None:
        result = {"solved_rate": solved, "ci_low": solved - 0.125, "ci_high": solved + 0.125, "n": 16}
        self.event("evaluation", step=step, task="math.a", phase="interval" if step else "initial", result=result)

    def step(self, number: int, **metrics: float) -> None:
        known = {
            "reward": number / 40, "solved_rate": 0.5, "completions/mean_length": 7.0, "entropy": 0.3, "step_s": 2.0,
        }  # fmt: skip
        self.append("train_log.jsonl", {"step": number, **known, **metrics})

    def group(self, step: int, number: int, *texts: str, prompt: str = "1 + 1 =") -> None:
        for index, text in enumerate(texts):
            score = {"value": float(index == 0), "parts": {"exact": float(index == 0)}, "valid": True,
                     "solved": index == 0, "why": "", "fault": ""}  # fmt: skip
            line = {
                "step": step, "task": "math.a?split=train", "identity": "x", "group": number, "row": {"id": "r1"},
                "prompt": prompt, "text": text, "tokens": 3, "finish_reason": "stop", "status": "scored",
            }  # fmt: skip
            self.append("rollouts.jsonl", {**line, "score": score})

    def cut(self, name: str, lines: int) -> None:
        """Keep the first lines of a log, in the same file, as a resumed run does."""
        path = self.logs / name
        kept = b"".join(path.read_bytes().splitlines(keepends=True)[:lines])
        with path.open("rb+") as file:
            file.truncate(len(kept))
