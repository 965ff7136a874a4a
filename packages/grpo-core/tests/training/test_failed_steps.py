"""A run that fails inside a step: nothing half done is saved, and a resume ends as the run would have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from launched_ranks import run_in
from resumed_runs import assert_same, config, rollouts

from grpo_core import resume, train
from grpo_core.training.collect import Collected
from grpo_core.training.optimizer import PolicyOptimizer
from grpo_core.training.report import Report
from grpo_core.training.update import Updater

Straight = Callable[..., Path]


def saved_steps(run: Path) -> set[str]:
    return {path.name for path in (run / "training_state").glob("step_[0-9]*")}


@pytest.mark.parametrize(
    "variant", ["LoRA with dropout", "curriculum", "ema, adaptive KL and entropy", "sampled ahead"]
)
def test_a_step_that_fails_before_its_update_is_undone(
    folder: Path, tmp_path: Path, straight: Straight, variant: str
) -> None:
    step = Updater._step

    def failing(updater: Updater, part: Any) -> dict[str, float]:
        if updater.optimizer.updates == 2 * updater._steps_per_batch:
            torch.rand(3)  # as dropout draws before memory runs out
            raise RuntimeError("no more power")
        return step(updater, part)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(RuntimeError, match="no more power"):
        patched.setattr(Updater, "_step", failing)
        train(config(folder, tmp_path, variant))
    run = run_in(tmp_path)
    assert saved_steps(run) == {"step_2"}
    assert_same(straight(variant), resume(run).run_dir)


def test_a_step_that_has_changed_the_weights_is_not_saved(folder: Path, tmp_path: Path, straight: Straight) -> None:
    variant = "two iterations, two steps a batch"
    begin = PolicyOptimizer._begin

    def failing(optimizer: PolicyOptimizer, *rest: Any) -> None:
        begin(optimizer, *rest)
        if optimizer.begun == 11:  # in the third batch
            optimizer.parameters[0].data += 1
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(PolicyOptimizer, "_begin", failing)
        train(config(folder, tmp_path, variant, save_every=1))
    run = run_in(tmp_path)
    assert "step_2" in saved_steps(run) and "step_3" not in saved_steps(run)
    assert_same(straight(variant), resume(run).run_dir)


@pytest.mark.parametrize(("variant", "resumed"), [("plain", False), ("sampled ahead", True)])
def test_the_prompts_of_a_batch_that_is_refused_are_drawn_again(
    folder: Path, tmp_path: Path, straight: Straight, variant: str, *, resumed: bool
) -> None:
    own = Report.rollouts

    def refusing(report: Report, step: int, collected: Collected) -> None:
        if step == 3:
            raise RuntimeError("the judge is down")
        own(report, step, collected)

    if resumed:  # the checkpoint holds the batch that will be refused
        train(config(folder, tmp_path, variant, stop_after=2))
    with pytest.MonkeyPatch.context() as patched, pytest.raises(RuntimeError, match="the judge is down"):
        patched.setattr(Report, "rollouts", refusing)
        resume(run_in(tmp_path)) if resumed else train(config(folder, tmp_path, variant))
    run = resume(run_in(tmp_path)).run_dir
    drawn = [[(each["step"], each["row"]["id"]) for each in rollouts(path)] for path in (run, straight(variant))]
    assert drawn[0] == drawn[1]
    if variant == "plain":
        assert_same(straight(variant), run)
