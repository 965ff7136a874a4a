"""The checkpoints of a run: when they are written, and the room that the first one has on the disk."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from safetensors.torch import save_file

from grpo_core.checkpoints import CheckpointStore, read_json, write_json
from grpo_core.checkpoints.names import Step, checkpoint_name
from grpo_core.checkpoints.reservation import TOKENIZER_BYTES, reserved_space
from grpo_core.policy.reference import REFERENCE_DIR
from grpo_core.training.batches import batch_to_json
from grpo_core.training.random_state import gathered_random_state
from grpo_core.training.state import AHEAD_FILE, OPTIMIZER_FILE, RNG_FILE, RunState, optimizer_tensors
from grpo_core.training.stored_run import INFO_FILE, STATE_FILE
from grpo_sdk.errors import CheckpointWriteError

SMALL_FILES = 2**20
"""Room for the files of a checkpoint that hold no weights."""

LARGEST_SHARE = 0.02
"""Share of the time that temporary checkpoints may take; large ones are written less often."""


class Checkpoints:
    """Writes the checkpoints of a run: everything that `grpo resume` needs, whole or not at all.

    Without `trainer.save_every` a temporary one is written every `trainer.save_minutes`, in place of the one before;
    that of the run's end replaces it, too.

    Args:
        store: The run's folder of checkpoints.
        state: The run; every rank takes part, the first one writes.
        resources: Gives the room on the disk back that was never used.
        warn: Receives a warning where a temporary checkpoint cannot be written.
    """

    def __init__(
        self, store: CheckpointStore, state: RunState, resources: ExitStack, warn: Callable[[str], None]
    ) -> None:
        self._store, self._state, self._warn = store, state, warn
        self._saved: tuple[str, int] | None = None
        self._temporary: int | None = None
        self._room = resources.enter_context(ExitStack())
        self._wait(0.0)

    def start(self, resumed_from: Path | None) -> None:
        """Hold room on the disk for the first checkpoint, until it is written.

        Args:
            resumed_from: A checkpoint that the run goes on from, which need not be written again.

        Raises:
            UserError: there is not so much room: what the run learns would be lost at its end.
        """
        if resumed_from is not None:
            self._saved = resumed_from.name, self._state.step
            if read_json(resumed_from / INFO_FILE, "training info").get("is_temporary"):
                self._temporary = self._state.step
        elif self._state.ranks.is_main:
            self._room.enter_context(reserved_space(self._store.folder, self._size(), "the first checkpoint"))

    def after(self, step: int) -> None:
        """Save after a step that is due, or that is the best so far."""
        config, best = self._state.setup.config.trainer, self._state.evaluations.best
        is_best = config.keep_best and best.step == step
        is_due = config.save_every is not None and step % config.save_every == 0
        has_waited = self._has_waited()
        if self._saved == (checkpoint_name(step), step):
            return
        if is_best or is_due:
            self.save(step)
        elif has_waited:
            self._save_temporary(step)

    def end(self) -> None:
        """Save the trained model, unless the run was resumed from it and trained no further."""
        if self._saved != (checkpoint_name("final"), self._state.step):
            self.save("final")

    def save(self, which: int | Literal["final"]) -> None:
        """Write a checkpoint of this moment."""
        self._room.close()
        self._write(which)
        if self._state.ranks.is_main:
            best = self._state.evaluations.best.step
            self._store.prune(keep_last=self._state.setup.config.trainer.keep_last, keep=[] if best is None else [best])
        self._replace_temporary(which)

    def _save_temporary(self, step: int) -> None:
        """Write a checkpoint in place of the last temporary one. Where the disk is full, the run goes on."""
        start = time.monotonic()
        try:
            self._write(step, is_temporary=True)
        except CheckpointWriteError as error:
            self._warn(f"{error} The run goes on, and tries no other before its end.")
            self._wait(math.inf)
        else:
            self._replace_temporary(step)
            self._temporary = step
            self._wait(time.monotonic() - start)

    def _write(self, which: int | Literal["final"], *, is_temporary: bool = False) -> None:
        run = self._state
        policy = run.setup.policy
        moved = None if run.setup.config.trainer.ref_model_sync_steps is None else policy.anchor
        (tensors, facts), weights = gathered_random_state(run.ranks), policy.weights()
        moments = optimizer_tensors(run.updater.optimizer.adam)
        reference = None if moved is None else moved.gathered_weights()
        self._saved = checkpoint_name(which), run.step
        if not run.ranks.is_main:
            return
        with self._store.writing(which) as folder:
            policy.save(folder / "model", weights)
            if moved is not None:
                moved.save(folder / REFERENCE_DIR, policy.source.name, reference)
            save_file(dict(moments), folder / OPTIMIZER_FILE)
            save_file(tensors, folder / RNG_FILE)
            write_json(folder / STATE_FILE, {**run.as_json(), "random": facts})
            write_json(folder / INFO_FILE, {**run.info(), "is_temporary": is_temporary})
            if run.batches.ahead is not None:
                write_json(folder / AHEAD_FILE, batch_to_json(run.batches.ahead))

    def _replace_temporary(self, which: Step) -> None:
        """Delete the temporary checkpoint, of which another has taken the place."""
        old, self._temporary = self._temporary, None
        if old is None or old == which or not self._state.ranks.is_main:
            return
        self._store.prune(keep_last=0, keep=[step for step in self._store.steps() if step not in (old, "final")])

    def _has_waited(self) -> bool:
        """Whether it is time for a temporary checkpoint; the first rank decides."""
        trainer = self._state.setup.config.trainer
        if trainer.save_every is not None or trainer.save_minutes is None:
            return False
        is_time = time.monotonic() >= self._since + max(60 * trainer.save_minutes, self._least_s)
        return bool(self._state.ranks.from_main(b"now" if is_time else b""))

    def _wait(self, taken: float) -> None:
        """Count the time until the next one from now on, long enough for what the last one has taken, in seconds."""
        self._since, self._least_s = time.monotonic(), taken / LARGEST_SHARE

    def _size(self) -> int:
        """Bytes of a checkpoint, about: what is trained and its moments, a reference that moves, the tokenizer."""
        run = self._state
        trained = sum(each.numel() * each.element_size() for each in run.updater.optimizer.parameters)
        copies = 3 if run.setup.config.trainer.ref_model_sync_steps is None else 4
        return copies * trained + TOKENIZER_BYTES * len(run.setup.policy.tokenizer) + SMALL_FILES
