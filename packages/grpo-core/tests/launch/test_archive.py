"""`grpo archive` and `grpo restore`: in a folder, and in imitations of S3 and Google's storage on loopback."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from grpo_core.checkpoints import CheckpointStore
from grpo_core.launch import archive
from grpo_core.launch.storage import ArchiveError
from grpo_sdk.cli import main as entry

SECRET = "wJalrXUtnFEMI-not-a-key"


def make_run(path: Path) -> Path:
    (path / "logs").mkdir(parents=True)
    (path / "config.yaml").write_text("task: math.a\n")
    (path / "logs" / "train_log.jsonl").write_text('{"step": 1}\n')
    for name in ("empty.jsonl", "run.lock", "process.json"):
        (path / "logs" / name).touch()
    for step in (1, 2):
        save(path, step)
    return path


def save(path: Path, step: int) -> None:
    with CheckpointStore(path).writing(step) as checkpoint:
        (checkpoint / "model").mkdir()
        (checkpoint / "model" / "weights").write_bytes(bytes([step]) * 50_000)


def content(path: Path) -> dict[str, bytes | str]:
    """Name -> content, or target of a link, without the files of the process."""
    return {
        name: os.readlink(each) if each.is_symlink() else each.read_bytes()
        for each in path.rglob("*")
        if (each.is_symlink() or each.is_file())
        and (name := each.relative_to(path).as_posix()) not in ("logs/run.lock", "logs/process.json")
    }


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    return make_run(Path("runs/run_1"))


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = pytest.importorskip("moto.server", reason="the development group")
    server = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(moto: str, monkeypatch: pytest.MonkeyPatch) -> str:
    boto3 = pytest.importorskip("boto3")
    keys = {"ACCESS_KEY_ID": "AKIANOTAKEY", "SECRET_ACCESS_KEY": SECRET, "DEFAULT_REGION": "us-east-1"}
    for name, value in {**keys, "ENDPOINT_URL": moto, "EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="runs")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket="runs"):
        for each in page.get("Contents", ()):
            s3.delete_object(Bucket="runs", Key=each["Key"])
    s3.close()
    return "s3://runs/deep/er"


@pytest.fixture(scope="module")
def emulator() -> Iterator[Any]:
    server = pytest.importorskip("gcp_storage_emulator.server", reason="the development group")
    pytest.importorskip("gcsfs", reason="the extra gcs")
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with server.create_server("127.0.0.1", port, in_memory=True) as running:
        yield running, f"http://127.0.0.1:{port}"


@pytest.fixture
def gs_bucket(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    server, address = emulator
    # gcsfs takes the server for Google, and looks for no credentials elsewhere.
    for name, value in {"STORAGE_EMULATOR_HOST": address, "NO_GCE_CHECK": "true", "HOME": str(Path.cwd())}.items():
        monkeypatch.setenv(name, value)
    server.wipe()
    request = Request(f"{address}/storage/v1/b", b'{"name": "runs"}', {"Content-Type": "application/json"})
    urlopen(request).close()
    return "gs://runs/deep/er"


@pytest.fixture(params=["file:archive", "bucket", "gs_bucket"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.param if ":" in request.param else request.getfixturevalue(request.param))


def test_a_restored_run_is_the_run_and_only_what_is_new_is_sent(call: Callable[..., Any], run: Path, url: str) -> None:
    done = call("archive", str(run), url)
    assert (done["files"], done["sent_files"], done["checkpoints"]) == (7, 7, ["step_1", "step_2"])
    (listed,) = call("archive", "--list", url)
    assert (listed["checkpoints"], listed["latest"], listed["problem"]) == (["step_1", "step_2"], "step_2", "")
    assert call("restore", f"{url}/run_1", "back") == {"run": "back/run_1"}
    assert content(Path("back/run_1")) == content(run)
    assert CheckpointStore(Path("back/run_1")).path("latest").name == "step_2"
    assert sorted(os.listdir("back")) == ["run_1"]
    assert "back/run_1 is there already" in call("restore", f"{url}/run_1", "back", code=2)
    assert call("archive", str(run), url)["sent_files"] == 0
    save(run, 3)
    (run / "logs" / "train_log.jsonl").write_text('{"step": 1}\n{"step": 3}\n')
    assert call("archive", str(run), url)["sent_files"] == 3, "weights, their list, the log"


def test_the_latest_checkpoints_are_kept_and_what_is_left_out_is_said(call: Callable[..., Any], run: Path) -> None:
    call("archive", str(run), "file:archive")
    save(run, 10)
    (run / "logs" / "secret").symlink_to("/etc/passwd")
    (run / "folder").symlink_to("/etc")
    (run / "a\nb").write_text("x")
    done = call("archive", str(run), "file:archive", "--keep-latest", "2")
    assert (done["checkpoints"], done["removed"]) == (["step_2", "step_10"], ["step_1"])
    assert done["left_out"] == [r"'a\nb': a name that not every system has", "folder: a link", "logs/secret: a link"]
    call("restore", "file:archive/run_1", "back")
    assert CheckpointStore(Path("back/run_1")).steps() == [2, 10]
    (run / "training_state" / "step_2" / "model" / "weights").write_bytes(b"y" * 50_000)
    assert "step_2/model/weights is damaged" in call("archive", str(run), "file:elsewhere", code=1)


KILLED = Path(__file__).parent / "programs" / "killed_archiving.py"


def killed(*words: str) -> None:
    process = subprocess.run([sys.executable, str(KILLED), *words], capture_output=True, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr


@pytest.mark.parametrize("url", ["file:archive", "bucket"], indirect=True)
def test_a_killed_archiving_leaves_the_earlier_archive(call: Callable[..., Any], run: Path, url: str) -> None:
    call("archive", str(run), url)
    before = content(run)
    save(run, 3)
    (run / "logs" / "train_log.jsonl").write_bytes(b"x" * 5000)
    killed("archive", str(run), url)
    call("restore", f"{url}/run_1", "back")
    assert content(Path("back/run_1")) == before
    call("archive", str(run), url)
    call("restore", f"{url}/run_1", "after")
    assert content(Path("after/run_1")) == content(run)


def test_a_killed_restoring_goes_on(call: Callable[..., Any], run: Path) -> None:
    call("archive", str(run), "file:archive")
    killed("restore", "file:archive/run_1", "back")
    assert not Path("back/run_1").exists() and list(Path("back/.run_1.restoring").rglob("*"))
    call("restore", "file:archive/run_1", "back")
    assert content(Path("back/run_1")) == content(run)
    assert os.listdir("back") == ["run_1"]


@pytest.mark.parametrize(("change", "message"), [
    ({"files": {"../x": None}}, r"'../x'/'[key]': Value error, it would not lie"),
    ({"files": {"a\x1b[31m": None}}, r"'a\x1b[31m'/'[key]': Value error, it would not lie"),
    ({"files": {"config.yaml/x": None}}, "'config.yaml' is both a file and a folder"),
    ({"run": "../other"}, "newer grpo-core: 'run'"),
    ({"latest": "../../x"}, "'latest'"),
    ({"version": 2}, "or of a newer grpo-core: 'version'"),
    ({"files": {"x": {"sha256": "../../etc/passwd", "size": 1}}}, "'sha256'"),
    ({"files": {"x": {"sha256": "0" * 64, "size": 10**15}}}, "are free in back"),
    ({"files": {"x": {"sha256": "0" * 64, "size": 1}}}, "the content of 'x' is missing"),
])  # fmt: skip
def test_a_lying_manifest_is_refused(call: Callable[..., Any], run: Path, change: dict[str, Any], message: str) -> None:
    call("archive", str(run), "file:archive")
    file = Path("archive/run_1/manifest.json")
    manifest = json.loads(file.read_text())
    some = manifest["files"]["config.yaml"]
    if isinstance(change.get("files"), dict):
        change = {"files": {**manifest["files"], **{name: each or some for name, each in change["files"].items()}}}
    file.write_text(json.dumps({**manifest, **change}))
    assert message in call("restore", "file:archive/run_1", "back", code=1)
    assert not list(Path("back").glob("[!.]*"))


@pytest.mark.parametrize("damage", ["shorter", "other", "link", "pipe"])
def test_content_that_is_not_what_was_archived_is_refused(call: Callable[..., Any], run: Path, damage: str) -> None:
    call("archive", str(run), "file:archive")
    weights = next(path for path in Path("archive/run_1/objects").iterdir() if path.stat().st_size == 50_000)
    sound = weights.read_bytes()
    if damage in ("link", "pipe"):
        weights.unlink()
        Path("elsewhere").write_bytes(sound)
        os.mkfifo(weights) if damage == "pipe" else weights.symlink_to(Path("elsewhere").absolute())
    else:
        weights.write_bytes(sound[:-1] if damage == "shorter" else b"x" * 50_000)
    message = call("restore", "file:archive/run_1", "back", code=1)
    assert "is not what was archived" in message or "a link or a device" in message
    assert not Path("back/run_1").exists()
    weights.unlink()  # as the message says
    assert call("archive", str(run), "file:archive")["sent_files"] == 1, "archiving again repairs it"
    call("restore", "file:archive/run_1", "back")


def test_a_run_that_goes_on_is_archived_as_far_as_it_is(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = run / "logs" / "train_log.jsonl"
    original = archive._hashed

    def growing(*arguments: Any) -> Any:
        with log.open("a") as file:
            file.write('{"step": 2}\n')
        return original(*arguments)

    monkeypatch.setattr(archive, "_hashed", growing)
    archive.archive_run(run, "file:archive", keep_latest=None, progress=lambda *_: None)
    assert entry.main(["restore", "file:archive/run_1", "back"]) == 0
    assert Path("back/run_1/logs/train_log.jsonl").read_text() == '{"step": 1}\n'

    def shrinking(*arguments: Any) -> Any:
        records = original(*arguments)
        log.write_text("")
        return records

    monkeypatch.setattr(archive, "_hashed", shrinking)
    with pytest.raises(ArchiveError, match="changed while it was archived"):
        archive.archive_run(run, "file:archive", keep_latest=None, progress=lambda *_: None)


def test_a_bucket_that_is_not_there_and_no_credentials(
    call: Callable[..., Any], run: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no such bucket" in call("archive", str(run), "s3://nothing-here/x", code=1)
    assert call("archive", "--list", "s3://nothing-here/x") == []
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(Path.cwd()))
    assert "no credentials: set AWS_PROFILE" in call("archive", str(run), bucket, code=2)
