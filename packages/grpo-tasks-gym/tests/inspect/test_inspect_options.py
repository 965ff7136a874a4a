from importlib import util

import pytest

from grpo_sdk import UserError, load_task
from grpo_tasks_gym.inspect.plugin import InspectConfig, grpo_tasks


def test_the_task_is_known_and_shown_without_a_file() -> None:
    assert [task.name for task in grpo_tasks()] == ["task"]
    task = load_task("inspect.task")
    assert set(InspectConfig.model_fields) >= {"file", "name", "args", "split_by", "limit", "weights", "maximum"}
    assert "no sandbox" in task.conditions["isolation"]
    with pytest.raises(UserError, match=r"give \?file="):
        task.rows()


@pytest.mark.parametrize(("options", "message"), [
    ("name=gsm8k", "give its file=, or the name of a package's task, PACKAGE/gsm8k"),
    ("flie=evals.py", r"no option 'flie'\. Did you mean 'file'"),
    pytest.param(
        "file=evals.py",
        r"inspect-ai is not installed: pip install 'grpo-tasks-gym\[inspect\]'",
        marks=pytest.mark.skipif(util.find_spec("inspect_ai") is not None, reason="inspect-ai is installed"),
    ),
])  # fmt: skip
def test_mistakes_are_named(options: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_task(f"inspect.task?{options}")


def test_a_path_is_quoted_as_in_a_url() -> None:
    config = InspectConfig.model_validate_strings({"file": "a b/evals.py"})
    assert config.target()["file"].endswith("/a b/evals.py")
