"""Checkpoints that are written, found, checked and deleted; test_kills.py is about what goes wrong meanwhile."""

import errno
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from checkpoint_writers import save

from grpo_core.checkpoints import CHECKSUMS, FORMAT_VERSION, CheckpointError, CheckpointStore
from grpo_sdk.errors import ExitCode


def names(store: CheckpointStore) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir())


def relink(store: CheckpointStore, target: str) -> None:
    (store.folder / "step_latest").unlink()
    (store.folder / "step_latest").symlink_to(target)


# Writing


def test_a_checkpoint_has_its_files_their_checksums_and_the_link(store: CheckpointStore) -> None:
    assert not store.run_dir.exists()
    assert store.steps() == store.clean() == store.prune(keep_last=1) == [] and store.newest_good() is None
    assert not store.run_dir.exists()
    save(store, 1, 10)

    assert names(store) == ["step_1", "step_10", "step_latest"]
    assert os.readlink(store.folder / "step_latest") == "step_10"
    written = orjson.loads((store.folder / "step_10" / CHECKSUMS).read_bytes())
    # printf '10%.0s' {1..100} | sha256sum; printf 10 | sha256sum
    weights = "122614aeb876a6ec274a05d46de37b8707f3390b40d1a4f1ed07813261a7f339"
    state = "4a44dc15364204a80fe80e9039455cc1608281820fe2b24f1e5233ade6af1dd5"
    files = {"model/weights": {"sha256": weights, "size": 200}, "state.json": {"sha256": state, "size": 2}}
    assert written == {"version": FORMAT_VERSION, "serial": 2, "files": files}


def test_steps_are_numbers_and_not_words(store: CheckpointStore) -> None:
    save(store, 10, 9, 100, 0, "final")
    for name in ("step_7", "step_07", "step_x", "step_-1", "step_1.partial", "step_٣"):
        (store.folder / name).mkdir()
    (store.folder / "step_8").touch()
    (store.folder / "step_6").symlink_to("step_9")

    assert store.steps() == [0, 9, 10, 100]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_an_exception_in_the_block_changes_nothing(store: CheckpointStore, error: type[BaseException]) -> None:
    save(store, 1, 2)
    for step in (2, 3):
        with pytest.raises(error), store.writing(step) as folder:
            (folder / "model").write_text("half")
            assert folder.name == f".step_{step}.partial-{os.getpid()}" and store.steps() == [1, 2]
            raise error

    assert names(store) == ["step_1", "step_2", "step_latest"]
    store.verify(store.path(2))


def test_whatever_stands_at_a_steps_name_gives_way(store: CheckpointStore) -> None:
    save(store, 1)
    (store.folder / "step_2").mkdir()
    (store.folder / "step_2" / "unfinished").touch()
    (store.folder / "step_3").touch()
    (store.folder / "step_4").symlink_to("step_1")
    save(store, 2, 3, 4)
    save(store, 1, content="again")

    assert names(store) == ["step_1", "step_2", "step_3", "step_4", "step_latest"] and len(store.steps()) == 4
    assert store.path("latest") == store.path(1) and (store.path(1) / "state.json").read_text() == "again"


def test_what_cannot_be_written_is_refused(store: CheckpointStore) -> None:
    save(store, 1)
    with pytest.raises(CheckpointError, match="'model' is a link"), store.writing(2) as folder:
        (folder / "model").symlink_to(store.folder / "step_1" / "model")
    with pytest.raises(CheckpointError, match="is the name of our own list"), store.writing(2) as folder:
        (folder / CHECKSUMS).touch()
    for step in (-1, "last", "../step_1", True, 10**18):
        with pytest.raises(CheckpointError, match="no checkpoint is called"), store.writing(step):  # type: ignore[arg-type]
            pytest.fail("the block must not run")
    with store.writing(3) as folder, pytest.raises(RuntimeError, match="is writing"), store.writing(3):
        pytest.fail("one step is not written twice at once")

    assert names(store) == ["step_1", "step_3", "step_latest"]


# The link


def test_latest_is_the_one_written_last_final_or_not_with_a_link_or_without(store: CheckpointStore) -> None:
    save(store, 1, 5, "final")
    assert store.path("latest") == store.path("final") == store.folder / "step_final"
    save(store, 4)  # the run went back to 1
    assert store.path("latest").name == os.readlink(store.folder / "step_latest") == "step_4"
    (store.folder / "step_latest").unlink()
    assert store.path("latest").name == "step_4"


@pytest.mark.parametrize("target", ["step_1", "./step_1/", "{folder}/step_1"])
def test_a_link_that_someone_moved_is_followed(store: CheckpointStore, target: str) -> None:
    save(store, 1, 2)
    relink(store, target.format(folder=store.folder))

    assert store.path("latest") == store.folder / "step_1"
    assert store.prune(keep_last=1) == []


