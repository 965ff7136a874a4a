"""The temporary checkpoint that a run writes where no steps are given for one, and a disk that fills up."""

import errno
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from heard import Heard
from launched_ranks import run_in
from reservations import reserved_sizes
from resumed_runs import STEPS, assert_same, config

from grpo_core import resume, train
from grpo_core.checkpoints import CheckpointStore
from grpo_core.checkpoints.names import Step
from grpo_core.config import load_config
from grpo_sdk.callbacks import StepRecord
from grpo_sdk.cli.main import main
from grpo_sdk.errors import UserError

AFTER_EACH_STEP = {"save_minutes": 1e-6}


@pytest.fixture(autouse=True)
def takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_core.training.run_checkpoints.LARGEST_SHARE", 1e9)


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in run.glob("training_state/*"))


class Watch(Heard):
    """Notes the checkpoints that there are when a step is reported, and copies the run after step 3."""

    def __init__(self, runs: Path) -> None:
        super().__init__()
        self.runs, self.seen = runs, list[list[str]]()

    def on_step(self, record: StepRecord) -> None:
        (run,) = self.runs.glob("run_*")
        self.seen.append(checkpoints(run))
        if record.step == 4:
            shutil.copytree(run, self.runs / "killed", symlinks=True)


def test_a_killed_run_goes_on_from_it_and_at_the_end_it_is_gone(folder: Path, tmp_path: Path) -> None:
    watch, killed = Watch(tmp_path), tmp_path / "killed"
    run = train(config(folder, tmp_path, "plain", **AFTER_EACH_STEP), [watch]).run_dir
    assert watch.seen == [[], *([f"step_{step}", "step_latest"] for step in range(1, STEPS))]
    assert checkpoints(run) == ["step_final", "step_latest"]

    assert checkpoints(killed) == ["step_3", "step_latest"]
    assert resume(killed, stop_after=1).interrupted, "at a step that has one of both kinds"
    assert checkpoints(killed) == ["step_4", "step_latest"]
    assert not resume(killed).interrupted
    assert checkpoints(killed) == ["step_4", "step_final", "step_latest"]
    assert_same(run, killed)


@pytest.mark.parametrize(("settings", "left"), [({}, []), ({**AFTER_EACH_STEP, "save_every": 2}, ["step_2", "step_4"])])
def test_there_is_none_early_or_beside_others(folder: Path, tmp_path: Path, settings: Any, left: list[str]) -> None:
    watch = Watch(tmp_path)
    run = train(config(folder, tmp_path, "plain", **settings), [watch]).run_dir
    assert {name for seen in watch.seen for name in seen} <= {*left, "step_latest"}
    assert checkpoints(run) == [*left, "step_final", "step_latest"]


# A full disk

limits_itself = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process that runs already")


@contextmanager
def full_disk_at(full: Step) -> Iterator[list[Step]]:
    """In the block no large file can be written while a step is saved; gives the steps that were tried.

    The system enforces RLIMIT_FSIZE with the error path of a disk that is full.
    """
    writing, before, tried = CheckpointStore.writing, resource.getrlimit(resource.RLIMIT_FSIZE), list[Step]()

    @contextmanager
    def limited(store: CheckpointStore, step: Step) -> Iterator[Path]:
        tried.append(step)
        if step == full:  # the logs still fit, the weights do not
            resource.setrlimit(resource.RLIMIT_FSIZE, (2**18, before[1]))
        try:
            with writing(store, step) as path:
                yield path
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CheckpointStore, "writing", limited)
        yield tried


@limits_itself
def test_it_ends_temporary_checkpoints_and_not_the_run(folder: Path, tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    with full_disk_at(2) as tried:
        result = train(config(folder, tmp_path, "plain", **AFTER_EACH_STEP), [watch])
    assert tried == [1, 2, "final"]
    (said,) = [each for each in watch.warnings if "cannot save step_2" in each]
    assert said.endswith("The run goes on, and tries no other before its end.")
    assert watch.seen[-1] == ["step_1", "step_latest"] and checkpoints(result.run_dir) == ["step_final", "step_latest"]
    assert result.summary["steps"] == STEPS


SETTINGS = """--max-steps 5 --save-every 1 --quiet trainer.prompts_per_step=2 trainer.num_generations=2 eval.size=2
trainer.max_completion_length=4 trainer.learning_rate=1e-3 scoring.workers=1 device=cpu"""


@limits_itself
def test_it_ends_a_run_in_one_line_which_goes_on_as_if_nothing_had_been(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--output-dir", str(tmp_path / "full"), "--model", str(folder / "model")]
    with full_disk_at(3):
        assert main(["run", *SETTINGS.split(), *words, "--task", f"{folder / 'tasks.py'}:letters"]) == 1
    run = run_in(tmp_path / "full")
    stderr = capsys.readouterr().err
    (said,) = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert said.endswith(f"Make room, then: grpo resume {run}") and "Traceback" not in stderr
    assert "File too large" in said and "What the run saved before is untouched: it has 1, 2" in said
    assert checkpoints(run) == ["step_1", "step_2", "step_latest"]

    gone_on = resume(run)
    assert not gone_on.interrupted and gone_on.summary["steps"] == 5
    made = load_config(config_file=run / "config.yaml", environ={}, dotenv_path=None).config
    straight = train(made.model_copy(update={"output_dir": str(tmp_path / "straight")}))
    assert_same(straight.run_dir, run)


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is reserved here")
def test_room_is_held_for_the_first_checkpoint(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = reserved_sizes(monkeypatch)
    reference = {"ref_model_sync_steps": 1, "beta": 0.1}  # which moves, so that a checkpoint has it, too
    made = config(folder, tmp_path, "plain", max_steps=1, **reference).model_copy(update={"model": "tiny"})
    run = train(made).run_dir
    written = sum(file.stat().st_size for file in (run / "training_state/step_final").rglob("*"))
    assert written <= sizes[0] <= 1.2 * written

    monkeypatch.setattr("grpo_core.checkpoints.reservation.allocate", lambda file, size: errno.ENOSPC)
    with pytest.raises(
        UserError, match=r"^the first checkpoint needs [\d.]+ [KM]iB in .*training_state, and .* are free"
    ):
        train(made)
    assert resume(run, additional_steps=1).summary["steps"] == 2  # which has one already


def test_a_disk_full_elsewhere_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(*given: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("grpo_sdk.plugins.PluginHost.reports", full)
    assert main(["tasks"]) == 1
    captured = capsys.readouterr().err
    assert captured.startswith("error: No space left on device: something could not be written.")
    assert captured.count("\n") == 1
