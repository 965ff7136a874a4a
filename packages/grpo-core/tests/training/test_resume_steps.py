"""From which step a run goes on, and where its end is, as its folder and its observers say it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from resumed_runs import config, log, model_and_tasks

from grpo_core import train
from grpo_core.checkpoints.reader import CheckpointReader
from grpo_core.config import EvalConfig
from grpo_core.errors import UserError
from grpo_core.tracking.events import read_events
from grpo_core.tracking.runs import read_run
from grpo_core.training.resume import resume
from grpo_core.training.stored_run import check_resume
from grpo_core.training.trainer import Trainer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_and_tasks(tmp_path_factory.mktemp("steps"))


def test_events_have_their_step_where_few_steps_are_logged(folder: Path, tmp_path: Path) -> None:
    settings = config(folder, tmp_path, "plain", max_steps=6, logging_steps=5, stop_after=3)
    run = train(settings.model_copy(update={"eval": EvalConfig(size=4, interval_steps=2)})).run_dir
    assert not resume(run).interrupted
    assert [line["step"] for line in log(run)] == [5, 6]
    events = [(event["kind"], event["step"]) for event in read_events(run)]
    assert [step for kind, step in events if kind == "start"] == [0, 3, 3], (
        "before the logs are cut, and when it trains"
    )
    assert [step for kind, step in events if kind == "evaluation"] == [0, 2, 4, 6, 6]


@pytest.fixture(scope="module")
def finished(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(config(folder, tmp_path_factory.mktemp("finished"), "plain", max_steps=3, save_every=1)).run_dir


def copied(run: Path, to: Path) -> Path:
    return Path(shutil.copytree(run, to / run.name, symlinks=True))


@pytest.mark.parametrize(("key", "was", "now"), [("max_steps", "3", "200"), ("num_train_epochs", "null", "2.0")])
def test_planned_steps_that_a_resume_would_not_take_are_refused(
    finished: Path, tmp_path: Path, key: str, was: str, now: str
) -> None:
    run = copied(finished, tmp_path)
    text = (run / "config.yaml").read_text()
    if key == "num_train_epochs":
        text = text.replace("max_steps: 3\n", "max_steps: null\n")
    assert f" {key}: {was}\n" in text
    (run / "config.yaml").write_text(text.replace(f" {key}: {was}\n", f" {key}: {now}\n"))
    with pytest.raises(
        UserError, match=r"which a resume does not change\. Put it back; --additional-steps N trains on"
    ):
        check_resume(run, from_step=1, allow=["trainer.max_steps", "trainer.num_train_epochs"])


def test_a_run_that_was_killed_after_it_went_back_goes_on_from_there(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copied(finished, tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Trainer, "run", killed)
        resume(run, from_step=1)
    assert [line["step"] for line in log(run)] == [1]
    assert CheckpointReader(run).path("latest").name == "step_1"
    view = read_run(run)
    assert (view.state, view.steps, view.planned) == ("killed", 1, 3), "no longer finished"
    assert all(each.phase != "final" for each in view.results.values()), "the result of the abandoned steps"
    check_resume(run)


def test_a_run_on_the_first_rows_of_a_task_goes_on(folder: Path, tmp_path: Path) -> None:
    settings = config(folder, tmp_path, "plain", max_steps=2, stop_after=1, train_size=4)
    run = train(settings).run_dir
    check_resume(run)
    assert not resume(run).interrupted
