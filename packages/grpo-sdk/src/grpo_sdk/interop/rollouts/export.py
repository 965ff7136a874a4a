"""A run's rollouts in a folder that another package's viewer reads: `grpo rollouts RUN --export NAME`.

What the writers share is here: the facts of the run, and rollouts as messages.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from grpo_sdk.errors import UserError, unknown_name
from grpo_sdk.files import written_whole
from grpo_sdk.paths import check_makeable
from grpo_sdk.records.rollouts import RolloutRecord, rollouts_path
from grpo_sdk.records.run_folder import read_settings


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


def export_rollouts(records: Iterable[RolloutRecord], run_dir: Path, name: str, folder: Path) -> tuple[int, int]:
    """Write rollouts into a new folder, whole or not at all; one step is in memory at a time.

    Args:
        records: Rollouts, those of one step next to each other.
        run_dir: Folder of the run.
        name: Format: `inspect` writes one `.eval` log per step and task, `verifiers` one `traces.jsonl`.
        folder: Folder, which does not exist yet. Without a rollout it is not made.

    Returns:
        (number of rollouts, number of files).

    Raises:
        UserError: the folder exists or cannot be written, or the package is not installed.
    """
    run = RunFacts.read(run_dir)
    if os.path.lexists(folder):
        raise UserError(f"{folder} exists already, and nothing is overwritten: give another --output, or remove it.")
    check_makeable(folder, f"--output {folder}")
    write_logs = importlib.import_module(format_of(name).module).write_logs
    try:
        with written_whole(folder.absolute()) as partial:
            count, files = write_logs(records, run, partial)
        if not count:
            folder.rmdir()
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}.") from None
    return count, files


ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of a rollout.

    Attributes:
        role: `system`, `user` or `assistant`.
        content: Text.
        is_sampled: Whether it is exactly one completion of the policy.
    """

    role: str
    content: str
    is_sampled: bool = False


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What an exported log says of the run.

    Attributes:
        name: Name of the run's folder.
        model: Model that the run started from.
        settings: The run's settings by dotted key.
        written: Time of the last write to its completions.
    """

    name: str
    model: str
    settings: dict[str, object]
    written: datetime

    @classmethod
    def read(cls, run_dir: Path) -> RunFacts:
        """Read them from a run's folder.

        Raises:
            UserError: the folder is not a run, has no completions, or its config.yaml cannot be read.
        """
        written = rollouts_path(run_dir).stat().st_mtime
        settings = read_settings(run_dir)
        model = str(settings.get("model") or "unknown")
        return cls(run_dir.resolve().name, model, settings, datetime.fromtimestamp(int(written), UTC))


def prompt_messages(record: RolloutRecord) -> list[StoredMessage]:
    """The prompt as messages: a text is the user's; empty if it is not known."""
    if record.prompt is None:
        return []
    if isinstance(record.prompt, str):
        return [StoredMessage("user", record.prompt)]
    return [StoredMessage(_role(message.get("role", "")), message.get("content", "")) for message in record.prompt]


def answer_messages(record: RolloutRecord) -> list[StoredMessage]:
    """What follows the prompt.

    One completion is one message. All turns of a game, and of a conversation that an earlier version stored as one
    text, are one message that is not marked as sampled.
    """
    if record.is_single_turn:
        return [StoredMessage("assistant", record.text, is_sampled=True)]
    if not record.role and record.messages:
        sampled = [message["role"] == "assistant" for message in record.messages]
        is_known = sum(sampled) == record.turns  # else a reply begins the next completion
        return [
            StoredMessage(_role(message["role"]), message["content"], is_sampled=each and is_known)
            for message, each in zip(record.messages, sampled, strict=True)
        ]
    return [StoredMessage("assistant", record.text)]


def part_names(records: Iterable[RolloutRecord]) -> tuple[str, ...]:
    """Names of the parts of the scores, in the order in which they appear."""
    return tuple(dict.fromkeys(name for record in records for name in record.score.parts))


def metric_values(record: RolloutRecord, parts: Iterable[str]) -> dict[str, float]:
    """`solved`, `valid` and every part of a score; 0 for a part that was not computed, as of an invalid completion."""
    score = record.score
    return {"solved": float(score.solved), "valid": float(score.valid)} | {
        name: score.parts.get(name, 0.0) for name in parts
    }


def _role(role: str) -> str:
    return role if role in ROLES else "user"
