"""Checkpoints that are written, found, checked and deleted; test_checkpoints_kills.py is about what goes wrong."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from grpo_core.checkpoints import CHECKSUMS, FORMAT_VERSION, CheckpointError, CheckpointStore, Step, leftovers
from grpo_core.errors import ExitCode


@pytest.fixture(autouse=True, scope="module")
def _waits_for_no_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def save(store: CheckpointStore, *steps: Step, content: str = "") -> None:
    for step in steps:
        with store.writing(step) as folder:
            (folder / "model").mkdir()
            (folder / "model" / "weights").write_text(content or f"weights {step}")
            (folder / "state.json").write_text("{}")


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "run")


def names(store: CheckpointStore) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir())


# Writing


def test_a_checkpoint_has_its_files_their_checksums_and_the_link(store: CheckpointStore) -> None:
    assert not store.run_dir.exists()
    save(store, 1)
    save(store, 10)

    assert names(store) == ["step_1", "step_10", "step_latest"]
    assert os.readlink(store.folder / "step_latest") == "step_10"
    written = orjson.loads((store.folder / "step_10" / CHECKSUMS).read_bytes())
    # printf 'weights 10' | sha256sum; printf '{}' | sha256sum
    assert written == {
        "version": FORMAT_VERSION,
        "serial": 2,
        "files": {
            "model/weights": {
                "sha256": "6bcd9b86c50c7963c5fc82961152ebab3be3f972dc59b0e8ab7b3fc1330ae676",
                "size": 10,
            },
            "state.json": {"sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", "size": 2},
        },
    }


def test_steps_are_numbers_and_not_words(store: CheckpointStore) -> None:
    save(store, 10, 9, 100, 0, "final")
    for name in ("step_7", "step_07", "step_x", "step_-1", "step_1.partial", "step_٣"):
        (store.folder / name).mkdir()
    (store.folder / "step_8").touch()
    (store.folder / "step_6").symlink_to("step_9")

    assert store.steps() == [0, 9, 10, 100]


def test_a_folder_with_no_checkpoint_is_empty_and_not_an_error(store: CheckpointStore) -> None:
    assert store.steps() == [] and store.newest_good() is None and store.clean() == []
    assert store.prune(keep_last=1) == []
    assert not store.run_dir.exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError, OSError])
def test_an_exception_in_the_block_passes_and_changes_nothing(
    store: CheckpointStore, error: type[BaseException]
) -> None:
    save(store, 1, 2)
    with pytest.raises(error), store.writing(2) as folder:
        (folder / "model").write_text("half")
        raise error
    with pytest.raises(error), store.writing(3) as folder:
        (folder / "model").write_text("half")
        assert folder.name == f".step_3.partial-{os.getpid()}" and store.steps() == [1, 2]
        raise error

    assert names(store) == ["step_1", "step_2", "step_latest"]
    store.verify(store.path(2))


def test_an_existing_step_is_replaced(store: CheckpointStore) -> None:
    save(store, 1, 2)
    save(store, 1, content="again")

    assert (store.path(1) / "model" / "weights").read_text() == "again"
    assert store.path("latest").name == "step_1" and names(store) == ["step_1", "step_2", "step_latest"]


def test_whatever_stands_at_a_steps_name_gives_way(store: CheckpointStore) -> None:
    save(store, 1)
    (store.folder / "step_2").mkdir()
    (store.folder / "step_2" / "unfinished").touch()
    (store.folder / "step_3").touch()
    (store.folder / "step_4").symlink_to("step_1")
    save(store, 2, 3, 4)

    assert store.steps() == [1, 2, 3, 4]
    assert names(store) == ["step_1", "step_2", "step_3", "step_4", "step_latest"]


def test_a_link_in_what_is_written_is_refused(store: CheckpointStore) -> None:
    save(store, 1)
    with pytest.raises(CheckpointError, match="'model' is a link"), store.writing(2) as folder:
        (folder / "model").symlink_to(store.folder / "step_1" / "model")
    with pytest.raises(CheckpointError, match="is the name of our own list"), store.writing(2) as folder:
        (folder / CHECKSUMS).touch()

    assert names(store) == ["step_1", "step_latest"]


@pytest.mark.parametrize("step", [-1, "last", "../step_1", True, 10**18])
def test_no_other_step_can_be_written(store: CheckpointStore, step: Step) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint is called"), store.writing(step):
        pass


def test_one_step_is_not_written_twice_at_once(store: CheckpointStore) -> None:
    with store.writing(1) as folder:
        (folder / "a").touch()
        with pytest.raises(RuntimeError, match="is writing"), store.writing(1):
            pass

    assert (store.path(1) / "a").exists()


# The link


def test_latest_is_the_one_written_last_final_or_not(store: CheckpointStore) -> None:
    save(store, 1, 5, "final")
    assert store.path("latest") == store.path("final") == store.folder / "step_final"
    save(store, 4)  # the run went back to 1
    assert store.path("latest").name == os.readlink(store.folder / "step_latest") == "step_4"


def test_without_a_link_the_one_written_last_is_latest(store: CheckpointStore) -> None:
    save(store, 1, 5, "final", 4)
    (store.folder / "step_latest").unlink()

    assert store.path("latest").name == "step_4"


@pytest.mark.parametrize("target", ["step_1", "./step_1/", "{folder}/step_1"])
def test_a_link_that_someone_moved_is_followed(store: CheckpointStore, target: str) -> None:
    save(store, 1, 2)
    (store.folder / "step_latest").unlink()
    (store.folder / "step_latest").symlink_to(target.format(folder=store.folder))

    assert store.path("latest") == store.folder / "step_1"
    assert store.prune(keep_last=1) == []


@pytest.mark.parametrize("target", ["step_9", "/", "../../elsewhere/step_1", "nonsense"])
def test_a_link_to_anything_else_is_refused_with_the_last_good_one(store: CheckpointStore, target: str) -> None:
    save(store, 1, 2)
    shutil.copytree(store.folder / "step_1", store.run_dir.parent / "elsewhere" / "step_1")
    (store.folder / "step_latest").unlink()
    (store.folder / "step_latest").symlink_to(target)

    with pytest.raises(
        CheckpointError, match=r"not a checkpoint of this run\. The last good one is 2: use --from-step 2"
    ):
        store.path("latest")
    assert store.prune(keep_last=0) == [1]


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_text_file_stands_in_where_links_are_not_allowed(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
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


def test_a_folder_at_the_links_name_is_left_alone(store: CheckpointStore) -> None:
    save(store, 1, 2)
    (store.folder / "step_latest").unlink()
    shutil.copytree(store.folder / "step_2", store.folder / "step_latest")  # as `cp -rL` does
    assert store.path("latest").name == "step_2"
    save(store, 3)

    assert store.path("latest").name == "step_3"
    assert (store.folder / "step_latest" / "model" / "weights").read_text() == "weights 2"


# Finding


def test_an_unknown_step_names_what_exists_and_the_near_one(store: CheckpointStore) -> None:
    save(store, 1, 5, 10, "final")

    with pytest.raises(CheckpointError, match=r"run has no step_7: it has 1, 5, 10, final; the nearest is 5\.$"):
        store.path(7)
    with pytest.raises(CheckpointError, match="no checkpoint is called 'newest': give a step"):
        store.path("newest")  # type: ignore[arg-type]  # what a command line may pass on


def test_many_steps_are_listed_in_short(store: CheckpointStore) -> None:
    save(store, *range(12))

    with pytest.raises(CheckpointError, match=r"it has 0, 1, 2, …, 9, 10, 11; the nearest is 11\.$"):
        store.path(99)


def test_a_run_without_a_checkpoint_says_why(store: CheckpointStore) -> None:
    for which in ("latest", "final", 3):
        with pytest.raises(CheckpointError, match="it has no complete checkpoint"):
            store.path(which)  # type: ignore[arg-type]  # a loop variable is a str to the checker
    (store.folder / "step_5").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"checkpoint step_5 is not complete: its list of files is missing"):
        store.path("latest")


def test_errors_exit_with_2_and_pickle(store: CheckpointStore) -> None:
    with pytest.raises(CheckpointError) as caught:
        store.path(1)

    assert caught.value.exit_code == ExitCode.USER_MISTAKE and isinstance(caught.value, ValueError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# Deleting


@pytest.mark.parametrize(
    ("keep_last", "keep", "left"),
    [
        (None, (), [1, 2, 3, 4, 5]),
        (9, (), [1, 2, 3, 4, 5]),
        (2, (), [4, 5]),
        (2, (1, 77), [1, 4, 5]),
        (0, (), [5]),
    ],
)
def test_prune_keeps_the_last_and_the_best(
    store: CheckpointStore, keep_last: int | None, keep: tuple[int, ...], left: list[int]
) -> None:
    save(store, "final", 1, 2, 3, 4, 5)

    assert store.prune(keep_last=keep_last, keep=keep) == [step for step in range(1, 6) if step not in left]
    assert names(store) == [*(f"step_{step}" for step in left), "step_final", "step_latest"]


def test_prune_goes_by_when_it_was_written(store: CheckpointStore) -> None:
    save(store, 1, 2, 9, 10, 3, 4)  # the run went back to 2

    assert store.prune(keep_last=2) == [1, 2, 9, 10]


def test_prune_does_not_count_or_delete_damaged_ones(store: CheckpointStore) -> None:
    save(store, 1, 2, 3)
    (store.folder / "step_2" / "state.json").unlink()

    assert store.prune(keep_last=2) == []
    assert store.prune(keep_last=1) == [1]
    assert names(store) == ["step_2", "step_3", "step_latest"]
    with pytest.raises(ValueError, match="keep_last=-1"):
        store.prune(keep_last=-1)


# Cleaning


def test_clean_removes_what_the_dead_left_and_nothing_of_the_living(store: CheckpointStore) -> None:
    save(store, 1)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    zombie = subprocess.Popen([sys.executable, "-c", ""])
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
        expected = {f".step_2.partial-{pid}" for pid in (dead.pid, zombie.pid, os.getpid())} | {
            f".step_1.deleted-{dead.pid}",
            f".step_latest.partial-{dead.pid}",
            f".summary.json.partial-{dead.pid}",
        }
        assert {path.name for path in store.clean()} == expected
        with store.writing(3):
            assert store.clean() == []
    finally:
        living.communicate(b"\n")
        zombie.wait()
    assert store.steps() == [1, 3]
    assert [path.name for path in store.clean()] == [f".step_2.partial-{living.pid}"]


def test_clean_knows_a_process_that_was_given_a_dead_ones_number(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        left = store.folder / f".step_2.partial-{process.pid}"
        left.mkdir(parents=True)
        assert store.clean() == []
        # A folder's time of change cannot be set back: as if the process had started an hour later.
        monkeypatch.setattr(leftovers, "_CLOCK_SLACK_S", -3600.0)
        assert store.clean() == [left]
    finally:
        process.communicate(b"\n")


def test_a_leftover_with_this_process_number_does_not_stop_a_writer(store: CheckpointStore) -> None:
    left = store.folder / f".step_1.partial-{os.getpid()}"
    left.mkdir(parents=True)
    (left / "half").touch()
    save(store, 1)

    assert sorted(path.name for path in store.path(1).iterdir()) == [CHECKSUMS, "model", "state.json"]


# Folders that cannot be written


def test_a_folder_that_cannot_be_made_is_one_line(store: CheckpointStore) -> None:
    store.run_dir.mkdir()
    store.folder.touch()

    with pytest.raises(CheckpointError, match=r"cannot write to .*training_state: File exists"), store.writing(1):
        pytest.fail("the block must not run")
    assert store.folder.is_file()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_read_only_file_system_is_one_line(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    save(store, 1)

    def refuse(path: Path, *args: object) -> None:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(CheckpointError, match=f"cannot write to .*training_state: {os.strerror(code)}: .*step_2"):
        save(store, 2)
    monkeypatch.setattr(os, "rename", refuse)
    (store.folder / "step_latest").unlink()
    with pytest.raises(CheckpointError, match=f"cannot write to .*{os.strerror(code)}"):
        save(store, 1)
        store.prune(keep_last=0)
    assert store.steps() == [1]


def test_a_read_only_folder_is_one_line(store: CheckpointStore) -> None:
    save(store, 1, 2)
    store.folder.chmod(0o555)
    if os.access(store.folder, os.W_OK):
        pytest.skip("permissions do not bind this user")
    try:
        for act in (lambda: save(store, 3), lambda: store.prune(keep_last=1)):
            with pytest.raises(CheckpointError, match=r"cannot write to .*: Permission denied"):
                act()
        assert store.steps() == [1, 2]
    finally:
        store.folder.chmod(0o755)
