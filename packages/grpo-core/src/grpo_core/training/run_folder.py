"""The folder of a run: configuration, logs, the trained model, the summary."""

from __future__ import annotations

import fcntl
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import orjson

from grpo_core.checkpoints import CheckpointStore, write_json
from grpo_core.policy.ranks import Ranks
from grpo_core.rollouts.rollout import Rollout
from grpo_core.tracking.rollout_lines import BatchOrigin, rollout_lines
from grpo_sdk.errors import UserError
from grpo_sdk.files import replace_file
from grpo_sdk.launched import announce_folder
from grpo_sdk.records.jsonl import open_log, read_lines, with_step

SEEN_S = 15.0
"""Time after which a folder made on one machine is seen on the others; NFS remembers for seconds what was missing."""

_STEP = re.compile(rb"step=([0-9]{1,18}) ")

RUN_FORMAT_VERSION = 1
"""Version of the files in a run's folder; changes are announced a minor version ahead."""


class RunFolder:
    """Writes the files of a run.

    Args:
        path: The run's folder.

    Attributes:
        path: The run's folder.
        logs: Its folder of logs.
        checkpoints: Its checkpoints.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.logs, self.checkpoints = path, path / "logs", CheckpointStore(path)
        self.logs.mkdir(exist_ok=True)
        # Unbuffered: a run that is killed leaves every step that it finished.
        self._train_log = open_log(self.logs / "train_log.jsonl")
        self._text_log = open_log(self.logs / "train.log")
        self._rollouts = open_log(self.logs / "rollouts.jsonl", buffering=-1)
        self._evaluations = open_log(self.logs / "evaluations.jsonl")

    @classmethod
    def reopen(cls, path: Path, steps: int, *, evaluates_end: bool = False) -> RunFolder:
        """Go on in a run's own folder: what was logged after the checkpoint is taken back, and logged again.

        Damaged lines before it are named and stay where they are.

        Args:
            path: The run's folder.
            steps: Steps whose metrics and rollouts stay.
            evaluates_end: Whether the evaluation of the end is made again, after the last of these steps.
        """
        _cut_after(path / "logs" / "train_log.jsonl", _step_of_json, steps)
        _cut_after(path / "logs" / "train.log", _step_of_text, steps)
        _cut_after(path / "logs" / "rollouts.jsonl", _step_of_json, steps)
        again = steps if evaluates_end else None
        _cut_after(path / "logs" / "evaluations.jsonl", partial(_step_of_json, again=again), steps)
        return cls(path)

    def write_config(self, text: str, notes: Iterable[str] = ()) -> list[str]:
        """Save the resolved configuration.

        Args:
            text: The configuration as YAML.
            notes: Comments above it; a resumed run keeps those of its earlier starts.

        Returns:
            All the comments.
        """
        path = self.path / "config.yaml"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [line.removeprefix("# ") for line in takewhile(lambda line: line.startswith("# "), lines)]
        every = list(dict.fromkeys([*kept, *(" ".join(note.split()) for note in notes)]))
        replace_file(path, ("".join(f"# {note}\n" for note in every) + text).encode())
        return every

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one step to `train_log.jsonl` and one greppable line to `train.log`."""
        # JSON has no NaN: a number that does not exist is null.
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._train_log.write(orjson.dumps({"step": step, **finite}) + b"\n")
        line = " ".join(f"{name}={value:.6g}" for name, value in metrics.items())
        self._text_log.write(f"step={step} {line}\n".encode())

    def log_rollouts(
        self, step: int, rollouts: Sequence[Rollout], identities: Mapping[str, str], origin: BatchOrigin
    ) -> None:
        """Append the step's completions with their rows, score trees and origin to `rollouts.jsonl`."""
        self._rollouts.writelines(rollout_lines(step, rollouts, identities, origin))
        self._rollouts.flush()

    def log_evaluation(self, step: int, phase: str, metrics: Mapping[str, float]) -> None:
        """Append a held-out evaluation to `evaluations.jsonl`."""
        self._evaluations.write(orjson.dumps({"step": step, "phase": phase, **metrics}) + b"\n")

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write `summary.json`, whole."""
        write_json(self.path / "summary.json", summary, null_for_nan=True)

    def close(self) -> None:
        """Close the logs; each line was written when it was logged, or its failure raised then."""
        for file in (self._train_log, self._text_log, self._rollouts, self._evaluations):
            with suppress(OSError):
                file.close()


class SilentFolder(RunFolder):
    """A run's folder for ranks that do not write.

    Args:
        path: The run's folder.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.logs, self.checkpoints = path, path / "logs", CheckpointStore(path)

    def _ignore(self, *args: Any, **kwargs: Any) -> Any:
        """Do nothing: the first rank writes."""

    write_config = log_step = log_rollouts = log_evaluation = write_summary = close = _ignore


