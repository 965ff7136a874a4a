"""The task of the plugin, `nemo_gym.rows`: rows of a JSONL file, verified by a server."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_sdk import Message, Prompt, Remote, Task, hookimpl
from grpo_tasks_gym.nemo_gym.records import NemoConfig, NemoRow, read
from grpo_tasks_gym.servers import verdicts


def load(config: NemoConfig) -> Iterator[NemoRow]:
    """NeMo-Gym: rows of a JSONL file, verified by the `/verify` of a resources server."""
    return read(config)


def prompt(row: NemoRow, config: NemoConfig) -> Prompt:
    """The messages of `responses_create_params`."""
    messages = tuple(Message(role=each["role"], content=each["content"]) for each in row.messages)
    return messages if config.chat else "\n\n".join(message["content"] for message in messages) + "\n"


def conditions(config: NemoConfig) -> dict[str, str]:
    """Where rewards come from."""
    if not config.verify:  # as in `grpo tasks show`
        return {}
    return {"verifier": f"{config.address}: it verifies the completions, with what it isolates there"}


def remote(config: NemoConfig) -> Remote:
    """What asks the server."""
    from grpo_tasks_gym.nemo_gym.client import ResourcesServer  # brings httpx

    return ResourcesServer(config)


rows = Task(
    "rows",
    load,
    prompt,
    verdicts.validate,
    (verdicts.earned,),
    config=NemoConfig,
    row=NemoRow,
    compose=verdicts.as_it_is,
    solved=verdicts.is_solved,
    conditions=conditions,
    remote=remote,
    exempt={
        "determinism": "the server decides about scores",
        "bounds": "the server's rewards have no known bound",
        "junk": "the server decides about scores",
        "latency": "the time of a score is the server's",
    },
)


@hookimpl
def grpo_tasks() -> list[Task]:
    """The task."""
    return [rows]
