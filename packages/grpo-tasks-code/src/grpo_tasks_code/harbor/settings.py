"""Options of `harbor.task`, and `task.toml`: the settings of a task folder that matter here, or cannot be had."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from grpo_sdk import TaskConfig
from grpo_sdk.data import CommaSeparated

MAX_TURNS = 32
MAX_COMMAND_S, MAX_TESTS_S, MAX_MIB = 600.0, 1800.0, 1 << 20


class HarborConfig(TaskConfig):
    """Options of `harbor.task`.

    Attributes:
        seed: Not used.
        path: A task folder of Harbor, or a folder of such folders; `{split}` in it names one folder per split. Tasks
            of one folder are split by a hash of their files; a single task is in every split.
        environment: What becomes of a Dockerfile beyond FROM, WORKDIR, ENV and COPY: `copied` refuses the task, `host`
            runs it with the tools of this machine in place of what the Dockerfile installs.
        tools: Folders of this machine that commands and tests see too, read-only, e.g. a virtual environment that has
            pytest, and that of its Python. Programs in their `bin` come first.
        turns: Turns of the model; it sees the output of its script after each.
        chat: Whether prompts are chat messages, for instruct models, or text.
        command_timeout_s: Time limit of each script in seconds.
        tests_timeout_s: Most seconds of a task's tests; its task.toml may say less.
        memory_mib: Most memory of a process in MiB; a task.toml may say less.
        storage_mib: Most storage of an episode in MiB; a task.toml may say less.
        output_chars: Characters of output that the model sees after a turn.
        reward_max: Reward of the tests that counts as 1.
    """

    environment: Literal["copied", "host"] = "copied"
    tools: CommaSeparated[str] = ()
    turns: int = Field(default=1, ge=1, le=MAX_TURNS)
    chat: bool = False
    command_timeout_s: float = Field(default=30.0, gt=0, le=MAX_COMMAND_S)
    tests_timeout_s: float = Field(default=120.0, gt=0, le=MAX_TESTS_S)
    memory_mib: int = Field(default=2048, ge=64, le=MAX_MIB)
    storage_mib: int = Field(default=256, ge=1, le=MAX_MIB)
    output_chars: int = Field(default=4000, ge=100, le=100_000)
    reward_max: float = Field(default=1.0, gt=0)

    @property
    def tool_folders(self) -> list[str]:
        """The folders of `tools`, as absolute paths."""
        return [str(Path(tool).expanduser().resolve()) for tool in self.tools]


class _Section(BaseModel, frozen=True, allow_inf_nan=False):
    env: dict[str, str] = Field(default_factory=dict)


class Environment(_Section):
    """Section `environment`."""

    docker_image: str | None = None
    os: str = "linux"
    memory_mb: int = Field(default=MAX_MIB, gt=0)
    storage_mb: int = Field(default=MAX_MIB, gt=0)
    gpus: int | None = None
    tpu: dict[str, Any] | None = None
    mcp_servers: tuple[Any, ...] = ()
    workdir: str | None = None


class Verifier(_Section):
    """Section `verifier`."""

    timeout_sec: float = Field(default=600.0, gt=0)
    environment_mode: Literal["shared", "separate"] | None = None
    environment: dict[str, Any] | None = None
    collect: tuple[Any, ...] = ()


class Settings(BaseModel, frozen=True):
    """A `task.toml`; unknown fields are ignored, as Harbor ignores them."""

    verifier: Verifier = Verifier()
    environment: Environment = Environment()
    solution: _Section = _Section()
    steps: tuple[Any, ...] = ()

    @property
    def unsupported(self) -> str:
        """What the task needs that a sandbox of this machine does not have; empty if there is nothing."""
        environment, verifier = self.environment, self.verifier
        variables = [*environment.env.values(), *verifier.env.values(), *self.solution.env.values()]
        is_separate = verifier.environment_mode == "separate" or verifier.environment is not None
        needs = {
            "several steps": self.steps,
            f"the operating system {environment.os!r}": environment.os.lower() != "linux",
            "a GPU": environment.gpus or environment.tpu is not None,
            "MCP servers": environment.mcp_servers,
            "a separate environment for its tests": is_separate,
            "commands that collect files for its tests": verifier.collect,
            "environment variables of this machine": any("${" in value for value in variables),
        }
        return ", ".join(name for name, is_needed in needs.items() if is_needed)


def read_settings(text: str) -> Settings:
    """Read a `task.toml`.

    Raises:
        ValueError: it is not TOML, or a value does not fit; in one line.
    """
    try:
        return Settings.model_validate(tomllib.loads(text))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise ValueError(f"task.toml: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"task.toml is not TOML: {error}") from None
