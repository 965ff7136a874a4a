"""What is on the disk after a kill, or a full disk, at any moment."""

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import checkpoint_writers
import pytest
from checkpoint_writers import save

from grpo_core.checkpoints import CHECKSUMS, CheckpointError, CheckpointStore


@pytest.fixture(scope="module")
def ask() -> Iterator[Callable[[str], str]]:
    with subprocess.Popen(
        [sys.executable, checkpoint_writers.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def exchange(line: str) -> str:
            assert process.stdout
            print(line, file=process.stdin, flush=True)
            return process.stdout.readline().strip()

        yield exchange


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def check_survivor(store: CheckpointStore) -> None:
    """Everything listed verifies, the newest can be found, and what the killed writer left goes away."""
    for step in store.steps():
        store.verify(store.path(step))
    store.verify(store.path("latest"))
    store.clean()
    names = {path.name for path in store.folder.iterdir()} - {"step_latest"}
    # Nothing hidden is left, and nothing under a checkpoint's name that is not one.
    assert names - {"step_final"} == {f"step_{step}" for step in store.steps()}
    if (link := store.folder / "step_latest").is_symlink():
        store.verify(link.resolve(strict=True))


@pytest.mark.parametrize("swap", [True, False])
def test_a_kill_before_each_single_change_of_the_disk(
    tmp_path: Path, ask: Callable[[str], str], swap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a kill loses nothing that the kernel has
    save(CheckpointStore(tmp_path / "before"), 1, 2, content="old")
    seen = set()
    for number in range(1, 200):
        run = tmp_path / "run"
        shutil.copytree(tmp_path / "before", run, symlinks=True)
        answer = ask(f"{run} {number} {int(swap)}")
        store = CheckpointStore(run)
        steps = store.steps()
        contents = tuple((store.path(step) / "state.json").read_text() for step in steps)
        seen.add((*steps, *contents))

        link = store.folder / "step_latest"
        assert link.is_symlink()
        if swap:  # else it dangles between the two renames of a replacement
            store.verify(link.resolve(strict=True))
        # 2 is there before, while and after it is replaced; 1 goes only once 3 is there.
        assert steps in ([1, 2], [1, 2, 3], [2, 3], [3])
        check_survivor(store)
        assert set(store.steps()) == set(steps)
        save(store, 9)
        assert store.path("latest").name == "step_9"
        shutil.rmtree(run)
        if answer == "done":
            break
        assert answer == "killed"
    else:
        pytest.fail("the change never came to its end")
    # Replaced or not, added or not, pruned in part or not: the kills stood between all of these.
    assert seen >= {
        (1, 2, "old", "old"),
        (1, 2, "old", "new"),
        (1, 2, 3, "old", "new", "new"),
        (2, 3, "new", "new"),
        (3, "new"),
    }


@pytest.mark.parametrize("swap", [True, False])
def test_a_full_disk_at_each_call_changes_nothing_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: bool
) -> None:
    save(CheckpointStore(tmp_path / "before"), 1, 2, content="old")
    contents = []
    for number in range(1, 200):
        store = CheckpointStore(tmp_path / f"run_{number}")
        shutil.copytree(tmp_path / "before", store.run_dir, symlinks=True)
        failed = ""
        with monkeypatch.context() as patch:
            checkpoint_writers.before_call(number, full, patch.setattr, swap, checkpoint_writers.NEED_SPACE)
            try:
                save(store, 2, content="new")
            except CheckpointError as error:
                failed = str(error)
        left = {path.name for path in store.folder.iterdir() if path.name.startswith(".")}
        assert left == set()
        assert store.steps() == [1, 2]
        check_survivor(store)
        contents.append((store.path(2) / "state.json").read_text())
        if not failed:
            break
        assert re.search(r"No space left on device\. It needs (about 303|at least \d{3}) bytes", failed)  # 3 + 3 × 100
        assert "What the run saved before is untouched: it has 1, 2." in failed
    # Refused up to where the folder has its name; the folder's own fsync, the link and its fsync come after that.
    assert contents == ["old"] * contents.count("old") + ["new"] * contents.count("new")
    # mkdir, mkdir model/, fsync of two files, model/, checksums.json and the folder; then the swap, or two renames.
    assert contents.count("old") == 7 + (1 if swap else 2)


def test_all_is_on_the_disk_before_a_checkpoint_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def shown(path: str) -> str:
        return str(Path(path).relative_to(tmp_path)).replace(f"-{os.getpid()}", "")

    def recorded_fsync(descriptor: int) -> None:
        events.append(shown(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "rename", lambda old, new: (events.append(f"> {shown(new)}"), rename(old, new)))
    monkeypatch.setattr(os, "replace", lambda old, new: (events.append(f"> {shown(new)}"), replace(old, new)))
    save(CheckpointStore(tmp_path), 7)

    inside = "training_state/.step_7.partial"
    files = [f"{inside}/{name}" for name in ("state.json", "model/weights", "model", CHECKSUMS)]
    names = ["> training_state/step_7", "training_state", "> training_state/step_latest", "training_state"]
    assert events == [".", *files, inside, *names]
