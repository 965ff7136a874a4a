from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ears import Ears
from evaluation_runs import TASKS

from grpo_core.config import EvalConfig, RunConfig, TrainerConfig
from grpo_core.engines.native import NativeEngine
from grpo_core.evaluation.candidate import in_process
from grpo_core.evaluation.evaluator import HeldOutEvaluator
from grpo_core.evaluation.held_out import held_out_tasks
from grpo_core.policy.fresh import fresh_model
from grpo_core.policy.policy import Policy
from grpo_core.rollouts.task_scoring import Scoring
from grpo_sdk.callbacks import Callbacks
from grpo_sdk.endpoints.base import StopRequested
from grpo_sdk.plugins.models import ModelSource
from grpo_sdk.plugins.tasks import load_task


class Lab:
    """A policy to evaluate while it is changed by hand."""

    def __init__(self, folder: Path, resources: ExitStack, **held: Any) -> None:
        (folder / "tasks.py").write_text(TASKS)
        self.run = folder / "training_runs" / "run_1"
        places = {"task": f"{folder}/tasks.py:letters", "output_dir": str(self.run.parent)}
        self.config = RunConfig(trainer=TrainerConfig(max_completion_length=8), eval=EvalConfig(**held), **places)
        model, tokenizer = fresh_model("tiny", seed=0)
        self.policy = Policy(model, tokenizer, ModelSource("folder", "m", "m", ""), torch.device("cpu"), None)
        self.trained = {"tasks.letters": load_task(self.config.task)}
        self.tasks, self.choices = held_out_tasks(self.config, self.trained)
        self.watch, self._resources = Ears(), resources

    def evaluator(self, **options: Any) -> HeldOutEvaluator:
        callbacks = Callbacks([self.watch])
        engine, config = NativeEngine(self.policy.model, self.policy.tokenizer), self.config
        limits = {"tokens_at_once": config.engine.max_batch_tokens, "prompts_at_once": config.eval.batch_size}
        model = in_process(self.policy, engine, warn=callbacks.on_warning, **limits)
        tasks = {label: held.task for label, held in self.tasks.items()}
        scoring = self._resources.enter_context(Scoring(tasks, self.config.scoring, self.policy))
        return HeldOutEvaluator(self.tasks, model, scoring, callbacks=callbacks, **options)

    def change(self) -> None:
        with torch.no_grad():
            for parameter in self.policy.model.parameters():
                parameter.mul_(1.5)


@pytest.fixture
def resources() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_base_interval_and_final_on_the_same_rows(tmp_path: Path, resources: ExitStack) -> None:
    lab = Lab(tmp_path, resources, task=f"{tmp_path}/tasks.py:again", interval_steps=2, subset_frac=0.5)
    evaluator = lab.evaluator(run=lab.run)
    assert [step for step in range(6) if evaluator.due("interval", step)] == [2, 4]
    metrics = {name.partition("tasks.again/")[2] for name in evaluator.run("initial", 0)}
    assert {"solved_rate", "ci_low", "entropy/mean", "tokens_per_s"} <= metrics
    assert not {"temperature", "delta"} & metrics
    lab.change()
    assert "eval/tasks.letters/delta" in evaluator.run("interval", 2)
    evaluator.run("final", 3)
    assert [(task, phase) for task, phase, _ in lab.watch.results] == [
        (f"tasks.{name}", phase) for phase in ("initial", "interval", "final") for name in ("letters", "again")
    ]
    assert evaluator.results["tasks.letters"]["final"]["n"] == 4, "half of the eight rows"
    out = tmp_path / "eval_runs" / "run_1_tasks.again"
    folders = sorted(path.name for path in out.iterdir() if path.is_dir())
    assert folders == ["base", "step_2", "step_final"]
    tables = [(out / name / "temp0.0_p1.0_r1" / "metrics.csv").read_text().splitlines() for name in folders]
    assert len({tuple(line.split(",")[0] for line in table) for table in tables}) == 1, "the same rows"
    assert (out / "consolidated_metrics.csv").read_text().count("\n") == 4


def test_an_end_on_an_interval_is_not_evaluated_twice(tmp_path: Path, resources: ExitStack) -> None:
    lab = Lab(tmp_path, resources, interval_steps=2)
    evaluator = lab.evaluator()
    evaluator.run("interval", 2)
    asked = len(lab.watch.progress)
    evaluator.run("final", 2)
    assert len(lab.watch.progress) == asked
    assert evaluator.results["tasks.letters"]["final"] == evaluator.results["tasks.letters"]["interval"]
    evaluator.run("final", 3)
    assert len(lab.watch.progress) == 2 * asked


