"""The checkpoint that is published, with everything that its run recorded about it. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, Literal

from grpo_core.checkpoints import CheckpointStore, Step, check_run, evaluation_dir, read_json
from grpo_core.config import RunConfig, load_config
from grpo_core.tracking.runs import read_summary
from grpo_sdk.errors import UserError
from grpo_sdk.hub.cache import cached_file
from grpo_sdk.plugins.models import ADAPTER_FILE, ModelSource, base_model, model_source
from grpo_sdk.records.jsonl import read_jsonl

MODEL_FOLDER = "model"
"""Folder of a checkpoint that holds the model, or the adapter, with its tokenizer."""

_IDENTIFYING = ("split", "temperature", "completions_per_row", "n", "solved_rate", "mean_reward")
"""Numbers that are equal in two records of one evaluation."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Results of one held-out evaluation, as in summary.json; empty where there are none.

    Attributes:
        task: Task label.
        base: Results of the model that training started from.
        this: Results of the checkpoint.
    """

    task: str
    base: Mapping[str, Any]
    this: Mapping[str, Any]

    def repeats(self, other: Evaluated) -> bool:
        """Whether both describe the same evaluation: `grpo eval --run` keeps the results of the run itself."""
        return self.task == other.task and all(self.this.get(name) == other.this.get(name) for name in _IDENTIFYING)


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint and its run.

    Attributes:
        run_dir: Folder of the run.
        checkpoint: Folder of the checkpoint.
        step: Optimizer step of the checkpoint.
        config: Configuration of the run.
        base_name: Name of the model that training started from, below any adapter.
        base: Location of that model; None if it no longer exists.
        summary: Summary of the run; empty if it has none yet.
        info: Contents of the checkpoint's `training_info.json`.
        reference: Contents of `reference.json`, which describes the reference policy of the KL; None without one.
        metrics: Metrics of the checkpoint's step, or of the last logged step before it.
        is_adapter: Whether the checkpoint holds an adapter instead of a model.
        evaluations: Results of `grpo eval --run` for the checkpoint.
    """

    run_dir: Path
    checkpoint: Path
    step: int
    config: RunConfig
    base_name: str
    base: ModelSource | None
    summary: Mapping[str, Any]
    info: Mapping[str, Any]
    reference: Mapping[str, Any] | None
    metrics: Mapping[str, Any]
    is_adapter: bool
    evaluations: Sequence[Evaluated] = ()

    @property
    def model_dir(self) -> Path:
        """Folder of the checkpoint's model, or adapter."""
        return self.checkpoint / MODEL_FOLDER

    @property
    def identities(self) -> Mapping[str, str]:
        """Task spec -> identity."""
        return dict(self.info.get("identities") or {})

    def base_file(self, name: str) -> Path | None:
        """Return a file of the base's folder; None where that is not on this machine, or does not have it."""
        if self.base is None or self.base.kind == "gguf":
            return None
        if self.base.kind == "hub":
            return cached_file(self.base.location, name)
        path = Path(self.base.location) / name
        return path if path.is_file() else None

    def evaluated(self) -> list[Evaluated]:
        """Return all held-out evaluations of the checkpoint: the run's own, if it ended with it, then later ones."""
        tasks = self.summary.get("tasks") or {}
        is_last = self.summary.get("steps") == self.step
        own = [
            Evaluated(label, entry.get("initial") or {}, (entry.get("final") or {}) if is_last else {})
            for label, entry in tasks.items()
        ]
        later = [each for each in self.evaluations if not any(each.repeats(other) for other in own)]
        return [each for each in (*own, *later) if each.base or each.this]


def read_source(run_dir: Path, step: Step | Literal["latest"], eval_dir: Path | None = None) -> Source:
    """Read and verify a checkpoint.

    Args:
        run_dir: Folder of the run.
        step: Checkpoint to read.
        eval_dir: Folder with the results of `grpo eval --run`; by default `eval_runs` of the run.

    Raises:
        UserError: not a run, no such checkpoint, or a damaged one.
    """
    check_run(run_dir)
    store = CheckpointStore(run_dir)
    checkpoint = store.path(step)
    store.verify(checkpoint)
    config = load_config(config_file=run_dir / "config.yaml", environ={}, dotenv_path=None).config
    model = config.model
    if model is None:
        raise UserError(f"{run_dir / 'config.yaml'} names no model: it is not the configuration that the run wrote.")
    info = read_json(checkpoint / "training_info.json", "the checkpoint's training info")
    number = info.get("step")
    if not isinstance(number, int):
        raise UserError(f"{checkpoint / 'training_info.json'} is damaged: it does not say its step.")
    base_name, base = model, None
    with suppress(UserError):  # a folder that no longer exists; a full checkpoint does not need it
        base_name = base_model(model)
        base = model_source(base_name)
    reference = run_dir / "reference" / "reference.json"
    return Source(
        run_dir=run_dir,
        checkpoint=checkpoint,
        step=number,
        config=config,
        base_name=base_name,
        base=base,
        summary=read_summary(run_dir),
        info=info,
        reference=read_json(reference, "the run's reference") if reference.is_file() else None,
        metrics=_metrics(run_dir / "logs" / "train_log.jsonl", number),
        is_adapter=(checkpoint / MODEL_FOLDER / ADAPTER_FILE).is_file(),
        evaluations=_evaluations(eval_dir or evaluation_dir(run_dir), run_dir.resolve().name, checkpoint.name),
    )


def _metrics(log: Path, step: int) -> Mapping[str, Any]:
    logged = [line for line in read_jsonl(log) if isinstance(line.get("step"), int) and line["step"] <= step]
    return logged[-1] if logged else {}


def _evaluations(eval_dir: Path, run: str, checkpoint: str) -> list[Evaluated]:
    """Read the results in the folders `RUN_TASK`; a damaged file is an error, since the card would lack its results."""
    evaluations = []
    for path in sorted(eval_dir.glob(f"{escape(run)}_*/summary.json")):
        summary = read_json(path, "an evaluation of the run")
        # The folders of a run called RUN_2 match as well; the name is empty where the run was given as ".".
        if Path(summary.get("run_dir") or "").name not in ("", run):
            continue
        for label, entry in (summary.get("tasks") or {}).items():
            if this := (entry.get("checkpoints") or {}).get(checkpoint):
                evaluations.append(Evaluated(label, entry.get("initial") or {}, this))
    return evaluations
