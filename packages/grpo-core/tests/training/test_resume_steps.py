"""From which step a run goes on, and where its end is, as its folder and its observers say it."""

from __future__ import annotations

from pathlib import Path

import pytest
from resumed_runs import config, log, model_and_tasks

from grpo_core import train
from grpo_core.config import EvalConfig
from grpo_core.tracking.events import read_events
from grpo_core.training.resume import resume


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_and_tasks(tmp_path_factory.mktemp("steps"))


def test_events_have_their_step_where_few_steps_are_logged(folder: Path, tmp_path: Path) -> None:
    settings = config(folder, tmp_path, "plain", max_steps=6, logging_steps=5, stop_after=3)
    run = train(settings.model_copy(update={"eval": EvalConfig(size=4, interval_steps=2)})).run_dir
    assert not resume(run).interrupted
    assert [line["step"] for line in log(run)] == [5, 6]
    events = [(event["kind"], event["step"]) for event in read_events(run)]
    assert [step for kind, step in events if kind == "start"] == [0, 3]
    assert [step for kind, step in events if kind == "evaluation"] == [0, 2, 4, 6, 6]
