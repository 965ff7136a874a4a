"""The folder of a model that is being fine-tuned: written now and then, whole or not at all."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from grpo_core.checkpoints.reservation import TOKENIZER_BYTES, reserved_space
from grpo_core.policy.policy import Policy
from grpo_core.profiles.recommended import RECORD
from grpo_sdk.errors import UserError
from grpo_sdk.files import disk_full_reason, write_json, written_whole

SAVE_AFTER_S = 600.0
"""Time between two saves, unless steps are given: what a kill or an outage costs at most."""


class ModelFolder:
    """Receives a model and the record of its training; room for the next one is held on the disk.

    Args:
        folder: The folder. A new one is replaced whole. In one that was there before, which may be a mounted disk or
            the working folder, the files are replaced one by one, the record last.
        policy: The model that is trained, and its tokenizer.
        size: Bytes of the weights that are written at the end.
        save_every: Optimizer steps between two saves; None saves after `SAVE_AFTER_S`.
        resources: Gives the room back at the end.
        warn: Receives a warning where the model so far cannot be written.

    Raises:
        UserError: there is no room for the model.
    """

    def __init__(
        self,
        folder: Path,
        policy: Policy,
        size: int,
        save_every: int | None,
        resources: ExitStack,
        warn: Callable[[str], None],
    ) -> None:
        self.path, self._is_new = folder, not folder.exists()
        self._policy, self._save_every, self._warn = policy, save_every, warn
        self._size = size + TOKENIZER_BYTES * len(policy.tokenizer)
        self._room = resources.enter_context(ExitStack())
        self._saved = time.monotonic()
        self._hold_room()

    def after_step(self, step: int, record: Callable[[], Mapping[str, Any]]) -> None:
        """Write the model so far where a save is due.

        Args:
            step: Optimizer steps done.
            record: Gives what is written beside it.
        """
        if self._save_every is None:
            is_due = time.monotonic() >= self._saved + SAVE_AFTER_S
        else:
            is_due = step % self._save_every == 0
        if not is_due:
            return
        try:
            self.write(record())
            self._hold_room()
        except Exception as error:  # safetensors and the system each raise their own for a full disk
            if not (isinstance(error, UserError) or disk_full_reason(error)):
                raise
            self._warn(f"{disk_full_reason(error) or error} The training goes on; what {self.path} has, stays.")

    def write(self, record: Mapping[str, Any]) -> None:
        """Write the model of this moment and a record of how it was made; both replace earlier ones.

        Raises:
            OSError: they cannot be written.
        """
        self._room.close()
        if self._is_new:
            with written_whole(self.path) as partial:
                self._fill(partial, record)
        else:
            with tempfile.TemporaryDirectory(dir=self.path, prefix=".partial-") as scratch:
                self._fill(Path(scratch), record)
                for file in sorted(Path(scratch).iterdir(), key=lambda file: file.name == RECORD):
                    os.replace(file, self.path / file.name)
        self._saved = time.monotonic()

    def _fill(self, folder: Path, record: Mapping[str, Any]) -> None:
        self._policy.model.save_pretrained(folder)
        self._policy.tokenizer.save_pretrained(folder)
        write_record(folder, record)

    def _hold_room(self) -> None:
        self._room.enter_context(reserved_space(self.path, self._size, "the model"))


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write how a model was made beside it."""
    write_json(folder / RECORD, record, null_for_nan=True)
