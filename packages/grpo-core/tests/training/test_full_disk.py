"""A run whose disk fills up ends with one line, keeps what it saved, and goes on from there as if nothing had been.

The disk is a small one of its own where the system lets us mount one; else a limit on the size of a file
(RLIMIT_FSIZE), which the system enforces with the same error path and which can be set on a process that runs already.
"""

import errno
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from launched_ranks import run_in
from reservations import reserved_sizes
from resumed_runs import assert_same, config

from grpo_core import resume, train
from grpo_core.checkpoints import CheckpointStore
from grpo_core.checkpoints.names import Step
from grpo_core.config import load_config
from grpo_sdk.cli.main import main
from grpo_sdk.errors import UserError

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process that runs already"),
    pytest.mark.timeout(180),
]

SETTINGS = """--max-steps 5 --save-every 1 --quiet trainer.prompts_per_step=2 trainer.num_generations=2 eval.size=2
trainer.max_completion_length=4 trainer.learning_rate=1e-3 scoring.workers=1 device=cpu"""


def test_a_run_ends_with_one_line_and_goes_on_as_if_nothing_had_been(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writing, before = CheckpointStore.writing, resource.getrlimit(resource.RLIMIT_FSIZE)

    @contextmanager
    def full_at_3(store: CheckpointStore, step: Step) -> Iterator[Path]:
        if step == 3:  # the logs still fit, the weights do not
            resource.setrlimit(resource.RLIMIT_FSIZE, (2**18, before[1]))
        with writing(store, step) as path:
            yield path

    words = ["--output-dir", str(tmp_path / "full"), "--model", str(folder / "model")]
    try:
        with monkeypatch.context() as patched:
            patched.setattr(CheckpointStore, "writing", full_at_3)
            assert main(["run", *SETTINGS.split(), *words, "--task", f"{folder / 'tasks.py'}:letters"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    run = run_in(tmp_path / "full")
    stderr = capsys.readouterr().err
    (said,) = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert said.endswith(f"Make room, then: grpo resume {run}") and "Traceback" not in stderr
    assert "File too large" in said and "What the run saved before is untouched: it has 1, 2" in said
    assert sorted(path.name for path in (run / "training_state").iterdir()) == ["step_1", "step_2", "step_latest"]

    gone_on = resume(run)
    assert not gone_on.interrupted and gone_on.summary["steps"] == 5
    made = load_config(config_file=run / "config.yaml", environ={}, dotenv_path=None).config
    straight = train(made.model_copy(update={"output_dir": str(tmp_path / "straight")}))
    assert_same(straight.run_dir, run)


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
