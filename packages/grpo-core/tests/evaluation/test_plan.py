from dataclasses import replace
from typing import Any

import yaml

from grpo_core.config import EvalConfig, RunConfig, TrainerConfig, load_config, resolve, to_yaml
from grpo_core.evaluation.plan import open_settings, plan_of, settings_of
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_sdk import BoundTask, EvaluationDefaults, TaskConfig, load_task
from grpo_sdk.task.spec import TaskSpec


def bound(**wishes: Any) -> BoundTask:
    evaluation = None if not wishes else lambda config: EvaluationDefaults(**wishes)
    task = replace(load_task("math.echo").task, evaluation=evaluation)
    return BoundTask(task, "code.mbpp", TaskConfig(), TaskSpec("code.mbpp"))


MBPP = {"size": 5, "interval_steps": 20, "temperature": 0.2, "max_completion_length": 512}


def config(**held: Any) -> RunConfig:
    return RunConfig(task="code.mbpp", model="tiny", seed=3, trainer=TrainerConfig(max_completion_length=64), eval=held)


def test_without_wishes_a_run_decides() -> None:
    plan, said = plan_of(config(size=16, interval_steps=50, at_end=False), bound())
    assert plan.settings == EvaluationSettings(size=16, max_completion_length=64, seed=3)
    assert (plan.at_start, plan.interval_steps, plan.at_end, said) == (True, 50, False, [])


def test_a_task_wishes_below_what_the_user_says() -> None:
    plan, (choice,) = plan_of(config(size=16, interval_steps=None, at_start=False), bound(**MBPP))
    assert plan.settings == EvaluationSettings(size=16, temperature=0.2, max_completion_length=512, seed=3)
    assert (plan.at_start, plan.at_end) == (False, True)
    assert plan.interval_steps is None, "null is what the user says, and means never"
    assert (choice.what, choice.value) == ("evaluation", "code.mbpp: temperature=0.2, max_completion_length=512")
    assert choice.why == "the task's own wish, below eval.temperature, eval.max_completion_length"


def test_null_leaves_the_length_open() -> None:
    assert plan_of(config(max_completion_length=None), bound(**MBPP))[0].settings.max_completion_length == 512
    assert plan_of(config(max_completion_length=None), bound())[0].settings.max_completion_length == 64
    assert plan_of(config(max_completion_length=9), bound(**MBPP))[0].settings.max_completion_length == 9


def test_a_task_that_is_not_to_be_evaluated_is_not() -> None:
    plan, (choice,) = plan_of(config(interval_steps=2), bound(enabled=False, **MBPP))
    assert not plan.has_any
    assert (choice.value, choice.why) == ("code.mbpp: none", "the task says so: enabled=False")


def test_the_settings_survive_a_runs_own_configuration(tmp_path: Any) -> None:
    # config.yaml holds every setting; were it to hold these, they would be the user's words when the run goes on.
    resolved = resolve(RunConfig(task="math.echo", model="tiny", eval=EvalConfig(size=16))).config
    task = bound(**MBPP)
    left_open = open_settings(resolved, {"code.mbpp": task})
    assert left_open == {"eval.interval_steps", "eval.temperature", "eval.max_completion_length"}
    text = to_yaml(resolved, leave_out=left_open)
    (tmp_path / "config.yaml").write_text(text)
    assert yaml.safe_load(text)["eval"]["size"] == 16
    loaded = load_config(config_file=tmp_path / "config.yaml", environ={}, dotenv_path=None)
    again = resolve(loaded.config, loaded.sources).config
    assert again == resolved
    assert plan_of(again, task)[0] == plan_of(resolved, task)[0]
    assert open_settings(resolved, {"math.echo": bound()}) == frozenset()


def test_several_completions_that_nobody_says_a_temperature_for_are_sampled() -> None:
    ours = EvaluationSettings()
    assert settings_of(bound(), {"n": 4}, ours)[0].temperature == 0.7
    assert settings_of(bound(temperature=0.2), {"n": 4}, ours)[0].temperature == 0.2
    assert settings_of(bound(num_completions=4), {}, ours)[0].temperature == 0.7
