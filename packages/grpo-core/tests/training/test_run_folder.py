"""Names of runs: runs that start in the same second lose nothing of each other's."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_core.config import RunConfig
from grpo_core.tracking.base import remember_id
from grpo_core.tracking.presence import announce
from grpo_core.training import run_folder
from grpo_core.training.provenance import config_hash
from grpo_core.training.run_folder import RunFolder
from grpo_sdk.records.run_folder import evaluation_dir

NAME = "run_2026-11-27_18-38-21"


@pytest.fixture(autouse=True)
def same_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 11, 27, 18, 38, 21)
    monkeypatch.setattr(run_folder, "datetime", SimpleNamespace(now=lambda *_: now))


def made(output_dir: Path) -> Path:
    folder = RunFolder(run_folder.new_folder(output_dir))
    folder.close()
    return folder.path


def test_a_name_that_is_taken_gets_a_suffix_and_runs_elsewhere_do_not_matter(tmp_path: Path) -> None:
    names = [made(tmp_path / where / "runs").name for where in ("a", "a", "a", "b")]
    assert names == [NAME, f"{NAME}_2", f"{NAME}_3", NAME]


def test_runs_of_folders_that_lie_side_by_side_have_different_names(tmp_path: Path) -> None:
    folders = [tmp_path / f"seed{seed}" for seed in range(16)]
    with ThreadPoolExecutor(8) as threads:
        runs = list(threads.map(made, folders))
    assert [run.parent for run in runs] == folders
    assert len({run.name for run in runs}) == len({evaluation_dir(run) / run.name for run in runs}) == 16


def test_a_folder_beside_that_may_not_be_read_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: object, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(run_folder.os, "open", refused)
    monkeypatch.setattr(Path, "iterdir", refused)
    assert made(tmp_path / "runs") == tmp_path / "runs" / NAME


def configured(run: Path, text: str) -> None:
    folder = RunFolder.reopen(run, 0)
    folder.write_config(text)
    folder.close()


WRITTEN = [
    ("config.yaml", configured),
    ("logs/process.json", lambda run, text: announce(run)),
    ("logs/wandb_run_id", lambda run, text: remember_id(run, "wandb", text)),
]


@pytest.mark.parametrize(("name", "write"), WRITTEN)
def test_who_reads_a_file_while_it_is_written_again_sees_all_of_the_old_one(
    name: str, write: Callable[[Path, str], object], tmp_path: Path
) -> None:
    run = made(tmp_path)
    write(run, "first")
    old = (run / name).read_bytes()
    with (run / name).open("rb") as reader:
        write(run, "second")
        assert old and reader.read() == old
    assert not list(run.rglob("*partial*"))


def test_the_hash_of_a_configuration_is_that_of_what_decides_what_is_trained() -> None:
    own = config_hash(RunConfig())
    assert config_hash(RunConfig.model_validate({"trainer": {"logging_steps": 7}, "tracking": {"project": "p"}})) == own
    assert config_hash(RunConfig.model_validate({"trainer": {"learning_rate": 0.5}})) != own
