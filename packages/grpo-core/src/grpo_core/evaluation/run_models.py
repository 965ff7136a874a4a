"""The models that an evaluation of a run is of: its checkpoints and the control, and how the run loaded them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from grpo_core.checkpoints import CheckpointError, CheckpointStore, Step, read_json
from grpo_core.checkpoints.names import checkpoint_name, parse_checkpoint
from grpo_core.config import RunConfig
from grpo_core.evaluation.output import BASE, NamedModel, safe_name, step_order
from grpo_core.evaluation.settings import ModelOptions
from grpo_core.policy.device import DTYPES
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.models import model_source


def start_of(config: RunConfig) -> tuple[str, str | None]:
    """Model and adapter that a run started from."""
    assert config.model is not None, "a run's configuration is resolved"
    return config.model, config.adapter


def control_of(config: RunConfig, base: str | None) -> NamedModel:
    """The control: another model, or by default the one that the run started from.

    Raises:
        UserError: no such model.
    """
    model, adapter = start_of(config)
    model_source(base or model)
    if base is None or base == model:
        return NamedModel(BASE, model, adapter, steps_done=0)
    return NamedModel(f"{BASE}_{safe_name(base)}", base, steps_done=0)


def options_of(config: RunConfig, run_dir: Path) -> ModelOptions:
    """The options with which a run set up its model, in the precision that `auto` was there."""
    precision = config.precision
    if precision == "auto":
        recorded = (training_info(folder).get("precision") for folder in CheckpointStore(run_dir).folders().values())
        precision = next((name for name in recorded if name in DTYPES), precision)
    return ModelOptions(
        device=config.device,
        precision=precision,
        engine=config.engine,
        scoring=config.scoring,
        lora=config.lora.model_copy(update={"enabled": False}) if config.lora.quantization else None,
    )


def checkpoints_of(run_dir: Path, config: RunConfig, steps: str) -> tuple[list[NamedModel], dict[str, str]]:
    """Find the checkpoints that `steps` names.

    Returns:
        (checkpoints in order, checkpoint -> why it cannot be used).

    Raises:
        UserError: the run has no such checkpoint.
    """
    store, takes_all = CheckpointStore(run_dir), steps.strip() == "all"
    failures: dict[str, str] = {}
    folders: set[Path] = set()
    present = sorted(store.folders(), key=lambda step: step_order(checkpoint_name(step)))
    for which in present if takes_all else map(_which, steps.split(",")):
        try:
            folders.add(store.path(which))
        except CheckpointError as error:
            if not takes_all or which == "latest":
                raise
            failures[checkpoint_name(which)] = str(error)
    if not folders:
        why = "; wait for the first, or train with trainer.save_every."
        raise UserError(f"{run_dir} has no complete checkpoint{next((f': {each}' for each in failures.values()), why)}")
    checkpoints = []
    for folder in sorted(folders, key=lambda folder: step_order(folder.name)):
        try:
            store.verify(folder)
        except CheckpointError as error:
            failures[folder.name] = str(error)
            continue
        model, done = str((folder / "model").resolve()), _steps_done(folder)
        if (folder / "model" / "adapter_config.json").is_file():
            checkpoints.append(NamedModel(folder.name, start_of(config)[0], model, done))
        else:
            checkpoints.append(NamedModel(folder.name, model, None, done))
    for model in {checkpoint.model for checkpoint in checkpoints}:
        model_source(model)  # the base of an adapter may have been moved away
    return checkpoints, failures


def _steps_done(folder: Path) -> int:
    step = parse_checkpoint(folder.name)
    if not isinstance(step, int):
        step = training_info(folder).get("step")
    return step if isinstance(step, int) else 0


def training_info(folder: Path) -> Mapping[str, Any]:
    """Read what a checkpoint says of its training; empty where it says nothing."""
    try:
        info = read_json(folder / "training_info.json", "training info")
    except UserError:
        return {}
    return info if isinstance(info, dict) else {}


def _which(text: str) -> Step | Literal["latest"]:
    match text.strip():
        case "final" | "latest" as name:
            return name
        case word if word.isascii() and word.isdigit() and len(word) <= 18:
            return int(word)
        case word:
            raise UserError(
                f"--steps {word!r}: give all, or step numbers, final and latest, separated by commas: 1,5,final."
            )
