"""Scores rows of every procedural task, imports the light modules, and prints how many rows, and what is imported."""

import sys

import grpo_core
import grpo_core.config
import grpo_tasks_math.rewards  # noqa: F401
from grpo_sdk.data import ProceduralConfig
from grpo_sdk.plugins.host import default_host

scored = 0
for plugin, facts in default_host().facts().items():
    assert not facts.error, facts.error
    for name, task in default_host().tasks(plugin).items():
        if issubclass(task.config, ProceduralConfig):
            bound = grpo_core.load_task(f"{name}?size=3")
            for row in bound.rows():
                bound.prompt(row)
                assert row.gold is None or bound.score(row.gold, row).solved, (name, row)
                bound.score("certainly not", row)
                scored += 1
print(scored, *sys.modules)
