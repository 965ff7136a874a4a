"""Tasks of several turns, games and stop strings in TRL's own trainer."""

import json
import math
from pathlib import Path
from typing import Any

import group_tasks
import pytest
import small_games
from trl_trainers import Scripted, rewards_logged, save_model, trainer_of, written

from grpo_core.evaluation.settings import EvaluationSettings
from grpo_sdk.errors import UserError
from grpo_sdk.interop.trl import EvaluationCallback, TrlTask

trl = pytest.importorskip("trl")
pytestmark = pytest.mark.filterwarnings("ignore")  # TRL's and accelerate's own warnings are not ours to fail on

TASKS = Path(__file__).with_name("programs") / "trl_tasks.py"
GUESS = f"{Path(small_games.__file__)}:GUESS"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trl_task")
    save_model(path)
    return path


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The completions that the real trainer computes losses of."""
    seen: list[dict[str, Any]] = []
    compute = trl.GRPOTrainer._compute_loss

    def computing(self: Any, model: Any, inputs: dict[str, Any]) -> Any:
        seen.append(inputs)
        return compute(self, model, inputs)

    monkeypatch.setattr(trl.GRPOTrainer, "_compute_loss", computing)
    return seen


def rolled_out(folder: Path, spec: str, **options: Any) -> Any:
    """A trainer after two steps with our rollouts."""
    with TrlTask(spec, workers=1) as task:
        trainer = trainer_of(folder, task.reward_funcs, task.train_dataset, rollout_func=task.rollout_func, **options)
        trainer.train()
    return trainer


def texts_of(trainer: Any, batches: list[dict[str, Any]], mask: str = "completion_mask") -> list[str]:
    return [
        trainer.processing_class.decode(ids[kept.bool()], skip_special_tokens=True)
        for batch in batches
        for ids, kept in zip(batch["completion_ids"], batch[mask] * batch["completion_mask"], strict=True)
    ]


def test_completions_end_at_the_stop_string(folder: Path, batches: list[dict[str, Any]]) -> None:
    evaluation = EvaluationCallback("math.echo", settings=EvaluationSettings(size=2, max_completion_length=4))
    trainer = rolled_out(folder, f"{TASKS}:stopping", callbacks=[evaluation])
    assert [entry["step"] for entry in trainer.state.log_history if "eval/math.echo/n" in entry] == [0, 2]
    texts = texts_of(trainer, batches)
    stop = ("a", "e", "1", "2", "3", " ")
    assert any(text.endswith(stop) for text in texts)
    assert not any(string in text[:-1] for text in texts for string in stop)


def test_turns_are_trained_and_what_is_said_between_them_is_not(folder: Path, batches: list[dict[str, Any]]) -> None:
    trainer = rolled_out(folder, f"{TASKS}:turns")
    assert any(" again:" in text for text in texts_of(trainer, batches))
    assert not any(" again:" in text for text in texts_of(trainer, batches, "tool_mask"))
    assert [entry["trl_tasks.turns/abstained_rate"] for entry in rewards_logged(trainer)] == [0.0, 0.0]


@pytest.mark.parametrize(("spec", "tool", "answers", "shown"), [
    (GUESS, "answer", ["no digit", "0", "9"], "a digit, please"),
    ("games.nim?opponent=random&heaps=3&seed=1&size=4", "move", ["<answer>[A1]</answer>"], "heap"),
], ids=["answers", "moves"])  # fmt: skip
def test_the_real_tool_loop_plays_a_task(folder, spec, tool, answers, shown):
    with TrlTask(spec, workers=1) as task:
        long = {"max_completion_length": 2000, "max_steps": 1, "per_device_train_batch_size": 2}
        factory = task.environment_factory
        trainer = trainer_of(folder, task.reward_funcs, task.train_dataset, long, environment_factory=factory)
        texts = [*(written(tool, text=answer) for answer in answers), "well played"]
        scripted = trainer._generate_single_turn = Scripted(trainer, lambda said: texts[said.count("<tool_response>")])
        trainer.train()
    (name,) = task.tasks
    (logged,) = rewards_logged(trainer)
    assert logged[f"{name}/abstained_rate"] == logged["tools/failure_frequency"] == 0.0
    assert f"calling the tool {tool}" in scripted.prompts[0]
    assert shown in next(each for each in scripted.prompts if "<tool_response>" in each).rpartition("user\n")[2]


def test_a_model_that_calls_no_tool_has_answered() -> None:
    with TrlTask(GUESS, workers=1) as task:
        environment = task.environment_factory()
        row = next(each for each in task.train_dataset if json.loads(each["row"])["secret"] == 9)
        environment.reset(**row)
        (reward,) = task.reward_funcs
        said = [{"role": "assistant", "content": "9"}]
        columns = {"row": [row["row"]], "task": [row["task"]]}
        assert reward(completions=[said], environments=[environment], **columns) == [1.0]
        with pytest.raises(UserError, match=r"task\.rollout_func\), or environment_factory="):
            reward(completions=[said], **columns)
        # A rollout that ended in a tool call is scored by its turns.
        environment.reset(**row)
        assert "higher" in environment.answer("3")
        assert environment.answer("9") == environment.answer("4") == "That was the last turn."
        called = [{"role": "assistant", "content": "", "tool_calls": [{}]}]
        assert reward(completions=[called], environments=[environment], **columns) == [1.0]


def test_a_task_has_what_a_trainer_of_it_needs() -> None:
    with TrlTask(f"{TASKS}:turns,{TASKS}:stopping", workers=1) as task:
        assert set(task.environment_factory) == set(task.tasks) == set(task.train_dataset["environment"])
    with TrlTask(f"{TASKS}:turns", workers=1) as task:
        assert all(json.loads(row)["a"] > 100 for row in task.eval_dataset["row"]), "of the test split"
        assert task.generation_kwargs == {}
    with TrlTask(f"{TASKS}:stopping", workers=1) as task:  # for vLLM
        stop = [" ", "1", "2", "3", "a", "e"]
        assert task.generation_kwargs == {"stop": stop, "include_stop_str_in_output": True}


def test_what_trl_cannot_train_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"games\.nim\?opponent=random"):
        TrlTask("games.nim", workers=1)
    with TrlTask("games.nim?opponent=random", workers=1) as task, pytest.raises(UserError, match="environment_factory"):
        task.rollout_func  # noqa: B018 - a property that refuses
    with TrlTask(GUESS, workers=1) as task:
        rows = task.train_dataset
        with pytest.raises(UserError, match="have the same prompt"):
            task._row_of(rows[0]["prompt"])
        with pytest.raises(UserError, match="no row of the task has"):
            task._row_of("another")


@pytest.mark.slow
@pytest.mark.parametrize("eval_size", [None, 1])
def test_trl_evaluates_a_task_with_group_rewards(folder: Path, eval_size: int | None) -> None:
    config = {"per_device_eval_batch_size": 4, "num_generations_eval": eval_size, "max_completion_length": 2}
    evaluated = {"max_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    words = f"{Path(group_tasks.__file__)}:words"
    with TrlTask(words, workers=1, num_generations=2, num_generations_eval=eval_size, max_abstain_share=1.0) as task:
        rows, test = task.train_dataset, task.eval_dataset
        trainer = trainer_of(folder, task.reward_funcs, rows, config | evaluated, eval_dataset=test)
        trainer.train()
    (entry,) = (entry for entry in trainer.state.log_history if "eval_reward" in entry)
    assert math.isfinite(entry["eval_reward"])
