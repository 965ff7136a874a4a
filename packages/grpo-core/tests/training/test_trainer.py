"""Whole runs: what they leave behind, with each baseline, loss, penalty and sampling rule."""

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from heard import Heard

from grpo_core import train
from grpo_core.config import RunConfig, TrainerConfig, resolve, with_settings
from grpo_core.engines import native
from grpo_core.training.result import RunResult
from grpo_sdk.errors import AbstentionLimitError, UserError

Trained = Callable[..., RunResult]


@pytest.fixture(scope="module")
def evaluated(trained: Trained) -> RunResult:
    return trained(eval={"size": 8})


def state_of(result: RunResult) -> dict[str, Any]:
    return json.loads((result.run_dir / "training_state" / "step_final" / "trainer_state.json").read_text())


def test_a_run_leaves_everything_that_was_promised(evaluated: RunResult) -> None:
    run, summary = evaluated.run_dir, evaluated.summary
    assert run.name.startswith("run_")
    assert yaml.safe_load((run / "config.yaml").read_text())["trainer"]["num_generations"] == 4
    assert "GPU profile cpu: " in (run / "config.yaml").read_text().partition("\n\n")[0]
    assert (run / "logs" / "train.log").read_text().splitlines()[0].startswith("step=1 reward=")
    assert (run / "training_state" / "step_final" / "model" / "model.safetensors").is_file()
    assert json.loads((run / "summary.json").read_text()) == summary
    task = summary["tasks"]["letters.letters"]
    for phase in ("initial", "final"):
        assert {"solved_rate", "ci_low", "ci_high", "n", "mean_reward"} <= task[phase].keys()
        assert task[phase]["n"] == 8
    assert {"delta", "delta_ci_low", "delta_ci_high"} <= task["final"].keys()
    assert {"steps", "seconds", "tokens", "peak_memory_mib", "versions", "seed"} <= summary.keys()
    for name in ("memory/generate_mib", "memory/update_mib"):
        assert summary[name] == max(step[name] for step in evaluated.metrics)
        assert 0 < summary[name] <= summary["peak_memory_mib"]
    rollouts = evaluated.rollouts()
    assert len(rollouts) == 2 * 4 * 4
    assert rollouts[0].score.parts.keys() == {"printable"}
    assert rollouts[0].identity == task["identity"]


def test_a_resolved_configuration_is_taken_as_it_is(evaluated: RunResult, tmp_path: Path) -> None:
    given = yaml.safe_load((evaluated.run_dir / "config.yaml").read_text())
    settings = {"task": given["task"], "model": given["model"], "output_dir": str(tmp_path), "max_steps": 1}
    resolved, heard = resolve(with_settings(RunConfig(), {**settings, "eval": {"size": 2}})), Heard()
    run = train(resolved, [heard], progress=False).run_dir
    assert [choice for choice in heard.chosen if choice in resolved.choices] == list(resolved.choices) != []
    assert yaml.safe_load((run / "config.yaml").read_text()) == resolved.config.model_dump(mode="json")


def test_another_seed_gives_another_run(trained: Trained, evaluated: RunResult) -> None:
    assert trained(seed=1).metrics[0]["reward"] != evaluated.metrics[0]["reward"]


