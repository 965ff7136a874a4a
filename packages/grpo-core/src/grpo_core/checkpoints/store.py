from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NoReturn

import psutil

from grpo_core.checkpoints.checksums import MAX_SERIAL, Checksums, check_complete, check_content, read_checksums, seal
from grpo_core.checkpoints.latest import LINK, point_latest, read_latest
from grpo_core.checkpoints.names import Step, checkpoint_name, parse_checkpoint, parse_hidden
from grpo_sdk.errors import CheckpointError, CheckpointWriteError
from grpo_sdk.files import disk_full_reason, fsync, hidden, human_size, put_in_place, remove, system_words, tree
from grpo_sdk.paths import existing_part
from grpo_sdk.records.run_folder import CHECKPOINTS

_CLOCK_SLACK_S = 60.0
"""Time by which a process may seem to have started after the folder it writes: clocks of servers differ."""

_LISTED = 10
"""So many steps are listed in a message; of more, the first and the last few."""

_WRITING: set[str] = set()
"""Partial folders that this process is filling now."""


@contextmanager
def marked_as_written(partial: Path) -> Iterator[None]:
    """Keep `partial` from `remove_leftovers` in this process, whose id a killed one may have had before.

    Raises:
        RuntimeError: this process is writing it already.
    """
    mark = os.path.abspath(partial)
    if mark in _WRITING:
        raise RuntimeError(f"this process is writing {partial} already.")
    _WRITING.add(mark)
    try:
        yield
    finally:
        _WRITING.discard(mark)


def remove_leftovers(folders: Iterable[Path]) -> list[Path]:
    """Remove what writers that no longer live left in `folders`, and undo a replacement that one of them began.

    Returns:
        The removed files and folders.

    Raises:
        CheckpointError: one of them cannot be removed.
        OSError: a folder cannot be read or written.
    """
    removed = []
    for path in [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]:
        name = parse_hidden(path.name)
        if name is None or _is_being_written(path, name.pid):
            continue
        target = path.with_name(name.target)
        if name.purpose == "replaced" and not os.path.lexists(target):
            os.rename(path, target)
            continue
        remove(path)
        if os.path.lexists(path):
            raise CheckpointError(f"cannot remove {path}, which a killed run left: remove it by hand.")
        removed.append(path)
    return removed


def _is_being_written(path: Path, pid: int) -> bool:
    """Return whether the process that made `path` still runs; another that was given its id since does not count."""
    if pid == os.getpid():
        return os.path.abspath(path) in _WRITING
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return bool(process.create_time() <= path.lstat().st_ctime + _CLOCK_SLACK_S)
    except (psutil.NoSuchProcess, FileNotFoundError):  # either has just ended
        return False
    except psutil.AccessDenied:
        return True


