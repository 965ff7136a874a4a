"""Checkpoints that are damaged, or that someone made to do harm."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_core.checkpoints import CHECKSUMS, FORMAT_VERSION, CheckpointError, CheckpointStore
from grpo_core.checkpoints.checksums import read_checksums

SHA = "0" * 64


@pytest.fixture
def store(store: CheckpointStore) -> CheckpointStore:
    """A store with three steps."""
    for step in (1, 2, 3):
        with store.writing(step) as folder:
            (folder / "model").mkdir()
            (folder / "model" / "weights").write_text(f"weights {step}")
            (folder / "state.json").write_text("{}")
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
    (lambda folder: (folder / "state.json").write_text(""), "'state.json' has 0 bytes and had 2"),
    (lambda folder: (folder / "model/weights").write_text("weights X"), "the content of 'model/weights' is not"),
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
        (store.path(step) / "model" / "weights").write_text("weights X")

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
    *({"version": version} for version in (None, True, "1", 0)),
    *({"serial": serial} for serial in (-1, 1.0, 10**18)),
    *({"files": files} for files in (None, [], {"a": None}, {"a": {"sha256": SHA}})),
    *({"files": {"a": {"sha256": SHA, "size": size}}} for size in (-1, True)),
    *({"files": {"a": {"sha256": sha, "size": 1}}} for sha in (SHA[1:], SHA + "\n", ["0"] * 64)),
])  # fmt: skip
def test_a_list_of_another_shape_is_damaged(store: CheckpointStore, change: dict[str, Any]) -> None:
    edit(store.folder / "step_3", lambda data: data.update(change))

    with pytest.raises(CheckpointError, match=r"checksums\.json is damaged: "):
        store.path(3)


def test_a_hostile_serial_leaves_room_for_the_next(store: CheckpointStore) -> None:
    edit(store.folder / "step_1", lambda data: data.update(serial=10**12))
    with store.writing(4) as folder:
        (folder / "state.json").touch()

    store.verify(store.path(4))
    assert store.path("latest").name == "step_4"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=25, deadline=None)  # writes a file each time
@given(content=st.binary(max_size=60) | st.fixed_dictionaries({"version": JSON, "serial": JSON, "files": JSON}))
def test_any_list_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes | dict[str, Any]) -> None:
    folder = tmp_path_factory.getbasetemp()
    try:
        data = content if isinstance(content, bytes) else orjson.dumps(content)
    except TypeError:  # a lone surrogate
        return
    (folder / CHECKSUMS).write_bytes(data)
    try:
        read_checksums(folder)
    except CheckpointError as error:
        assert len(str(error).splitlines()) == 1