def test_too_many_abstentions_end_the_run_and_name_the_task(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(AbstentionLimitError, match=r"letters\.broken.*ZeroDivisionError"):
        trained("letters.py:broken", output_dir=str(tmp_path))
    (run,) = tmp_path.iterdir()  # and nothing is lost: the evidence and the model are there
    assert "ZeroDivisionError" in (run / "logs" / "rollouts.jsonl").read_text()
    assert (run / "training_state" / "step_latest" / "model" / "model.safetensors").is_file()


def test_what_fits_no_prompt_is_refused(trained: Trained) -> None:
    with pytest.raises(UserError, match=r"context is 512 tokens, 512 - 512 = 0"):
        trained(max_completion_length=512)


def test_the_pass_rate_curriculum_is_updated_and_saved(trained: Trained) -> None:
    state = state_of(trained(curriculum={"enabled": True, "ema_alpha": 0.5}))
    (order,) = state["mixture"]["orders"].values()
    assert len(order["pass_rate"]) == 8  # every row was drawn once in two steps of four
    assert any(rate != 0.5 for rate in order["pass_rate"].values())


def test_an_opponent_answers_the_whole_batch_and_reaches_the_rewards(trained: Trained) -> None:
    result = trained("letters.py:duel", lora={"enabled": True, "r": 4}, eval={"size": 8, "at_start": False})
    for step in result.metrics:
        assert step["abstained"] == 0
        assert "task/letters.duel/part/unpredicted" in step
    assert result.summary["tasks"]["letters.duel"]["final"]["n"] == 8


def test_a_ladder_climbs_on_held_out_rows_and_long_golds_are_dropped(trained: Trained) -> None:
    heard, evaluation = Heard(), {"size": 80, "surprisal": False}
    result = trained(
        "letters.py:climb", [heard], max_gold_length=1, curriculum={"ladder_eval_steps": 1}, eval=evaluation
    )
    (order,) = state_of(result)["mixture"]["orders"].values()
    assert (order["rung"], order["mastered"]) == (2.0, True)  # one rung a step: everything is solved
    assert list(heard.rows.values()) == [(60, 80)]  # every fourth gold has three tokens


# A first batch without anything to learn from


def test_a_model_that_was_chosen_and_cannot_learn_ends_the_run_with_advice(tmp_path: Path) -> None:
    task = f"{Path(__file__).parent / 'programs' / 'letters.py'}:impossible"
    sizes = {"prompts_per_step": 16, "max_steps": 1, "num_generations": 4, "max_completion_length": 6}
    with pytest.raises(UserError, match=r"^all 64 completions of the first 16 prompts by tiny earn 0\. ") as caught:
        train(task, output_dir=str(tmp_path), at_start=False, at_end=False, progress=False, **sizes)
    for cure in (f"grpo warm-start --task {task} --preset tiny --out ./warm", f"grpo run --quick --task {task}"):
        assert cure in str(caught.value)


@pytest.mark.parametrize(("task", "warnings"), [("impossible", 1), ("possible", 0)])
def test_others_are_trained(trained: Trained, task: str, warnings: int) -> None:
    trained(f"letters.py:{task}", [heard := Heard()], prompts_per_step=16, max_steps=1)
    assert sum("nothing to learn from" in message for message in heard.warnings) == warnings


# Algorithms


def test_the_greedy_completions_of_remax_are_sampled(trained: Trained) -> None:
    result = trained("letters.py:coins", baseline="remax", scale_rewards="none", num_generations=6)
    assert max(step["grad_norm"] for step in result.metrics) > 0


def test_on_policy_the_sampler_agrees_with_the_trainer_at_any_temperature(trained: Trained) -> None:
    for step in trained(temperature=0.7).metrics:
        assert step["ratio_mean"] == 1.0 and step["sampler_mismatch"] < 1e-5


def test_kl_in_the_reward_changes_the_advantages_once_the_policy_has_moved(trained: Trained) -> None:
    options = {"baseline": "reinforce_pp", "scale_rewards": "none", "learning_rate": 1e-2}
    plain = trained(**options).metrics
    penalised = trained(beta=0.5, kl="k1", kl_placement="reward", **options).metrics
    assert penalised[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert penalised[1]["kl/k3"] > 0
    assert penalised[0]["grad_norm"] == pytest.approx(plain[0]["grad_norm"], rel=1e-3)
    assert penalised[1]["grad_norm"] != pytest.approx(plain[1]["grad_norm"], rel=1e-3)


def test_the_value_head_learns_and_is_saved(trained: Trained) -> None:
    value = {"baseline": "value", "value_head": True, "use_gae": True, "scale_rewards": "none"}
    result = trained(**value, value_learning_rate=1e-2, max_steps=8)
    assert result.metrics[-1]["loss/value"] < result.metrics[0]["loss/value"]
    assert (result.run_dir / "training_state/step_final/model/value_head.safetensors").stat().st_size > 1000


def test_dynamic_sampling_replaces_groups_that_teach_nothing(trained: Trained) -> None:
    # Of this task, half of the prompts always get reward 1.
    assert trained("letters.py:halves", num_generations=8).metrics[0]["frac_reward_zero_std"] > 0
    for step in trained("letters.py:halves", num_generations=8, dynamic_sampling=True).metrics:
        assert step["frac_reward_zero_std"] == step["dynamic_sampling/unfilled"] == 0
        assert step["dynamic_sampling/rejected"] >= 1
    vain = trained(dynamic_sampling=True, dynamic_sampling_attempts=2, dynamic_sampling_min_std=10.0, max_steps=1)
    names = ("attempts", "rejected", "unfilled")
    assert [vain.metrics[0][f"dynamic_sampling/{name}"] for name in names] == [2, 8, 4]  # all 4 groups, twice


# Precisions


def test_steps_that_overflow_are_skipped_and_counted(
    folder: Path, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.amp, "GradScaler", functools.partial(torch.amp.GradScaler, init_scale=2.0**28))
    result = trained(f"{folder / 'tasks.py'}:letters", precision="float16", max_steps=20, learning_rate=3e-3)
    steps = result.metrics
    is_skipped = ["grad_norm" not in step for step in steps]  # it has none that is finite
    assert is_skipped[0] and not is_skipped[-1] and sum(is_skipped) > 3
    assert result.summary["skipped_updates"] == steps[-1]["skipped_updates"] == sum(is_skipped)
    assert all(math.isfinite(value) for step in steps for value in step.values())


@pytest.mark.parametrize(("precision", "corrected"), [("float32", True), ("bfloat16", False)])
def test_bfloat16_samples_are_corrected_in_a_float32_run(
    trained: Trained, precision: str, corrected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "multiplies_bfloat16", lambda: True)
    engine = {"args": {"dtype": "bfloat16"}}
    result = trained(callbacks=[heard := Heard()], precision=precision, engine=engine)
    assert ("engine.args.dtype=bfloat16" in str(heard.choices.get("trainer.rollout_correction"))) is corrected
    assert all(step["sampler_mismatch"] > 0 for step in result.metrics)
    assert all(("rollout_weight" in step) is corrected for step in result.metrics)


# Evaluations


def test_the_best_step_is_saved_and_outlives_the_pruning(trained: Trained) -> None:
    # Of a run that does not learn, so that no evaluation is better than the first.
    sizes = {"max_steps": 6, "prompts_per_step": 2, "num_generations": 2, "learning_rate": 0.0}
    often = {"size": 4, "interval_steps": 1, "at_start": False, "surprisal": False}
    result = trained(keep_best=True, keep_last=1, save_every=2, eval=often, **sizes)
    state = result.run_dir / "training_state"
    assert sorted(path.name for path in state.iterdir()) == ["step_1", "step_6", "step_final", "step_latest"]
    assert result.summary["best"] == {"step": 1, "solved_rate": 1.0, "waited": 5}
    evaluations = (result.run_dir / "logs" / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in evaluations] == [1, 2, 3, 4, 5, 6, 6]  # the last is the final one


@pytest.mark.parametrize("option", [{"keep_best": True}, {"early_stop_patience": 2}])
def test_what_goes_by_interval_evaluations_needs_some(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"trainer\.(keep_best|early_stop_patience)=.*eval\.interval_steps"):
        RunConfig(trainer=TrainerConfig(**option))