class CheckpointStore:
    """The checkpoints of one run, in its `training_state/`: written whole or not at all.

    A checkpoint is a folder `step_N` or `step_final` whose last written file is `checksums.json`. `step_latest`
    links to the one written last. One process writes at a time, and any number may read. Names that start with a dot
    exist only while a writer runs; `clean` removes those that a killed writer left.

    Args:
        run_dir: The run's folder. Nothing is made in it before the first `writing`.

    Attributes:
        run_dir: The run's folder.
        folder: `run_dir/training_state`.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = Path(run_dir)
        self.folder = self.run_dir / CHECKPOINTS

    def steps(self) -> list[int]:
        """Return the numbers of the complete checkpoints, ascending: every file there, with its size."""
        return sorted(step for step in self._complete() if step != "final")

    def newest_serial(self) -> int:
        """Return the serial number of the complete checkpoint that was written last, or 0."""
        return next((checksums.serial for _, checksums in self._complete().values()), 0)

    def path(self, which: Step | Literal["latest"]) -> Path:
        """Return the folder of a complete checkpoint; its content is not read, see `verify`.

        Args:
            which: A step, `"final"`, or `"latest"`: where `step_latest` points, and the one written last where there
                is no `step_latest` (killed before the first, or copied by a tool that drops links).

        Raises:
            CheckpointError: there is none; the message says which exist and which is near. Or it is not complete;
                the message names the file and the last good checkpoint.
        """
        folders = self.folders()
        step = self._latest(folders) if which == "latest" else which
        if step not in folders:
            raise CheckpointError(f"{self.run_dir} has no {checkpoint_name(step)}: {self._existing(near=step)}.")
        try:
            check_complete(folders[step])
        except CheckpointError as error:
            raise CheckpointError(f"{error} {self._instead()}") from None
        return folders[step]

    def verify(self, path: Path, *, only: Collection[str] | None = None) -> None:
        """Check the files of the checkpoint at `path` against their checksums.

        Args:
            path: Folder of the checkpoint.
            only: Names of the files whose content is read; None reads all.

        Raises:
            CheckpointError: a file is missing, changed, a link, or was added; or the checkpoint is of a newer
                version. The message names it, and the last good checkpoint to use instead.
        """
        try:
            check_content(path, only=only)
        except CheckpointError as error:
            raise CheckpointError(f"{error} {self._instead()}") from None

    def newest_good(self) -> Path | None:
        """Return the checkpoint written last whose every file verifies, or None."""
        for folder, _ in self._complete().values():
            with suppress(CheckpointError):
                check_content(folder)
                return folder
        return None

    def folders(self) -> dict[Step, Path]:
        """Return every folder with a checkpoint's name, complete or not; links are not followed."""
        present: dict[Step, Path] = {}
        replaced: dict[Step, Path] = {}
        try:
            with os.scandir(self.folder) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise CheckpointError(f"cannot read {self.folder}: {system_words(error)}.") from None
        for name in names:
            if (step := parse_checkpoint(name)) is not None:
                present[step] = self.folder / name
            old = parse_hidden(name)
            if old and old.purpose == "replaced" and (step := parse_checkpoint(old.target)) is not None:
                replaced[step] = self.folder / name
        # Between the two renames of a replacement, the old one is the checkpoint: see `put_in_place`.
        return {**replaced, **present}

    @contextmanager
    def writing(self, step: Step) -> Iterator[Path]:
        """Yield an empty folder that becomes the checkpoint of `step` when the block ends without an exception.

        Then every file is on the disk, listed in `checksums.json`, and `step_latest` points to it. A checkpoint of
        the same step is replaced. After an exception, or a kill at any moment, either all of that has happened to
        the folder or none of it has; only the link may still point to the one before.

        Raises:
            CheckpointError: the disk is full (the message says how much is needed and what was kept), the folder
                cannot be written, or what the block wrote cannot be a checkpoint.
        """
        target = self.folder / checkpoint_name(step)
        partial = hidden(target, "partial")
        with marked_as_written(partial):
            try:
                with self._explained():
                    self._make_empty(partial)
                yield partial
                with self._explained():
                    self._commit(partial, target)
            except BaseException as error:
                # Measured before it goes: the message tells how far it got.
                written = _size(partial)
                remove(partial)
                if reason := disk_full_reason(error):
                    self._refuse_full(target.name, reason, written, error)
                raise

    def go_back_to(self, checkpoint: Path) -> None:
        """Point `step_latest` to a checkpoint that the run goes on from; those written after it are another branch.

        Raises:
            CheckpointError: the folder cannot be written.
        """
        if read_latest(self.folder) == checkpoint.name or parse_checkpoint(checkpoint.name) is None:
            return
        try:
            point_latest(self.folder, checkpoint.name)
            fsync(self.folder)
        except OSError as error:
            raise CheckpointWriteError(f"cannot write to {self.folder}: {system_words(error)}.") from error

    def prune(self, *, keep_last: int | None, keep: Collection[int] = ()) -> list[int]:
        """Delete older checkpoints; damaged ones neither count nor go.

        Never deleted: the final one, the one written last, the one `step_latest` points to.

        Args:
            keep_last: How many of those written last stay; None keeps all.
            keep: Steps that stay in any case, as the best one.

        Returns:
            The deleted steps, ascending.

        Raises:
            ValueError: `keep_last` is negative.
            CheckpointError: the folder cannot be written.
        """
        if keep_last is None:
            return []
        if keep_last < 0:
            raise ValueError(f"keep_last={keep_last}: give a number of checkpoints, 0 or more.")
        complete = self._complete()
        stay = {*list(complete)[:1], *keep, parse_checkpoint(read_latest(self.folder) or "")}
        numbered = [step for step in complete if step != "final"]
        outdated = sorted(step for step in numbered[keep_last:] if step not in stay)
        # Renamed, then deleted: at no moment is a part of a checkpoint visible.
        hidden_paths = [hidden(self.folder / checkpoint_name(step), "deleted") for step in outdated]
        with self._explained():
            for step, path in zip(outdated, hidden_paths, strict=True):
                remove(path)
                os.rename(complete[step][0], path)
            if outdated:
                fsync(self.folder)
        for path in hidden_paths:
            remove(path)
        return outdated

    def clean(self) -> list[Path]:
        """Remove what writers that no longer live have left, and undo a replacement that one of them began.

        Returns:
            The removed files and folders.

        Raises:
            CheckpointError: one of them cannot be removed.
        """
        with self._explained():
            return remove_leftovers([self.run_dir, self.folder])

    def _latest(self, folders: Mapping[Step, Path]) -> Step:
        pointed = read_latest(self.folder)
        if pointed is None:
            complete = self._complete()
            if not complete:
                raise CheckpointError(f"{self.run_dir} cannot be resumed: {self._existing()}. {self._why_none()}")
            return next(iter(complete))
        step = parse_checkpoint(pointed)
        if step is None or step not in folders:
            raise CheckpointError(
                f"{self.folder / LINK} points to {pointed!r}, which is not a checkpoint of this run. {self._instead()}"
            )
        return step

    def _complete(self) -> dict[Step, tuple[Path, Checksums]]:
        """Return the checkpoints whose files are all there, the one written last first."""
        complete = {}
        for step, folder in self.folders().items():
            with suppress(CheckpointError):  # `path` and `verify` say why
                complete[step] = folder, check_complete(folder)
        return dict(sorted(complete.items(), key=lambda item: item[1][1].serial, reverse=True))

    def _existing(self, near: Step | None = None) -> str:
        complete = self._complete()
        steps = sorted(step for step in complete if step != "final")
        if not complete:
            return "it has no complete checkpoint"
        names = [str(step) for step in steps]
        if len(names) > _LISTED:
            names = [*names[:3], "…", *names[-3:]]
        text = "it has " + ", ".join([*names, *(["final"] if "final" in complete else [])])
        if isinstance(near, int) and len(steps) > 1:
            text += f"; the nearest is {min(steps, key=lambda step: (abs(step - near), step))}"
        return text

    def _why_none(self) -> str:
        """Say what is wrong with the first checkpoint, where none is complete."""
        for _, folder in sorted(self.folders().items(), key=str):
            try:
                check_complete(folder)
            except CheckpointError as error:
                return str(error)
        return "It stopped before it saved one."

    def _instead(self) -> str:
        good = self.newest_good()
        if good is None:
            return "No other checkpoint of this run is intact."
        old = parse_hidden(good.name)
        step = parse_checkpoint(old.target if old else good.name)
        return f"The last good one is {step}: use --from-step {step}."

    def _make_empty(self, partial: Path) -> None:
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            fsync(self.run_dir)
        remove(partial)  # of a killed writer which had the process id that we have now
        partial.mkdir()

    def _commit(self, partial: Path, target: Path) -> None:
        serials = [0]
        for folder in self.folders().values():
            try:
                serials.append(read_checksums(folder).serial)
            except CheckpointError:
                continue  # a damaged one is nobody's predecessor
        seal(partial, min(max(serials) + 1, MAX_SERIAL))
        aside = hidden(target, "replaced")
        put_in_place(partial, target, aside)
        try:
            fsync(self.folder)
            point_latest(self.folder, target.name)
            fsync(self.folder)
        finally:  # the replaced one, if any, stands at one of the two
            remove(partial)
            remove(aside)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what the system refuses into one line; a full disk is explained by `writing`."""
        try:
            yield
        except OSError as error:
            if disk_full_reason(error):
                raise
            raise CheckpointWriteError(f"cannot write to {self.folder}: {system_words(error)}.") from error

    def _refuse_full(self, name: str, reason: str, written: int, error: BaseException) -> NoReturn:
        sizes = [checksums.size for _, checksums in self._complete().values()]
        largest = max(sizes, default=0)
        least = f" It needs at least {human_size(written)}." if written else ""  # nothing is known of a first one
        needed = f" It needs about {human_size(largest)}." if largest > written else least
        next_step = f" Make room, then: grpo resume {self.run_dir}" if sizes else ""
        raise CheckpointWriteError(
            f"cannot save {name} to {self.folder}: {reason}.{needed} {human_size(written)} could be written, which are "
            f"removed again; {human_size(shutil.disk_usage(existing_part(self.folder)).free)} are free. "
            f"What the run saved before is untouched: {self._existing()}.{next_step}"
        ) from error


def _size(folder: Path) -> int:
    """Return the bytes in a folder, or 0 if it cannot be read."""
    try:
        return sum(status.st_size for status in tree(folder)[0].values())
    except (OSError, CheckpointError):
        return 0
