from types import SimpleNamespace

import pytest
import torch
from evaluation_runs import TASKS

from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.policy.fresh import fresh_model
from grpo_sdk.errors import UserError
from grpo_sdk.interop.trl import EvaluationCallback

ARGS = SimpleNamespace(bf16=False, fp16=False, world_size=1, output_dir="out")
SETTINGS = EvaluationSettings(size=4, max_completion_length=4)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("callback") / "tasks.py"
    path.write_text(TASKS)
    return f"{path}:letters"


class FakeTrainer:
    """What a trainer tells its callbacks, without training."""

    def __init__(self, callback: EvaluationCallback) -> None:
        model, tokenizer = fresh_model("tiny", seed=0)
        self.given = {"model": model, "processing_class": tokenizer}
        self.state = SimpleNamespace(global_step=0, log_history=[])
        self.callback = callback

    def train(self, steps: int, start: int = 0) -> None:
        self.state.global_step = start
        self.callback.on_train_begin(ARGS, self.state, None, **self.given)
        for step in range(start + 1, start + steps + 1):
            self.state.global_step = step
            self.callback.on_step_end(ARGS, self.state, None, **self.given)
        self.callback.on_train_end(ARGS, self.state, None, **self.given)


@pytest.mark.parametrize(("options", "steps", "start", "moments"), [
    ({"interval_steps": 2}, 5, 0, [("initial", 0), ("interval", 2), ("interval", 4), ("final", 5)]),
    ({"interval_steps": 2, "at_start": False}, 4, 0, [("interval", 2), ("interval", 4)]),  # the end is on one
    ({}, 2, 3, [("final", 5)]),  # of a training that is resumed
])  # fmt: skip
def test_at_the_start_each_interval_and_the_end(spec, options, steps, start, moments):
    trainer = FakeTrainer(EvaluationCallback(spec, settings=SETTINGS, **options))
    trainer.train(steps, start)
    assert [(phase, step) for phase, step, _, _ in trainer.callback.results] == moments
    logged = trainer.state.log_history
    assert [entry["step"] for entry in logged] == [step for _, step in moments]
    assert 0 <= logged[0]["eval/tasks.letters/solved_rate"] <= 1 and logged[0]["eval/tasks.letters/n"] == 4
    assert {"eval/tasks.letters/surprisal/mean", "eval/tasks.letters/tokens_per_s"} <= set(logged[0])
    assert "eval/tasks.letters/delta" not in logged[0]
    deltas = [entry["eval/tasks.letters/delta"] for entry in logged[1:] if moments[0] == ("initial", 0)]
    assert not any(deltas), "nothing was trained"


def test_several_tasks_and_several_completions(spec: str) -> None:
    both = f"{spec},{spec.replace(':letters', ':again')}"
    settings = EvaluationSettings(size=2, n=2, temperature=1.0, max_completion_length=4, surprisal=False)
    trainer = FakeTrainer(EvaluationCallback(both, at_end=False, settings=settings))
    trainer.given["model"].train()
    state = torch.get_rng_state()
    trainer.train(1)
    assert [label for _, _, label, _ in trainer.callback.results] == ["tasks.letters", "tasks.again"]
    (entry,) = trainer.state.log_history
    assert "eval/tasks.again/pass@2" in entry and "eval/tasks.again/entropy/mean" not in entry
    assert torch.equal(torch.get_rng_state(), state) and trainer.given["model"].training


def test_mistakes_are_found_when_it_is_made(spec: str) -> None:
    with pytest.raises(UserError, match="no task"):
        EvaluationCallback("math.gsm9k")
    with pytest.raises(UserError, match="interval_steps=0"):
        EvaluationCallback(spec, interval_steps=0)
