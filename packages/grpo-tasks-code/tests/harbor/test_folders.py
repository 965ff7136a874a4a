import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from harbor_folders import COUNT, HELLO, write_folder

from grpo_sdk import load_task
from grpo_sdk.data import DataError
from grpo_tasks_code.harbor.folders import MAX_FOLDER_BYTES, RefusedError, TaskFolder, read_folder
from grpo_tasks_code.harbor.plugin import _listed


def read(folder: Path, base: Mapping[str, str] = HELLO, **changed: str | bytes | None) -> TaskFolder:
    return read_folder(write_folder(folder, base, **changed), on_host=False)


def test_a_folder_is_read(tmp_path: Path) -> None:
    folder = read(tmp_path / "count", COUNT)
    assert (folder.name, folder.workdir) == ("count", "/app")
    assert folder.instruction == "Write the number of lines of data.txt to count.txt."
    assert folder.gold == "```bash\n#!/bin/bash\nwc -l < data.txt > count.txt\n```"
    assert {path: file.content for path, file in folder.placed().items()} == {"/app/data.txt": b"one\ntwo\nthree\n"}
    assert folder.settings.verifier.timeout_sec == 120
    marked = "<!-- harbor-canary GUID 1 -->\n# BENCHMARK canary\n\nDo it.\n"
    assert read(tmp_path, instruction_dot_md=marked).instruction == "Do it."


@pytest.mark.parametrize(("dockerfile", "placed"), [
    ("COPY . .", {"/app/Dockerfile", "/app/d/x", "/app/d/y", "/app/d", "/app/data.txt"}),
    ("COPY d /data", {"/data/x", "/data/y", "/data"}),
    ("COPY d/ ./e/", {"/app/e/x", "/app/e/y", "/app/e"}),
    ("COPY data.txt /opt/other", {"/opt/other"}),
    ("COPY d/x d/y all/", {"/app/all/x", "/app/all/y"}),
    ("COPY d/* all", {"/app/all/x", "/app/all/y"}),
])  # fmt: skip
def test_files_are_copied_as_docker_copies_them(tmp_path: Path, dockerfile: str, placed: set[str]) -> None:
    text = f"FROM a\nWORKDIR /app\n{dockerfile}\n"
    folder = read(tmp_path, COUNT, environment__d__x="", environment__d__y="", environment__Dockerfile=text)
    assert set(folder.placed()) == placed


BROKEN = {
    "there is no instruction.md": {"instruction_dot_md": None},
    "instruction.md is empty": {"instruction_dot_md": " \n"},
    "instruction.md is no text in UTF-8": {"instruction_dot_md": b"\xff\xfe\x00"},
    "instruction.md is no text: it holds a null character": {"instruction_dot_md": b"a\0b"},
    "instruction.md is larger than 256 KiB": {"instruction_dot_md": "a" * 300_000},
    "there is no task.toml": {"task_dot_toml": None},
    "task.toml is not TOML": {"task_dot_toml": "[verifier\n"},
    "task.toml: verifier.timeout_sec: Input should be a valid number": {"task_dot_toml": "[verifier]\ntimeout_sec='a'"},
    "there is no tests/test.sh": {"tests__test_dot_sh": None},
    "needs a container engine: 'RUN a' and 1 more": {"environment__Dockerfile": "FROM a\nRUN a\nRUN x\n"},
    "needs a container engine: 'environment/docker-compose.yaml'": {"environment__docker-compose_dot_yaml": ""},
    "needs a container engine: 'the image a/b'": {"task_dot_toml": "[environment]\ndocker_image = 'a/b'\n"},
    "it needs several steps": {"task_dot_toml": "[[steps]]\nname = 'a'\n"},
    "it needs a GPU": {"task_dot_toml": "[environment]\ngpus = 1\n"},
    "a separate environment for its tests": {"task_dot_toml": "[verifier]\nenvironment_mode = 'separate'\n"},
    "environment variables of this machine": {"task_dot_toml": "[verifier.env]\nKEY = '${API_KEY}'\n"},
    "the operating system 'windows'": {"task_dot_toml": "[environment]\nos = 'windows'\n"},
    "copies 'nothing', which environment/ does not have": {"environment__Dockerfile": "FROM a\nCOPY nothing /app/\n"},
    "at '/usr/bin/x', which is read-only here": {"environment__Dockerfile": "FROM a\nCOPY Dockerfile /usr/bin/x\n"},
    "at '/', which is read-only here": {"environment__Dockerfile": "FROM a\nWORKDIR /\n"},
}


