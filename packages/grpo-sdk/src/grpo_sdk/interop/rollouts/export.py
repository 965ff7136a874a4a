"""A run's rollouts in a folder that another package's viewer reads: `grpo rollouts RUN --export NAME`."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grpo_sdk.errors import UserError, unknown_name
from grpo_sdk.interop.rollouts.stored import RunFacts
from grpo_sdk.paths import check_makeable
from grpo_sdk.records.rollouts import RolloutRecord


@dataclass(frozen=True, slots=True)
class RolloutFormat:
    """Files of another package.

    Attributes:
        module: Module whose `write_logs` writes them.
        next_step: How the folder `{}` is opened.
    """

    module: str
    next_step: str


FORMATS = {
    "inspect": RolloutFormat("grpo_sdk.interop.rollouts.inspect_logs", "inspect view --log-dir {}"),
    "verifiers": RolloutFormat(
        "grpo_sdk.interop.rollouts.verifiers_traces",
        "in Python, verifiers.v1.utils.trace_store.read_episodes(folder, WireTrace) reads {}",
    ),
}


def format_of(name: str) -> RolloutFormat:
    """Find a format.

    Raises:
        UserError: there is none of this name.
    """
    if name not in FORMATS:
        raise unknown_name("format of --export", name, FORMATS)
    return FORMATS[name]


@dataclass(frozen=True, slots=True)
class ExportedRollouts:
    """What an export wrote.

    Attributes:
        count: Number of rollouts.
        files: Number of files.
    """

    count: int
    files: int


def check_new(folder: Path) -> None:
    """Refuse a folder that exists or that cannot be made.

    Raises:
        UserError: it is so.
    """
    if os.path.lexists(folder):
        raise UserError(f"{folder} exists already, and nothing is overwritten: give another --output, or remove it.")
    check_makeable(folder, f"--output {folder}")


def export_rollouts(records: Iterable[RolloutRecord], run_dir: Path, name: str, folder: Path) -> ExportedRollouts:
    """Write rollouts into a new folder, whole or not at all; one step is in memory at a time.

    Args:
        records: Rollouts, those of one step next to each other.
        run_dir: Folder of the run.
        name: Format: `inspect` writes one `.eval` log per step and task, `verifiers` one `traces.jsonl`.
        folder: Folder, which does not exist yet. Without a rollout it is not made.

    Raises:
        UserError: the folder exists or cannot be written, or the package is not installed.
    """
    run = RunFacts.read(run_dir)
    check_new(folder)
    write_logs = importlib.import_module(format_of(name).module).write_logs
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.absolute().parent))
    try:
        exported = ExportedRollouts(*write_logs(records, run, partial))
        if exported.count:
            partial.chmod(0o777 & ~_umask())  # mkdtemp's folder is its owner's alone
            partial.rename(folder)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return exported


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
