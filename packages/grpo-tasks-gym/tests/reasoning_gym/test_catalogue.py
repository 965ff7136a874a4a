import runpy
from pathlib import Path

from grpo_sdk import load_task
from grpo_tasks_gym.reasoning_gym.catalogue import datasets

WRITER = Path(__file__).parents[4] / "docs" / "gym_catalogue.py"


def test_datasets_json_is_that_of_the_installed_reasoning_gym() -> None:
    names = datasets()
    flags = {name: str(facts.needs_process) for name, facts in names.items()}
    writer = runpy.run_path(str(WRITER))["read_datasets"]
    writer.__globals__["_digests"] = lambda seed: {  # measured when the file is written
        name: seed if flag == "True" else "" for name, flag in flags.items()
    }
    assert writer() == names and len(names) == 106


def test_options_show_the_defaults_of_the_data_set() -> None:
    config = load_task("reasoning_gym.basic_arithmetic").config
    assert config.operators == ("+", "-", "*", "/") and config.format_style == "simple"  # type: ignore[attr-defined]
