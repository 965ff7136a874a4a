"""Checkpoints that are damaged, or that someone made to do harm."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from checkpoint_writers import save

from grpo_core.checkpoints import CHECKSUMS, FORMAT_VERSION, CheckpointError, CheckpointStore

SHA = "0" * 64


@pytest.fixture
def store(store: CheckpointStore) -> CheckpointStore:
    """A store with three steps."""
    save(store, 1, 2, 3)
    return store


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = orjson.loads((folder / CHECKSUMS).read_bytes())
    change(data)
    (folder / CHECKSUMS).write_bytes(orjson.dumps(data))


def link_to_the_same(folder: Path) -> None:
    (folder / "model" / "weights").rename(folder.parent / "weights")
    (folder / "model" / "weights").symlink_to(folder.parent / "weights")


def link_folder(folder: Path) -> None:
    (folder / "model").rename(folder.parent / "model")
    (folder / "model").symlink_to(folder.parent / "model", target_is_directory=True)


@pytest.mark.parametrize(("damage", "message"), [
    (lambda folder: (folder / "state.json").unlink(), "'state.json' is missing"),
    (lambda folder: shutil.rmtree(folder / "model"), "'model/weights' is missing"),
    (lambda folder: (folder / "state.json").write_text(""), "'state.json' has 0 bytes and had 1"),
    (lambda folder: (folder / "model/weights").write_text("X" * 100), "the content of 'model/weights' is not"),
    (lambda folder: (folder / "model/adapter.json").touch(), "'model/adapter.json' was not written with it"),
    (lambda folder: (folder / CHECKSUMS).unlink(), f"its list of files is missing: there is no .*{CHECKSUMS}"),
    (lambda folder: os.truncate(folder / CHECKSUMS, 60), f"list of files is damaged: .*{CHECKSUMS} is not JSON"),
    (link_to_the_same, "'model/weights' "),
    (link_folder, "'model' is a link"),
    (lambda folder: (folder / ".hidden").symlink_to("/etc/passwd"), "'.hidden' is a link"),
    (lambda folder: os.mkfifo(folder / "pipe"), "'pipe' is a pipe, a socket or a device"),
    (shutil.rmtree, "its list of files is missing"),
])  # fmt: skip
def test_a_damaged_checkpoint_names_the_file_and_the_last_good_one(
    store: CheckpointStore, damage: Callable[[Path], object], message: str
) -> None:
    damage(store.folder / "step_3")

    with pytest.raises(CheckpointError, match=rf"{message}.* The last good one is 2: use --from-step 2\.$"):
        store.verify(store.folder / "step_3")
    assert store.newest_good() == store.folder / "step_2"


def test_what_file_managers_and_downloads_leave_is_let_pass(store: CheckpointStore) -> None:
    (store.path(3) / ".DS_Store").touch()
    (store.path(3) / ".cache" / "huggingface").mkdir(parents=True)
    (store.path(3) / ".cache" / "huggingface" / "metadata").touch()

    store.verify(store.path(3))


def test_no_good_checkpoint_is_said_and_not_made_up(store: CheckpointStore) -> None:
    for step in store.steps():
        (store.path(step) / "model" / "weights").write_text("X" * 100)

    assert store.newest_good() is None
    with pytest.raises(CheckpointError, match=r"No other checkpoint of this run is intact\.$"):
        store.verify(store.path(3))


def test_a_newer_version_is_refused_with_the_reason(store: CheckpointStore) -> None:
    edit(store.folder / "step_3", lambda data: data.update(version=FORMAT_VERSION + 1, files=["another shape"]))

    for act in (lambda: store.path(3), lambda: store.verify(store.folder / "step_3"), lambda: store.path("latest")):
        with pytest.raises(CheckpointError, match=r"its format is 2, and this one reads formats up to 1\. Update"):
            act()
    assert store.steps() == [1, 2]
    assert store.prune(keep_last=1) == [1]
    assert (store.folder / "step_3").exists()


@pytest.mark.parametrize(
    "name",
    ["../../x", "/etc/passwd", "model/../../x", "a/./b", "", "a//b", "a/", "..", "a\\..\\b", "C:/x", "a\nb", "a\0b",
     "x" * 1025, CHECKSUMS],
)  # fmt: skip
def test_a_name_that_leaves_the_folder_is_refused(store: CheckpointStore, name: str) -> None:
    (store.run_dir.parent / "x").write_text("secret")
    edit(store.folder / "step_3", lambda data: data["files"].update({name: {"sha256": SHA, "size": 6}}))

    with pytest.raises(CheckpointError, match="is not a name that a file in a checkpoint can have") as caught:
        store.verify(store.folder / "step_3")
    assert len(str(caught.value)) < 600 and "\n" not in str(caught.value)
    assert store.steps() == [1, 2]


@pytest.mark.parametrize("name", ["a\nb", "a:b", "\udcff"])
def test_such_a_name_is_not_written_either(store: CheckpointStore, name: str) -> None:
    with pytest.raises(CheckpointError, match="is not a name"), store.writing(4) as folder:
        (folder / name).touch()
    assert store.steps() == [1, 2, 3]


@pytest.mark.parametrize("change", [
    *({"version": version} for version in (None, True, "1", 0, 1.5, [], {})),
    *({"serial": serial} for serial in (-1, 1.0, 10**18, None, True, "1\n", [])),
    *({"files": files} for files in (None, [], "\n", {"a": None}, {"a": []}, {"a": {"sha256": SHA}})),
    *({"files": {"a": {"sha256": SHA, "size": size}}} for size in (-1, True)),
    *({"files": {"a": {"sha256": sha, "size": 1}}} for sha in (SHA[1:], SHA + "\n", ["0"] * 64)),
])  # fmt: skip
def test_a_list_of_another_shape_is_damaged(store: CheckpointStore, change: dict[str, Any]) -> None:
    edit(store.folder / "step_3", lambda data: data.update(change))

    with pytest.raises(CheckpointError, match=r"^\S+checksums\.json is damaged: .+$"):
        store.path(3)


def test_a_hostile_serial_leaves_room_for_the_next(store: CheckpointStore) -> None:
    edit(store.folder / "step_1", lambda data: data.update(serial=10**12))
    with store.writing(4) as folder:
        (folder / "state.json").touch()

    store.verify(store.path(4))
    assert store.path("latest").name == "step_4"