def shared_folder(output_dir: Path, ranks: Ranks) -> RunFolder:
    """A new folder, which the first rank makes and names to the others.

    Raises:
        UserError: another rank does not see it.
    """
    if ranks.is_main:
        folder = RunFolder(new_folder(output_dir))
        ranks.from_main(os.fsencode(folder.path.absolute()))
    else:
        folder = SilentFolder(Path(os.fsdecode(ranks.from_main(b""))))
    check_shared(folder.path, ranks)
    return folder


def check_shared(path: Path, ranks: Ranks) -> None:
    """Check that every rank sees the run's folder, and tell it the program that has started them.

    Raises:
        UserError: one does not see it.
    """
    host = ranks.from_main(socket.gethostname().encode()).decode()

    def check() -> bytes:
        until = time.monotonic() + SEEN_S
        while not path.is_dir():
            if time.monotonic() > until:
                raise UserError(
                    f"rank {ranks.rank} on {socket.gethostname()} does not see {path}, the run's folder, which rank 0 "
                    f"has on {host}. Choose an output_dir on a file system that all machines of the run share."
                )
            time.sleep(0.5)
        return b""

    ranks.together(check)
    if ranks.local_rank == 0:
        announce_folder(path)


def new_folder(output_dir: Path) -> Path:
    """Make `run_YYYY-MM-DD_HH-MM-SS`, with a suffix if that name is taken, here or in a folder beside `output_dir`.

    Raises:
        UserError: it cannot be made.
    """
    name = datetime.now().strftime("run_%Y-%m-%d_%H-%M-%S")
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        with _locked(output_dir.absolute().parent) as beside:
            # Runs of several folders that lie side by side, as a sweep's, share the folder of their evaluations.
            folders = [output_dir, *_folders_in(beside)]
            for suffix in range(1, 10_000):
                chosen = name if suffix == 1 else f"{name}_{suffix}"
                if not any(os.path.lexists(folder / chosen) for folder in folders):
                    with suppress(FileExistsError):  # another run was faster, where there are no locks
                        (output_dir / chosen).mkdir()
                        return output_dir / chosen
    except OSError as error:
        raise UserError(f"output_dir={output_dir}: cannot make a run folder there: {error}") from None
    raise UserError(f"output_dir={output_dir}: {name} and every suffix of it is taken.")


@contextmanager
def _locked(folder: Path) -> Iterator[Path]:
    """Let one run at a time choose its name, where the file system has locks."""
    with ExitStack() as resources:
        with suppress(OSError):  # a folder that may not be read, or a file system without locks
            opened = os.open(folder, os.O_RDONLY)
            resources.callback(os.close, opened)
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield folder


def _folders_in(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if os.path.isdir(path)]
    except OSError:  # a folder that may not be listed
        return []


def _step_of_json(line: bytes, *, again: int | None = None) -> float:
    """The step of a record; infinity for the final evaluation after the step `again`, which is made again."""
    record = with_step(line)
    is_again = record["step"] == again and record.get("phase") == "final"
    return math.inf if is_again else int(record["step"])


def _step_of_text(line: bytes) -> float:
    if (step := _STEP.match(line)) is None:
        raise ValueError("it begins with no step")
    return int(step[1])


def _cut_after(path: Path, step_of: Callable[[bytes], float], last: int) -> None:
    """Cut a log before its first line of a later step."""
    end = next((start for start, step in read_lines(path, step_of) if step > last), None)
    if end is not None:
        os.truncate(path, end)
