from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from grpo_core.checkpoints.checksums import Checksums, check_complete, check_content
from grpo_core.checkpoints.latest import LINK, read_latest
from grpo_core.checkpoints.names import Step, checkpoint_name, parse_checkpoint, parse_hidden
from grpo_sdk.errors import CheckpointError
from grpo_sdk.files import system_words
from grpo_sdk.records.run_folder import CHECKPOINTS

_LISTED = 10
"""So many steps are listed in a message; of more, the first and the last few."""


class CheckpointReader:
    """Finds and checks the checkpoints of one run, in its `training_state/`; any number of processes may read.

    A checkpoint is a folder `step_N` or `step_final` whose last written file is `checksums.json`. `step_latest`
    links to the one written last.

    Args:
        run_dir: The run's folder.

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
