"""The folder of a run: configuration, logs, the trained model, the summary."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from grpo_core.errors import UserError
from grpo_core.policy.policy import Policy
from grpo_core.rollout import Rollout

RUN_FORMAT_VERSION = 1
"""Version of the files in a run's folder; changes are announced a minor version ahead."""


class RunFolder:
    """Writes `run_YYYY-MM-DD_HH-MM-SS/`, with a suffix if that name is taken.

    Args:
        output_dir: Folder that receives it.

    Attributes:
        path: The run's folder.

    Raises:
        UserError: it cannot be made.
    """

    def __init__(self, output_dir: Path) -> None:
        self.path = _new_folder(output_dir)
        self.logs = self.path / "logs"
        self.logs.mkdir()
        # Line-buffered: a run that is killed leaves every step that it finished.
        self._train_log = (self.logs / "train_log.jsonl").open("ab", buffering=0)
        self._text_log = (self.logs / "train.log").open("a", encoding="utf-8", buffering=1)
        self._rollouts = (self.logs / "rollouts.jsonl").open("ab")

    def write_config(self, text: str) -> None:
        """Save the resolved configuration."""
        (self.path / "config.yaml").write_text(text, encoding="utf-8")

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one step to `train_log.jsonl` and one greppable line to `train.log`."""
        # JSON has no NaN: a number that does not exist is null.
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._train_log.write(orjson.dumps({"step": step, **finite}) + b"\n")
        line = " ".join(f"{name}={value:.6g}" for name, value in metrics.items())
        self._text_log.write(f"step={step} {line}\n")

    def log_rollouts(self, step: int, rollouts: Iterable[Rollout], identities: Mapping[str, str]) -> None:
        """Append the step's completions with their rows and score trees to `rollouts.jsonl`."""
        for rollout in rollouts:
            completion = rollout.turns[-1].completion
            score = rollout.score
            record = {
                "step": step,
                "task": rollout.spec,
                "identity": identities[rollout.spec],
                "group": rollout.group,
                "row": rollout.row.model_dump(),
                "text": completion.text,
                "tokens": len(completion.token_ids),
                "finish_reason": completion.finish_reason,
                "status": rollout.status,
                "score": score and {name: getattr(score, name) for name in score.__slots__},
            }
            self._rollouts.write(orjson.dumps(record) + b"\n")
        self._rollouts.flush()

    def save_final(self, policy: Policy, state: Mapping[str, Any]) -> Path:
        """Write `training_state/step_final`: the model and `trainer_state.json`; complete, or not there at all.

        Args:
            policy: The model, or the adapter, goes to `model/`.
            state: What else the run had become: step, row orders and curriculum, baseline.
        """
        final = self.path / "training_state" / "step_final"
        partial = final.with_name("step_final.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        policy.save(partial / "model")
        (partial / "trainer_state.json").write_bytes(orjson.dumps({"version": RUN_FORMAT_VERSION, **state}))
        os.replace(partial, final)
        return final / "model"

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write `summary.json`, whole."""
        partial = self.path / "summary.json.partial"
        partial.write_bytes(orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        os.replace(partial, self.path / "summary.json")

    def close(self) -> None:
        """Close the logs."""
        for file in (self._train_log, self._text_log, self._rollouts):
            file.close()


def _new_folder(output_dir: Path) -> Path:
    name = datetime.now().strftime("run_%Y-%m-%d_%H-%M-%S")
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        for suffix in range(1, 10_000):
            path = output_dir / (name if suffix == 1 else f"{name}_{suffix}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    except OSError as error:
        raise UserError(f"output_dir={output_dir}: cannot make a run folder there: {error}") from None
    raise UserError(f"output_dir={output_dir}: {name} and every suffix of it is taken.")