@pytest.mark.parametrize(("why", "changed"), BROKEN.items(), ids=BROKEN.keys())
def test_a_folder_that_cannot_be_a_task_is_refused(tmp_path: Path, why: str, changed: dict[str, str]) -> None:
    with pytest.raises(RefusedError) as refused:
        read(tmp_path, **changed)
    assert why in str(refused.value) and "\n" not in str(refused.value)


def test_the_tools_of_this_machine_can_stand_for_the_image(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, HELLO, environment__Dockerfile="FROM a\nRUN apt-get update\nWORKDIR /srv\n")
    assert read_folder(folder, on_host=True).workdir == "/srv"


def test_a_link_to_a_file_inside_is_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, COUNT)
    (folder / "environment/again.txt").symlink_to("data.txt")
    assert read_folder(folder, on_host=False).content["environment/again.txt"].content == b"one\ntwo\nthree\n"


@pytest.mark.parametrize(("target", "why"), [
    ("../../secret", "tests/odd is a link out of the folder"),
    ("/etc/passwd", "tests/odd is a link out of the folder"),
    ("..", "tests/odd is a link to a folder"),
    ("odd", "tests/odd: "),
    ("nothing", "tests/odd: No such file"),
    ("a pipe", "tests/odd is no file"),
    ("a huge file", "larger than 48 MiB together"),
])  # fmt: skip
def test_what_is_no_file_of_the_folder_is_refused(tmp_path: Path, target: str, why: str) -> None:
    folder = write_folder(tmp_path / "task", HELLO)
    (tmp_path / "secret").write_text("bait", encoding="utf-8")
    if target == "a pipe":
        os.mkfifo(folder / "tests/odd")
    elif target == "a huge file":
        (folder / "tests/odd").touch()
        os.truncate(folder / "tests/odd", MAX_FOLDER_BYTES + 1)
    else:
        (folder / "tests/odd").symlink_to(target)
    with pytest.raises(RefusedError, match=why):
        read_folder(folder, on_host=False)


def test_a_folder_of_tasks_has_splits_and_counts_what_it_leaves_out(tmp_path: Path) -> None:
    for number in range(30):
        write_folder(tmp_path / f"task-{number}", HELLO, instruction_dot_md=f"Task {number}.")
    for name in ("bad-a", "bad-b"):
        write_folder(tmp_path / name, HELLO, tests__test_dot_sh=None)
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("no task", encoding="utf-8")
    task = load_task("harbor.task", path=str(tmp_path))
    ids = [{row.id for row in task.with_options(split=split).rows()} for split in ("train", "validation", "test")]
    assert sum(map(len, ids)) == len(set.union(*ids)) == 30 and len(ids[0]) > 15
    assert task.conditions["left out"] == (
        "2 of 32 folders: bad-a: there is no tests/test.sh; bad-b: there is no tests/test.sh"
    )


def test_one_folder_per_split(tmp_path: Path) -> None:
    write_folder(tmp_path / "train" / "a", HELLO)
    write_folder(tmp_path / "test" / "b", HELLO)
    task = load_task("harbor.task", path=f"{tmp_path}/{{split}}")
    assert [task.with_options(split=split).rows()[0].id for split in ("train", "test")] == ["a", "b"]


def test_a_path_without_a_task_is_an_error(tmp_path: Path) -> None:
    for path, why in (
        (None, "harbor.task needs a folder: 'harbor.task\\?path=FOLDER'"),
        (str(tmp_path / "nothing"), "does not exist"),
        (str(tmp_path), "holds no task: a task is a folder with"),
        (str(write_folder(tmp_path / "bad" / "a", HELLO, tests__test_dot_sh=None)), "a: there is no tests/test.sh."),
        (str(tmp_path / "bad" / "a" / "task.toml"), "is no folder"),
    ):
        with pytest.raises(DataError, match=why):
            load_task("harbor.task", path=path).rows()


def test_the_identity_depends_on_every_file(tmp_path: Path) -> None:
    first = load_task("harbor.task", path=str(write_folder(tmp_path, HELLO))).identity
    write_folder(tmp_path, {"tests/more.txt": "x"})
    _listed.cache_clear()
    assert load_task("harbor.task", path=str(tmp_path)).identity != first
