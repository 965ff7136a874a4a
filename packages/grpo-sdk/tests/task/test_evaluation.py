import re
from dataclasses import replace
from typing import Any

import pytest
from scoring_tasks import sums

from grpo_sdk import Diagnosis, EvaluationDefaults, TaskConfig, UserError
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.scoring.conditions import condition_choices
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.spec import TaskSpec


def bound(name: str = "code.run", **options: Any) -> BoundTask:
    task = replace(sums, name=name.partition(".")[2], **options)
    return BoundTask(task, name, TaskConfig(seed=7), TaskSpec(name))


def test_conditions_are_found_out_once_and_do_not_change_what_the_task_is() -> None:
    asked: list[int] = []

    def conditions(config: TaskConfig) -> dict[str, str]:
        asked.append(config.seed)
        return {"sandbox": "L3:\n no network"}

    task = bound(conditions=conditions)
    assert task.conditions == task.conditions == {"sandbox": "L3: no network"}
    assert asked == [7]
    assert bound().conditions == {}
    assert task.identity == bound().identity


def raising(error: Exception) -> Any:
    def conditions(config):
        raise error

    return conditions


@pytest.mark.parametrize(("options", "message"), [
    ({"conditions": raising(ValueError("x"))}, r"'code\.run': conditions\(\) raised ValueError \(test_eval"),
    ({"conditions": lambda config: {"sandbox": 3}}, r"'code\.run': conditions\(\) must give text .*'sandbox': 3"),
    ({"conditions": raising(UserError("say ?sandbox=L1"))}, r"^task 'code\.run': say \?sandbox=L1$"),
    ({"evaluation": lambda config: {"size": 5}}, r"evaluation\(\) must give EvaluationDefaults, not \{'size'"),
    ({"evaluation": lambda config: EvaluationDefaults(size=0)}, r"'code\.run': EvaluationDefaults\(size=0\)"),
    ({"conditions": lambda this, that: {}}, r"task 'run': conditions: <lambda>\(\) takes 'this'"),
])  # fmt: skip
def test_a_task_that_cannot_say_is_named(options: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _ = bound(**options).conditions, bound(**options).evaluation


def test_equal_conditions_are_shown_once_with_all_their_tasks() -> None:
    same = {"sandbox": "L3"}
    tasks = {
        "code.a": bound("code.a", conditions=lambda config: same),
        "code.b": bound("code.b", conditions=lambda config: {**same, "engine": "none"}),
        "math.c": bound("math.c"),
    }
    assert condition_choices(tasks) == [
        ResolvedDefault("sandbox", "L3", "the scores of code.a, code.b depend on it"),
        ResolvedDefault("engine", "none", "the scores of code.b depend on it"),
    ]


def test_an_evaluation_is_left_to_the_user_unless_the_task_wishes_something() -> None:
    assert bound().evaluation == EvaluationDefaults()
    wishes = EvaluationDefaults(size=5, interval_steps=20, temperature=0.2)
    assert bound(evaluation=lambda config: wishes).evaluation is wishes


@pytest.mark.parametrize(("name", "value"), [
    ("size", 0), ("interval_steps", -1), ("temperature", -0.1), ("temperature", float("nan")), ("top_p", 0.0),
    ("top_p", 1.5),
])  # fmt: skip
def test_wishes_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(UserError, match=re.escape(f"EvaluationDefaults({name}={value})")):
        EvaluationDefaults(**{name: value})


def test_a_diagnosis_has_one_of_three_states() -> None:
    with pytest.raises(UserError, match=r"Diagnosis\('sandbox', status='good'\): must be ok, warn, fail"):
        Diagnosis("sandbox", "good", "")  # type: ignore[arg-type] # on purpose