def test_the_best_step_goes_by_the_tasks_that_are_evaluated_most_often(tmp_path: Path, resources: ExitStack) -> None:
    lab = Lab(tmp_path, resources, task=f"{tmp_path}/tasks.py:again", size=2, surprisal=False)
    letters, again = lab.tasks["tasks.letters"], lab.tasks["tasks.again"]
    assert lab.evaluator().judged_rate(2) is None, "nothing is evaluated in between"
    lab.tasks = {
        "tasks.letters": replace(letters, plan=replace(letters.plan, interval_steps=2)),
        "tasks.again": replace(again, plan=replace(again.plan, interval_steps=3)),
    }
    evaluator = lab.evaluator()
    due = [[label.removeprefix("tasks.") for label in evaluator.due("interval", step)] for step in (1, 2, 3, 6)]
    assert due == [[], ["letters"], ["again"], ["letters", "again"]]
    evaluator.run("interval", 3)
    assert (list(evaluator.results["tasks.again"]), evaluator.results["tasks.letters"]) == (["interval"], {})
    assert evaluator.judged_rate(3) is None, "another task's rate is no measure of the same thing"
    evaluator.run("interval", 6)
    evaluator.results["tasks.letters"]["interval"]["solved_rate"] = 0.25
    assert evaluator.judged_rate(6) == 0.25


def test_an_evaluation_of_which_little_was_scored_judges_no_checkpoint(tmp_path: Path, resources: ExitStack) -> None:
    lab = Lab(tmp_path, resources, surprisal=False, interval_steps=2)
    evaluator = lab.evaluator(max_abstain_share=0.25)
    evaluator.run("interval", 2)
    result, total = evaluator.results["tasks.letters"]["interval"], 8
    assert evaluator.judged_rate(2) == result["solved_rate"] and not lab.watch.said

    for solved, scored in ((1.0, 1), (None, 0)):  # a judge that was reached once, and never
        result |= {"solved_rate": solved, "n": scored, "abstained": total - scored}
        assert evaluator.judged_rate(2) is None
    assert [f"{total - 1} of {total} completions" in lab.watch.said[0], len(lab.watch.said)] == [True, 2]

    result |= {"solved_rate": 0.5, "n": total, "abstained": total // 4}
    assert evaluator.judged_rate(2) == 0.5


def test_the_model_and_the_random_numbers_are_left_as_they_were(tmp_path: Path, resources: ExitStack) -> None:
    lab = Lab(tmp_path, resources, n=2, temperature=1.0)
    lab.policy.model.train()
    before, state = {k: v.clone() for k, v in lab.policy.model.state_dict().items()}, torch.get_rng_state()
    with pytest.raises(StopRequested):
        lab.evaluator(should_stop=lambda: True).run("initial", 0)
    lab.evaluator().run("initial", 0)
    assert lab.policy.model.training
    assert all(torch.equal(value, before[name]) for name, value in lab.policy.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_task_is_evaluated_once_with_a_variant_beside_it(tmp_path: Path, resources: ExitStack) -> None:
    task = f"{tmp_path}/tasks.py:letters"
    assert list(Lab(tmp_path, resources, task=task).tasks) == ["tasks.letters"]
    assert list(Lab(tmp_path, resources, task=f"{task}?seed=1").tasks) == ["tasks.letters", f"{task}?seed=1"]
    (choice,) = Lab(tmp_path, resources, size=100).choices
    assert choice.value == "tasks.letters: 8 rows"


def test_files_of_another_run_and_a_folder_without_rights_are_left(tmp_path: Path, resources: ExitStack) -> None:
    lab = Lab(tmp_path, resources, size=2, surprisal=False)
    (tmp_path / "eval_runs").write_text("a file")
    lab.evaluator(run=lab.run).run("initial", 0)
    assert any("the evaluation's files are not written" in said for said in lab.watch.said)
    (tmp_path / "eval_runs").unlink()
    lab.evaluator(run=lab.run).run("initial", 0)
    (table,) = (tmp_path / "eval_runs").rglob("metrics.csv")
    before = table.stat().st_mtime_ns
    lab.evaluator(run=tmp_path / "elsewhere" / "run_1").run("initial", 0)
    assert table.stat().st_mtime_ns == before
    assert any("belongs to another run" in said for said in lab.watch.said)
