"""The state of a stored run, read and checked without torch, so that a mistake is reported before it is imported."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from grpo_core.checkpoints import CheckpointStore, Step, check_run, read_json
from grpo_core.config import RunConfig, flatten, load_config, resolve
from grpo_core.config.keys import find
from grpo_core.evaluation.held_out import trained_tasks
from grpo_core.tracking.events import at_start_of, read_sources
from grpo_core.tracking.presence import check_unlocked
from grpo_core.tracking.runs import ENDLESS, has_ended
from grpo_core.training.provenance import check_identities, is_free
from grpo_core.training.stop import reason_to_end
from grpo_sdk.display.text import format_value
from grpo_sdk.errors import UnknownNameError, UserError, near_match
from grpo_sdk.paths import user_path

INFO_FILE = "training_info.json"
"""File that describes a checkpoint, for people and for the checks of a resume."""

STATE_FILE = "trainer_state.json"


STOP_AFTER = "trainer.stop_after"
"""A setting of each call, which the run's configuration does not keep."""

SURROUNDINGS = ("data", "hardware", "versions", "conditions")
"""What may differ beside settings, as `--allow` names it."""

_ALIASES = {"task": "data"}
"""Other words for some of them; `task` is a setting, too, whose change it allows."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of a resumed run.

    Attributes:
        step: Its last step.
        is_extension: Whether these steps were asked for, so that neither time nor patience ends the run.
        missing: Work that is left where every step is done; otherwise empty.
    """

    step: int
    is_extension: bool
    missing: str = ""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as its folder holds it, at one checkpoint.

    Attributes:
        checkpoint: Folder of the checkpoint.
        state: JSON part of the checkpoint.
        info: What the checkpoint was made with: configuration, identities, versions, hardware.
        end: End of the resumed run.
    """

    checkpoint: Path
    state: Mapping[str, Any]
    info: Mapping[str, Any]
    end: RunEnd

    @classmethod
    def read(
        cls,
        path: Path,
        config: RunConfig,
        from_step: Step | Literal["latest"],
        *,
        additional_steps: int | None = None,
        allow: Collection[str] = (),
        verifies_weights: bool = True,
    ) -> StoredRun:
        """Read a checkpoint and check that the run can go on from it.

        Args:
            path: Folder of the run.
            config: Configuration of the run, of `stored_config`.
            from_step: Which checkpoint.
            additional_steps: Steps from there, in place of the planned end.
            allow: Settings that may differ from the checkpoint's.
            verifies_weights: Check every file against its checksum, which reads all of them; otherwise only the JSON.

        Raises:
            UserError: no such or a damaged checkpoint, nothing left to do, or a changed setting.
        """
        allow = allowed(allow)
        reader = CheckpointStore(path)
        checkpoint = reader.path(from_step)
        reader.verify(checkpoint, only=None if verifies_weights else (STATE_FILE, INFO_FILE))
        state, info = read_state(checkpoint), read_json(checkpoint / INFO_FILE, "training info")
        _check_config(path, config, state, info, allow)
        if config.trainer.backend_args.get("sync_ref_model"):
            raise UserError(
                f"{path} was trained by TRL with trainer.backend_args.sync_ref_model: its reference has followed the "
                f"policy, and TRL stores none. Begin a run from this model, --model {checkpoint / 'model'}."
            )
        return cls(checkpoint, state, info, _end(path, config, state, additional_steps))


def check_resume(
    run_dir: Path | str,
    *,
    from_step: Step | Literal["latest"] = "latest",
    additional_steps: int | None = None,
    stop_after: int | None = None,
    allow: Collection[str] = (),
    takes_lock: bool = True,
) -> RunConfig:
    """Check what `resume` checks of the run's folder and its tasks, except the content of the weights.

    Args:
        run_dir: As for `resume`, like the next four.
        from_step: Which checkpoint.
        additional_steps: Steps from there.
        stop_after: Stop after so many steps.
        allow: What may differ.
        takes_lock: Check that no other process works in the folder; not in a rank, beside which others do.

    Returns:
        The run's configuration.

    Raises:
        UserError: as for `resume`.
    """
    path = user_path(os.fspath(run_dir), "RUN")
    check_run(path)
    with at_start_of(path) as (path, _):
        config = stored_config(path, stop_after)
        stored = StoredRun.read(
            path, config, from_step, additional_steps=additional_steps, allow=allow, verifies_weights=False
        )
        if takes_lock:
            check_unlocked(path)
        check_identities(trained_tasks(config).values(), stored.info, allowed(allow))
        return config


def allowed(names: Collection[str]) -> frozenset[str]:
    """Check the names of what may differ from a checkpoint; `task` allows the setting and the `data`.

    Raises:
        UnknownNameError: a name that is neither a setting nor one of `SURROUNDINGS`.
    """
    for name in names:
        if name in SURROUNDINGS or name in _ALIASES:
            continue
        if hint := near_match(name, (*SURROUNDINGS, *_ALIASES)):
            raise UnknownNameError(f"--allow {name}: no such thing.{hint} Or give the dotted name of a setting.")
        find(name, "--allow")
    return frozenset(names) | {_ALIASES[name] for name in names if name in _ALIASES}


def stored_config(path: Path, stop_after: int | None) -> RunConfig:
    """The run's configuration, as its folder says it now.

    Raises:
        UserError: it cannot be read, or `stop_after` is not a number of steps.
    """
    if stop_after is not None and stop_after < 1:
        raise UserError(f"--stop-after {stop_after} must be 1 or more.")
    loaded = load_config(config_file=path / "config.yaml", environ={}, dotenv_path=None)
    config = resolve(loaded.config, loaded.sources).config
    trainer = config.trainer.model_copy(update={"stop_after": stop_after})
    return config.model_copy(update={"trainer": trainer})


def read_state(folder: Path) -> dict[str, Any]:
    """The JSON part of a checkpoint.

    Raises:
        UserError: it is missing or is no JSON object.
    """
    document = read_json(folder / STATE_FILE, "checkpoint state")
    if not isinstance(document, dict):
        raise UserError(f"{folder / STATE_FILE}: not a checkpoint state.")
    return document


def of_planned(total: int) -> str:
    """The words ` of N` after a step; empty where only a time limit ends the run."""
    return "" if total >= ENDLESS else f" of {total}"


def _end(path: Path, config: RunConfig, state: Mapping[str, Any], additional_steps: int | None) -> RunEnd:
    """Find where the run ends: as planned, or after additional steps.

    Raises:
        UserError: its end was reached, with evaluation and summary.
    """
    done = int(state["step"])
    if additional_steps is not None:
        if not 1 <= additional_steps < ENDLESS:
            raise UserError(
                f"--additional-steps {format_value(additional_steps)} must be 1 or more, and below {ENDLESS}."
            )
        return RunEnd(done + additional_steps, True)
    end, is_extension = int(state["end_step"]), bool(state["is_extension"])
    why = "" if done < end else "its last step"
    if not why and not is_extension:
        why = reason_to_end(config.trainer, seconds=state["seconds"], waited=state["best"]["waited"])
    if why and has_ended(path, done):
        because = "" if done >= end else f" ({why})"
        raise UserError(
            f"the checkpoint is at step {done}{of_planned(end)}: nothing is left to do{because}. Train on with "
            "--additional-steps N."
        )
    return RunEnd(
        end, is_extension, "every step is done; the evaluation of the end and the summary follow" if why else ""
    )


def sources_of(path: Path, config: RunConfig, stored: StoredRun) -> dict[str, str]:
    """Where the settings of a resumed run come from: as its folder says, or its config.yaml where that was changed.

    Args:
        path: Folder of the run.
        config: Configuration of the run, of `stored_config`.
        stored: The run at the checkpoint that it goes on from.
    """
    if not (sources := read_sources(path)):  # without them, what did not change would look like a default
        return {}
    now, then = _flat_configs(config, stored.info)
    changed = f"{path.name}/config.yaml: changed after step {stored.state['step']}"
    sources |= {key: changed for key in now if now[key] != then[key]}
    sources.pop(STOP_AFTER, None)
    return sources if config.trainer.stop_after is None else {**sources, STOP_AFTER: "argument of the resume"}


def _flat_configs(config: RunConfig, info: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Dotted key -> value: of a configuration, and of the one that a checkpoint was trained with."""
    return flatten(config), flatten(RunConfig.model_validate_json(orjson.dumps(info["training_config"])))


def _check_config(
    path: Path, config: RunConfig, state: Mapping[str, Any], info: Mapping[str, Any], allow: Collection[str]
) -> None:
    """Check that the configuration is still the checkpoint's. Its planned steps hold, whatever is allowed."""
    now, then = _flat_configs(config, info)
    for key in ("trainer.max_steps", "trainer.num_train_epochs"):
        # Where time ends the run, steps may, too.
        if now[key] != then[key] and int(state["planned_steps"]) < ENDLESS:
            raise UserError(
                f"{path / 'config.yaml'}: {key} is {format_value(now[key])} now, and the run was planned with "
                f"{format_value(then[key])}, which a resume does not change. Put it back; --additional-steps N trains "
                "on from a checkpoint."
            )
    changed = [key for key in now if now[key] != then[key] and not is_free(key) and key not in allow]
    if changed:
        key = changed[0]
        more = f" (and {len(changed) - 1} more: {', '.join(changed[1:])})" if len(changed) > 1 else ""
        raise UserError(
            f"{path / 'config.yaml'}: {key} is {now[key]} now, and the checkpoint was trained with {then[key]}{more}. "
            f"Put it back, or allow it by name: --allow {' --allow '.join(changed)}."
        )
