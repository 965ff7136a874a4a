"""The tracker protocol, and what trackers share: identifiers of runs, cells of tables, texts without secrets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from grpo_sdk.callbacks import Sample
from grpo_sdk.files import replace_file

if TYPE_CHECKING:
    from grpo_core.config import TrackingConfig

DEFAULT_PROJECT = "grpo"

Mode = Literal["online", "offline", "disabled"]
Cell = str | float | bool | None

COLUMNS = ("step", "task", "prompt", "completion", "score", "solved", "parts", "why")
"""Columns of the table of completions."""

OFFLINE = "offline-"
"""Start of the identifiers of runs in an archive that is uploaded later, as ClearML makes them."""

MAX_CELL_CHARS = 4000
"""Longest prompt or completion in a table: two pages; `grpo rollouts` shows all of it."""

SECRETS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "WANDB_API_KEY",
    "HF_TOKEN",
    "TRACKIO_WRITE_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "DATABRICKS_TOKEN",
    "COMET_API_KEY",
    "CLEARML_API_ACCESS_KEY",
    "CLEARML_API_SECRET_KEY",
    "SWANLAB_API_KEY",
)
"""Variables whose values are removed from error messages before they are logged."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """Description of a run that a tracker opens.

    Attributes:
        run_dir: Folder of the run.
        project: Name of the project.
        name: Name of the run; that of a branch has the name of the branch at its end.
        config: Dotted key -> value of every setting.
        mode: Whether the tracker may use the network.
        is_resumed: Whether the tracker has got steps of this run from an earlier process.
        branch: Name of the branch that a resume with `--from-step` or `--allow` began; empty for the run itself.
    """

    run_dir: Path
    project: str
    name: str
    config: Mapping[str, Any]
    mode: Mode
    is_resumed: bool
    branch: str = ""


class Tracker(Protocol):
    """Destination of metrics; created by a function of a `TrackedRun` that is registered under the kind `tracker`.

    One that sends in the background may have a method `last_step()`: the last step that its service has of a resumed
    run, so that later ones are sent again. It is closed in another thread.
    """

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Log finite numbers of a step."""

    def table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Log a table, whose text is untrusted."""

    def note(self, step: int, text: str) -> None:
        """Log a warning."""

    def close(self, *, failed: bool) -> None:
        """Flush and close."""


def project_of(settings: TrackingConfig) -> str:
    """Return the project that runs with these settings are logged to."""
    return settings.project or os.environ.get("WANDB_PROJECT") or DEFAULT_PROJECT


def row_of(step: int, sample: Sample) -> list[Cell]:
    """Return a completion as a row of the table; see `COLUMNS`."""
    score = sample.score
    parts = ", ".join(f"{name} {value:g}" for name, value in score.parts.items())
    texts = (shortened(plain(sample.prompt)), shortened(plain(sample.text)))
    return [step, sample.task, *texts, score.value, score.solved, parts, shortened(plain(score.why))]


def plain(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def shortened(text: str, limit: int = MAX_CELL_CHARS) -> str:
    """Shorten a text to `limit` characters by leaving out the middle."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 1]}…{text[-tail:]}"


def recall_id(run_dir: Path, tracker: str) -> str | None:
    """Read the identifier that a tracker's service gave the run when it started; None for a new run."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        known = _id_file(run_dir, tracker).read_text(encoding="ascii").strip()
        if known.removeprefix(OFFLINE).isalnum():
            return known
    return None


def continued_id(run_dir: Path, tracker: str) -> str | None:
    """Return the identifier of `recall_id`, unless it is of an offline archive, which only its own process writes."""
    known = recall_id(run_dir, tracker)
    return None if known is None or known.startswith(OFFLINE) else known


def remember_id(run_dir: Path, tracker: str, identifier: str) -> None:
    """Write the identifier of a run to `logs/`, so that a resumed run continues under it."""
    replace_file(_id_file(run_dir, tracker), identifier.encode("ascii"))


def forget_id(run_dir: Path, tracker: str) -> None:
    """Remove the identifier, so that the tracker begins a run of its own."""
    _id_file(run_dir, tracker).unlink(missing_ok=True)


def _id_file(run_dir: Path, tracker: str) -> Path:
    return run_dir / "logs" / f"{tracker}_run_id"


def without_secrets(text: str) -> str:
    """Replace the values of `SECRETS` in a text."""
    for name in SECRETS:
        if value := os.environ.get(name):
            text = text.replace(value, f"<{name}>")
    return text
