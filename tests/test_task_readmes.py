"""The README of each package of tasks names every task and every option of its own."""

import re

import pytest
from documentation_pages import ROOT

from grpo_sdk import TaskConfig
from grpo_sdk.data import DatasetConfig, ProceduralConfig
from grpo_sdk.plugins.host import PluginHost

SAID_ONCE = {
    *TaskConfig.model_fields, *ProceduralConfig.model_fields, *DatasetConfig.model_fields, "timeout_s", "memory_mib",
}  # fmt: skip


@pytest.mark.parametrize("plugin", ["math", "code", "chess"])
def test_every_task_and_every_option_of_its_own_is_there(plugin: str) -> None:
    readme = (ROOT / "packages" / f"grpo-tasks-{plugin}" / "README.md").read_text(encoding="utf-8")
    for name, task in PluginHost(only=(plugin,)).tasks(plugin).items():
        assert f"| `{name}` |" in readme
        for option in set(task.config.model_fields) - SAID_ONCE:
            assert re.search(rf"`{option}[=`]", readme), (name, option)
