"""The task of the plugin, `openenv.remote`: episodes of an environment at an address."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from grpo_sdk import EvaluationDefaults, Message, Prompt, Remote, Task, hookimpl
from grpo_tasks_gym.openenv.options import EpisodeRow, OpenEnvConfig, ToolsRow, as_messages
from grpo_tasks_gym.servers import verdicts

MARGIN = 3.0
"""Times the limit of a request in which a worker must have begun an episode: it connects, resets and lists tools."""


def load(config: OpenEnvConfig) -> Sequence[EpisodeRow]:
    """OpenEnv: episodes of an environment at an address."""
    from grpo_tasks_gym.openenv.rows import load_rows  # brings httpx and websockets

    return load_rows(config)


def prompt(row: EpisodeRow, config: OpenEnvConfig) -> Prompt:
    """The first observation."""
    shown, instruction = row.observation, config.instruction
    if not shown:
        return (Message(role="user", content=instruction),) if config.chat else instruction
    if isinstance(shown, str) and not config.chat:
        return f"{instruction}\n\n{shown}" if instruction else shown
    messages = (Message(role="user", content=shown),) if isinstance(shown, str) else as_messages(shown)
    return (Message(role="system", content=instruction), *messages) if instruction else messages


def specialize(config: OpenEnvConfig, task: Task) -> Task:
    """The task with the environment's tools, where calls of them are its actions."""
    if config.actions == "text" or not config.url:
        return dataclasses.replace(task, specialize=None)
    from grpo_tasks_gym.openenv import tools  # as above

    return dataclasses.replace(
        task,
        row=ToolsRow,
        validate=tools.validate,
        tools=tools.tools_of(config),
        environment=tools.ToolEpisode,
        timeout_s=MARGIN * config.timeout_s,
        remote=None,
        specialize=None,
    )


def max_turns(config: OpenEnvConfig) -> int:
    """Most turns of an episode."""
    return config.max_turns


def conditions(config: OpenEnvConfig) -> dict[str, str]:
    """Where episodes are played."""
    if not config.url:  # as in `grpo tasks show`
        return {}
    return {"environment": f"{config.address}: it plays the episodes, with what it isolates there"}


def evaluation(config: OpenEnvConfig) -> EvaluationDefaults:
    """As many rows as the task has."""
    return EvaluationDefaults(size=config.size)


def environment(config: OpenEnvConfig) -> Remote:
    """What plays the episodes."""
    from grpo_tasks_gym.openenv.client import Environment

    return Environment(config)


remote = Task(
    "remote",
    load,
    prompt,
    verdicts.validate,
    (verdicts.earned, verdicts.turns, verdicts.finished),
    config=OpenEnvConfig,
    row=EpisodeRow,
    compose=verdicts.as_it_is,
    solved=verdicts.is_solved,
    conditions=conditions,
    evaluation=evaluation,
    max_turns=max_turns,
    remote=environment,
    specialize=specialize,
    exempt={
        "determinism": "the environment decides about scores",
        "bounds": "the environment's rewards have no known bound",
        "junk": "the environment decides about scores",
        "latency": "the time of a turn is the environment's",
    },
)


@hookimpl
def grpo_tasks() -> list[Task]:
    """The task."""
    return [remote]
