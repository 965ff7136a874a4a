"""Where the folder of a run is, and the folders that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_sdk.errors import CheckpointError, near_match
from grpo_sdk.paths import kind_of
from grpo_sdk.records import yaml_text

_CONFIG = "config.yaml"
"""The first file that a run writes."""

CHECKPOINTS = "training_state"
"""Holds the checkpoints of a run."""

_EVALUATIONS = "eval_runs"
"""Holds the evaluations of all runs of a folder."""


def is_run(path: Path) -> bool:
    """Return whether `path` is the folder of a run; a folder that may not be looked into is none."""
    try:
        return path.is_dir() and (path / _CONFIG).is_file()
    except OSError:
        return False


def run_of(model: Path) -> Path | None:
    """Return the run in one of whose checkpoints a folder is, as `RUN/training_state/step_9/model`; None if in none."""
    checkpoints = model.resolve().parent.parent
    return checkpoints.parent if checkpoints.name == CHECKPOINTS and is_run(checkpoints.parent) else None


def evaluation_dir(run: Path) -> Path:
    """The folder of a run's evaluations: `eval_runs`, beside the folder that holds the runs."""
    return run.resolve().parent.parent / _EVALUATIONS


def check_run(path: Path) -> None:
    """Check that a path is the folder of a run; the error says where one is.

    Raises:
        CheckpointError: there is no such folder, it may not be looked into, or it has no `config.yaml`.
    """
    if is_run(path):
        return
    if (kind := kind_of(path)).startswith("out of reach"):
        raise CheckpointError(f"no run {path!s:.80}: it is {kind}.")
    if not kind:
        raise CheckpointError(f"no run {path}: there is no such folder.{_near_run(path)}")
    if inside := next((parent for parent in path.absolute().parents if is_run(parent)), None):
        raise CheckpointError(f"{path} is not a run folder but a part of one. Did you mean {str(inside)!r}?")
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a run folder: it is {kind}.")
    if (kind := kind_of(path / _CONFIG)).startswith("out of reach"):
        raise CheckpointError(f"{path} may not be looked into: its {_CONFIG} is {kind}.")
    advice = ""
    if runs := _runs_in(path) or _runs_in(path / "training_runs"):
        many = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        advice = f" It holds {many}. Did you mean {str(runs[-1])!r}?"
    raise CheckpointError(f"{path} is not a run folder: no {_CONFIG} in it.{advice}")


def _near_run(path: Path) -> str:
    names = {run.name: str(run) for run in _runs_in(path.parent)}
    near = near_match(path.name, names)
    return near or (f" The newest run there is {names[max(names)]!r}." if names else "")


def _runs_in(folder: Path) -> list[Path]:
    """Return the runs directly in `folder`, oldest first: their names are dates."""
    try:
        return sorted(path for path in folder.iterdir() if is_run(path))
    except OSError:
        return []


def read_settings(path: Path) -> dict[str, Any]:
    """Read the settings of a run by dotted key, whatever version wrote them.

    Raises:
        UserError: config.yaml cannot be read.
    """
    return flat(yaml_text.read_mapping(path / "config.yaml"), ".")


def flat(values: Mapping[str, Any], separator: str = "/", prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings into one, with keys as `parts/NAME/mean`."""
    flattened: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flattened |= flat(value, separator, f"{prefix}{name}{separator}")
        else:
            flattened[f"{prefix}{name}"] = value
    return flattened
