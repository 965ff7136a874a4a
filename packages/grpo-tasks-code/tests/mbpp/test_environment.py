import pytest

from grpo_core.evaluation.plan import settings_of
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_sdk import UserError, load_task


def test_all_problems_are_evaluated_greedily_by_default() -> None:
    task = load_task("code.mbpp")
    found = task.evaluation
    assert (found.split, found.interval_steps, found.max_completion_length) == ("test", 20, 512)
    assert (found.at_start, found.at_end, found.enabled) == (True, True, True)
    settings, _ = settings_of(task, {}, EvaluationSettings())
    assert (settings.size, settings.n, settings.temperature) == (512, 1, 0.0)


@pytest.mark.parametrize(("variable", "value", "field", "read"), [
    ("MBPP_EVAL_ENABLED", "false", "enabled", False),
    ("MBPP_EVAL_NUM_QUESTIONS", "5", "size", 5),
    ("MBPP_EVAL_AT_START", "0", "at_start", False),
    ("MBPP_EVAL_INTERVAL_STEPS", "7", "interval_steps", 7),
    ("MBPP_EVAL_INTERVAL_STEPS", "null", "interval_steps", None),
    ("MBPP_EVAL_INTERVAL_STEPS", "", "interval_steps", None),
    ("MBPP_TEST_SPLIT", "validation", "split", "validation"),
    ("MBPP_MAX_NEW_TOKENS", "256", "max_completion_length", 256),
    ("MBPP_TEMPERATURE", "0.7", "temperature", 0.7),
    ("MBPP_TEMPERATURE", "null", "temperature", None),  # not set
    ("MBPP_DO_SAMPLE", "false", "temperature", 0.0),
    ("MBPP_DO_SAMPLE", "true", "temperature", 0.2),  # the reference's
    ("MBPP_VERBOSE", "true", "enabled", True),  # of the reference: it changes nothing here
])  # fmt: skip
def test_a_variable_changes_the_evaluation(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, field: str, read: object
) -> None:
    monkeypatch.setenv(variable, value)
    assert getattr(load_task("code.mbpp").evaluation, field) == read


@pytest.mark.parametrize(("variable", "value", "option", "read"), [
    ("MBPP_DATASET_PATH", "rows.jsonl", "path", "rows.jsonl"),
    ("MBPP_USE_SANITIZED", "false", "variant", "full"),
    ("MBPP_USE_SANITIZED", "true", "variant", "sanitized"),
    ("MBPP_TIMEOUT_SECONDS", "4", "timeout_s", 4.0),
    ("MBPP_MAX_MEMORY_MB", "256", "memory_mib", 256),
])  # fmt: skip
def test_a_variable_is_the_default_of_an_option_and_the_spec_is_above_it(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, option: str, read: object
) -> None:
    monkeypatch.setenv(variable, value)
    assert getattr(load_task("code.mbpp").config, option) == read
    given = {"path": "other.jsonl", "variant": "sanitized", "timeout_s": "2", "memory_mib": "128"}[option]
    assert str(getattr(load_task(f"code.mbpp?{option}={given}").config, option)).removesuffix(".0") == given


@pytest.mark.parametrize(("variable", "value", "message"), [
    ("MBPP_EVAL_NUM_QUESTIONS", "0", "MBPP_EVAL_NUM_QUESTIONS='0'"),
    ("MBPP_EVAL_AT_START", "maybe", "MBPP_EVAL_AT_START='maybe'"),
    ("MBPP_TEST_SPLIT", "prompt", "MBPP_TEST_SPLIT='prompt'"),
    ("MBPP_TEMPERATURE", "nan", "MBPP_TEMPERATURE='nan'"),
    ("MBPP_SAFE_EXECUTION", "false", "programs always run in the sandbox"),
    ("MBPP_EVAL_NUM_QUESTION", "3", "Did you mean MBPP_EVAL_NUM_QUESTIONS?"),
    ("MBPP_TIMEOUT_SECONDS", "9999", "timeout_s"),
])  # fmt: skip
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