@pytest.mark.parametrize("target", ["step_9", "/", "../../elsewhere/step_1", "nonsense"])
def test_a_link_to_anything_else_is_refused_with_the_last_good_one(store: CheckpointStore, target: str) -> None:
    save(store, 1, 2)
    shutil.copytree(store.folder / "step_1", store.run_dir.parent / "elsewhere" / "step_1")
    relink(store, target)

    with pytest.raises(CheckpointError, match=r"not a checkpoint of this run.* last good one is 2: use --from-step 2"):
        store.path("latest")
    assert store.prune(keep_last=0) == [1]


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_text_file_stands_in_for_a_link(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    save(store, 1, 5)
    with monkeypatch.context() as patch:
        patch.setattr(os, "symlink", refuse)
        save(store, 4)
        assert names(store) == ["step_1", "step_4", "step_5", "step_latest.txt"]
        assert (store.folder / "step_latest.txt").read_text() == "step_4\n"
        assert store.path("latest").name == "step_4"
    (store.folder / "step_latest.txt").write_text("step_1")
    assert store.path("latest").name == "step_1"
    save(store, 6)
    assert names(store) == ["step_1", "step_4", "step_5", "step_6", "step_latest"]


# Finding


@pytest.mark.parametrize(("saved", "which", "message"), [
    ([1, 5, 10, "final"], 7, r"run has no step_7: it has 1, 5, 10, final; the nearest is 5\.$"),
    ([1], "newest", "no checkpoint is called 'newest': give a step"),
    (range(12), 99, r"it has 0, 1, 2, …, 9, 10, 11; the nearest is 11\.$"),
    ([], "latest", "it has no complete checkpoint"),
    ([], "final", "it has no complete checkpoint"),
    ([], 3, "it has no complete checkpoint"),
])  # fmt: skip
def test_an_unknown_step_names_those_there_are(store: CheckpointStore, saved: Any, which: Any, message: str) -> None:
    save(store, *saved)
    with pytest.raises(CheckpointError, match=message) as caught:
        store.path(which)
    assert caught.value.exit_code == ExitCode.USER_MISTAKE and isinstance(caught.value, ValueError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_run_without_a_complete_checkpoint_says_why(store: CheckpointStore) -> None:
    (store.folder / "step_5").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"checkpoint step_5 is not complete: its list of files is missing"):
        store.path("latest")


# Deleting


@pytest.mark.parametrize(("written", "keep_last", "keep", "left"), [
    ([1, 2, 3, 4, 5], None, (), [1, 2, 3, 4, 5]),
    ([1, 2, 3, 4, 5], 9, (), [1, 2, 3, 4, 5]),
    ([1, 2, 3, 4, 5], 2, (), [4, 5]),
    ([1, 2, 3, 4, 5], 2, (1, 77), [1, 4, 5]),
    ([1, 2, 3, 4, 5], 0, (), [5]),
    ([1, 2, 8, 9, 3, 4], 2, (), [3, 4]),  # the run went back to 2
])  # fmt: skip
def test_prune_keeps_those_written_last_and_the_best(
    store: CheckpointStore, written: list[int], keep_last: int | None, keep: tuple[int, ...], left: list[int]
) -> None:
    save(store, "final", *written)

    assert store.prune(keep_last=keep_last, keep=keep) == sorted({*written} - {*left})
    assert names(store) == [*(f"step_{step}" for step in left), "step_final", "step_latest"]


def test_prune_does_not_count_or_delete_damaged_ones(store: CheckpointStore) -> None:
    save(store, 1, 2, 3)
    (store.folder / "step_2" / "state.json").unlink()

    assert store.prune(keep_last=2) == []
    assert store.prune(keep_last=1) == [1]
    assert names(store) == ["step_2", "step_3", "step_latest"]
    with pytest.raises(ValueError, match="keep_last=-1"):
        store.prune(keep_last=-1)


# Cleaning


def test_clean_removes_what_the_dead_left_alone(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    save(store, 1)
    dead, zombie = (subprocess.Popen(["true"]) for _ in range(2))
    dead.wait()
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the list of processes
    living = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        for pid in (dead.pid, zombie.pid, living.pid, os.getpid()):
            (store.folder / f".step_2.partial-{pid}").mkdir()
        (store.folder / f".step_1.deleted-{dead.pid}").mkdir()
        (store.folder / f".step_latest.partial-{dead.pid}").symlink_to("step_1")
        (store.run_dir / f".summary.json.partial-{dead.pid}").touch()
        (store.folder / ".step_2.partial-x").touch()
        # This process's number, but not its work: a killed writer had the number before.
        left = {f".step_2.partial-{pid}" for pid in (dead.pid, zombie.pid, os.getpid())}
        left |= {f"{name}-{dead.pid}" for name in (".step_1.deleted", ".step_latest.partial", ".summary.json.partial")}
        assert {path.name for path in store.clean()} == left
        with store.writing(3):
            assert store.clean() == []
        # A folder's time of change cannot be set back: as if the process had started an hour later.
        monkeypatch.setattr("grpo_core.checkpoints.store._CLOCK_SLACK_S", -3600.0)
        assert [path.name for path in store.clean()] == [f".step_2.partial-{living.pid}"]
    finally:
        living.communicate(b"\n")
        zombie.wait()
    assert store.steps() == [1, 3]


def test_a_leftover_with_this_process_number_does_not_stop_a_writer(store: CheckpointStore) -> None:
    left = store.folder / f".step_1.partial-{os.getpid()}"
    left.mkdir(parents=True)
    (left / "half").touch()
    save(store, 1)

    assert sorted(path.name for path in store.path(1).iterdir()) == [CHECKSUMS, "model", "state.json"]


# Folders that cannot be written


def test_a_read_only_file_system_is_one_line(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *args: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    save(store, 1)
    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(CheckpointError, match=r"cannot write to .*training_state: Read-only .*: .*step_2"):
        save(store, 2)
    assert store.steps() == [1]
