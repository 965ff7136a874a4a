from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_core import UserError, load_task
from grpo_core.evaluation.plan import settings_of
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_tasks_code.mbpp.environment import MBPPEnvironment, mbpp_environment


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MBPP_")]:
        monkeypatch.delenv(name)


def test_all_problems_are_evaluated_greedily_by_default() -> None:
    task = load_task("code.mbpp")
    found = task.evaluation
    assert (found.size, found.temperature) == (None, None), "left to eval.size, 512, and eval.temperature, 0"
    assert (found.split, found.interval_steps) == ("test", 20)
    settings, _ = settings_of(task, {}, EvaluationSettings())
    assert (settings.size, settings.n, settings.temperature) == (512, 1, 0.0)
    assert settings_of(task, {"n": 4}, EvaluationSettings())[0].temperature == 0.7, "several are sampled"
    assert (found.at_start, found.at_end, found.enabled, found.max_completion_length) == (True, True, True, 512)
    assert load_task("code.mbpp").config.timeout_s == 10.0  # type: ignore[attr-defined] # MBPPConfig


def test_the_names_are_the_references() -> None:
    names = {f"MBPP_{name.upper()}" for name in MBPPEnvironment.model_fields}
    assert names == {
        "MBPP_EVAL_ENABLED",
        "MBPP_EVAL_NUM_QUESTIONS",
        "MBPP_EVAL_AT_START",
        "MBPP_EVAL_AT_END",
        "MBPP_EVAL_INTERVAL_STEPS",
        "MBPP_DATASET_PATH",
        "MBPP_USE_SANITIZED",
        "MBPP_TEST_SPLIT",
        "MBPP_TIMEOUT_SECONDS",
        "MBPP_MAX_MEMORY_MB",
        "MBPP_SAFE_EXECUTION",
        "MBPP_MAX_NEW_TOKENS",
        "MBPP_TEMPERATURE",
        "MBPP_DO_SAMPLE",
        "MBPP_SAVE_RESULTS",
        "MBPP_RESULTS_DIR",
        "MBPP_VERBOSE",
    }


@pytest.mark.parametrize(
    ("variable", "value", "field", "read"),
    [
        ("MBPP_EVAL_ENABLED", "false", "enabled", False),
        ("MBPP_EVAL_NUM_QUESTIONS", "5", "size", 5),
        ("MBPP_EVAL_AT_START", "0", "at_start", False),
        ("MBPP_EVAL_AT_END", "no", "at_end", False),
        ("MBPP_EVAL_INTERVAL_STEPS", "7", "interval_steps", 7),
        ("MBPP_EVAL_INTERVAL_STEPS", "null", "interval_steps", None),
        ("MBPP_EVAL_INTERVAL_STEPS", " NULL ", "interval_steps", None),
        ("MBPP_EVAL_INTERVAL_STEPS", "none", "interval_steps", None),
        ("MBPP_EVAL_INTERVAL_STEPS", "", "interval_steps", None),
        ("MBPP_TEST_SPLIT", "validation", "split", "validation"),
        ("MBPP_MAX_NEW_TOKENS", "256", "max_completion_length", 256),
        ("MBPP_TEMPERATURE", "0.7", "temperature", 0.7),
        ("MBPP_TEMPERATURE", "null", "temperature", None),  # not set
        ("MBPP_DO_SAMPLE", "false", "temperature", 0.0),
        ("MBPP_DO_SAMPLE", "true", "temperature", 0.2),  # the reference's
    ],
)
def test_a_variable_changes_the_evaluation(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, field: str, read: object
) -> None:
    monkeypatch.setenv(variable, value)
    assert getattr(load_task("code.mbpp").evaluation, field) == read


@pytest.mark.parametrize(
    ("variable", "value", "option", "read"),
    [
        ("MBPP_DATASET_PATH", "rows.jsonl", "path", "rows.jsonl"),
        ("MBPP_USE_SANITIZED", "false", "variant", "full"),
        ("MBPP_USE_SANITIZED", "true", "variant", "sanitized"),
        ("MBPP_TIMEOUT_SECONDS", "4", "timeout_s", 4.0),
        ("MBPP_MAX_MEMORY_MB", "256", "memory_mib", 256),
    ],
)
def test_a_variable_is_the_default_of_an_option_and_the_spec_is_above_it(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, option: str, read: object
) -> None:
    monkeypatch.setenv(variable, value)
    assert getattr(load_task("code.mbpp").config, option) == read
    given = {"path": "other.jsonl", "variant": "sanitized", "timeout_s": "2", "memory_mib": "128"}[option]
    assert str(getattr(load_task(f"code.mbpp?{option}={given}").config, option)).removesuffix(".0") == given


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("MBPP_EVAL_NUM_QUESTIONS", "0", "MBPP_EVAL_NUM_QUESTIONS='0'"),
        ("MBPP_EVAL_NUM_QUESTIONS", "many", "MBPP_EVAL_NUM_QUESTIONS='many'"),
        ("MBPP_EVAL_AT_START", "maybe", "MBPP_EVAL_AT_START='maybe'"),
        ("MBPP_TEST_SPLIT", "prompt", "MBPP_TEST_SPLIT='prompt'"),
        ("MBPP_TEMPERATURE", "nan", "MBPP_TEMPERATURE='nan'"),
        ("MBPP_SAFE_EXECUTION", "false", "programs always run in the sandbox"),
        ("MBPP_EVAL_NUM_QUESTION", "3", "Did you mean MBPP_EVAL_NUM_QUESTIONS?"),
        ("MBPP_TIMEOUT_SECOND", "3", "Did you mean MBPP_TIMEOUT_SECONDS?"),
        ("MBPP_TIMEOUT_SECONDS", "9999", "timeout_s"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        load_task("code.mbpp")


def test_not_sampling_stands_above_a_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MBPP_TEMPERATURE", "0.7")
    monkeypatch.setenv("MBPP_DO_SAMPLE", "false")
    assert load_task("code.mbpp").evaluation.temperature == 0.0


def test_other_peoples_variables_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MBPP_CACHE", "x")
    monkeypatch.setenv("MBPP_VERBOSE", "true")  # of the reference: it changes nothing here
    assert mbpp_environment() == MBPPEnvironment(verbose=True)


def test_a_local_file_from_the_environment_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MBPP_DATASET_PATH", str(tmp_path / "absent.jsonl"))
    with pytest.raises(UserError, match=r"absent\.jsonl"):
        load_task("code.mbpp?split=test").rows()
