"""The models that an evaluation of a run is of: its checkpoints, and the control."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_core.checkpoints import CheckpointError, CheckpointStore, read_json
from grpo_core.config import RunConfig
from grpo_core.evaluation.output import BASE, safe_name, step_order
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.models import model_source

_STEP_FOLDER = re.compile(r"step_(\d{1,18}|final)")


@dataclass(frozen=True, slots=True)
class EvaluatedCheckpoint:
    """A model to evaluate, named like its folder of results: `step_K`, `step_final` or `base`."""

    name: str
    model: str
    adapter: str | None
    steps_done: int = 0

    @property
    def is_of_run(self) -> bool:
        """Whether it is a checkpoint of the run or what it started from, and no other model."""
        return self.name == BASE or not self.name.startswith(BASE)


def start_of(config: RunConfig) -> tuple[str, str | None]:
    """Model and adapter that a run started from."""
    assert config.model is not None, "a run's configuration is resolved"
    return config.model, config.adapter


def control_of(config: RunConfig, base: str | None) -> EvaluatedCheckpoint:
    """The control: another model, or by default the one that the run started from.

    Raises:
        UserError: no such model.
    """
    model, adapter = start_of(config)
    model_source(base or model)
    if base is None or base == model:
        return EvaluatedCheckpoint(BASE, model, adapter)
    return EvaluatedCheckpoint(f"{BASE}_{safe_name(base)}", base, None)


def checkpoints_of(run_dir: Path, config: RunConfig, steps: str) -> tuple[list[EvaluatedCheckpoint], dict[str, str]]:
    """Find the checkpoints that `steps` names.

    Returns:
        (checkpoints in order, checkpoint -> why it cannot be used).

    Raises:
        UserError: the run has no such checkpoint.
    """
    store = CheckpointStore(run_dir)
    failures: dict[str, str] = {}
    folders: dict[str, Path] = {}
    if steps.strip() == "all":
        for name in sorted(_named_like_steps(store), key=step_order):
            try:
                folders[name] = store.path(_which(name.removeprefix("step_")))
            except CheckpointError as error:
                failures[name] = str(error)
        if not folders:
            raise UserError(f"{run_dir} has no complete checkpoint{_first(failures)}")
    else:
        for word in dict.fromkeys(part.strip() for part in steps.split(",")):
            folder = store.path(_which(word))
            folders[folder.name] = folder
    checkpoints = []
    for name in sorted(folders, key=step_order):
        try:
            store.verify(folders[name])
        except CheckpointError as error:
            failures[name] = str(error)
            continue
        model = str((folders[name] / "model").resolve())
        done = _steps_done(folders[name])
        if (Path(model) / "adapter_config.json").is_file():
            checkpoints.append(EvaluatedCheckpoint(name, start_of(config)[0], model, done))
        else:
            checkpoints.append(EvaluatedCheckpoint(name, model, None, done))
    for name in {checkpoint.model for checkpoint in checkpoints}:
        model_source(name)  # the base of an adapter may have been moved away
    return checkpoints, failures


def _steps_done(folder: Path) -> int:
    match = _STEP_FOLDER.fullmatch(folder.name)
    if match and match[1] != "final":
        return int(match[1])
    step = training_info(folder).get("step")
    return step if isinstance(step, int) else 0


def training_info(folder: Path) -> Mapping[str, Any]:
    """Read what a checkpoint says of its training; empty where it says nothing."""
    try:
        info = read_json(folder / "training_info.json", "training info")
    except UserError:
        return {}
    return info if isinstance(info, dict) else {}


def _named_like_steps(store: CheckpointStore) -> Iterator[str]:
    if store.folder.is_dir():
        yield from (path.name for path in store.folder.iterdir() if _STEP_FOLDER.fullmatch(path.name))


def _which(word: str) -> Any:
    if word in ("final", "latest"):
        return word
    if word.isascii() and word.isdigit() and len(word) <= 18:
        return int(word)
    raise UserError(f"--steps {word!r}: give all, or step numbers, final and latest, separated by commas: 1,5,final.")


def _first(failures: Mapping[str, str]) -> str:
    return (
        f": {next(iter(failures.values()))}" if failures else "; wait for the first, or train with trainer.save_every."
    )
