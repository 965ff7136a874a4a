import pytest

from grpo_sdk import load_task
from grpo_tasks_gym.reasoning_gym.catalogue import datasets, read_datasets


def test_datasets_json_is_that_of_the_installed_reasoning_gym(monkeypatch: pytest.MonkeyPatch) -> None:
    names = datasets()
    flags = {name: str(facts.needs_process) for name, facts in names.items()}
    monkeypatch.setattr(  # measured when the file is written
        "grpo_tasks_gym.reasoning_gym.catalogue._digests",
        lambda seed: {name: seed if flag == "True" else "" for name, flag in flags.items()},
    )
    assert read_datasets() == names and len(names) == 106


def test_options_show_the_defaults_of_the_data_set() -> None:
    config = load_task("reasoning_gym.basic_arithmetic").config
    assert config.operators == ("+", "-", "*", "/") and config.format_style == "simple"  # type: ignore[attr-defined]
