"""Runs the commands of a rollout in a fresh copy of a task's files, and then the task's tests on what they left."""

from __future__ import annotations

import contextlib
import json
import math
import posixpath
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from grpo_tasks_code.harbor.folders import TaskFolder
from grpo_tasks_code.harbor.settings import HarborConfig
from grpo_tasks_code.sandbox.host.shell import PATH, BoxFile, ShellBox, ShellRun

_OUTPUT_BYTES, _MAX_REWARD_BYTES = 1 << 18, 1 << 16
_SCRIPT, _SCRIPTS = "/run/script.sh", "/run"
_REWARDS = "/logs/verifier"
_TESTS_HOME = f"{_REWARDS}/home"
_NOT_TO_BE_LINKED = ("/tests", "/solution", "/logs/verifier", "/proc", "/dev/fd", "/dev/stdin")
"""Where a link that commands left would show expected answers, or another's, once the tests are there."""
_SHADOWED = frozenset(sys.stdlib_module_names) | {"_pytest", "iniconfig", "pluggy", "pytest"}
"""Modules of the tools that run tests; a file of this name in the working directory would replace one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests decided.

    Attributes:
        reward: The reward called `reward`, else the first, as Harbor's other readers choose; None if they wrote none.
        why: Why there is none; else empty.
        output: Last lines of the tests' output.
    """

    reward: float | None
    why: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """A box with the files of a task; each method raises `ServerError` where the box fails."""

    folder: TaskFolder
    config: HarborConfig
    box: ShellBox

    def run(self, script: str) -> ShellRun:
        """Run a script of the model's; all that it starts ends with it."""
        self.box.put({_SCRIPT: BoxFile(script.encode("utf-8", "replace"))}, fresh=[_SCRIPTS])
        return self._bash(_SCRIPT, self.config.command_timeout_s, {"HOME": "/root"})

    def solve(self) -> None:
        """Run the task's own solution."""
        files = {f"/solution/{path}": file for path, file in self.folder.files("solution").items()}
        self.box.put(files, fresh=["/solution"])
        environment = {"HOME": "/root", **self.folder.settings.solution.env}
        self._bash("/solution/solve.sh", self.config.tests_timeout_s, environment)
        self.box.put({}, fresh=["/solution"])

    def verify(self) -> Verdict:
        """Run the tests. No process of a command is left, and folders of the tests are mounted anew."""
        if hidden := self.box.cut(_NOT_TO_BE_LINKED):
            return Verdict(None, f"commands left what may hide links: {hidden}")
        self.box.put({f"/tests/{path}": file for path, file in self.folder.files("tests").items()}, fresh=["/tests"])
        self.box.put({_TESTS_HOME: BoxFile(None)}, fresh=[_REWARDS])
        verifier = self.folder.settings.verifier
        environment = {**verifier.env, "HOME": _TESTS_HOME, "PYTHONNOUSERSITE": "1"}
        environment |= {"PYTHONSAFEPATH": "1"} if self._shadows_tools() else {}
        run = self._bash("/tests/test.sh", min(self.config.tests_timeout_s, verifier.timeout_sec), environment)
        output = "\n".join(run.output.strip().splitlines()[-3:])
        if run.status == "timeout":
            return Verdict(None, "the tests ran out of time", output)
        for name in ("reward.json", "reward.txt"):
            content = self.box.read(f"{_REWARDS}/{name}", _MAX_REWARD_BYTES)
            if content is None:
                continue
            try:
                return Verdict(_reward_of(json.loads(content) if name == "reward.json" else float(content)), "", output)
            except (ValueError, OverflowError, RecursionError):
                return Verdict(None, f"the tests wrote a {name} without a finite number: {content[:40]!r}", output)
        return Verdict(None, f"the tests wrote no reward (exit code {run.code})", output)

    def _shadows_tools(self) -> bool:
        """Whether commands left a module in the working directory that Python would take for one of its own."""
        workdir = self.folder.workdir
        own = {posixpath.relpath(path, workdir).split("/")[0] for path in self.folder.placed()}
        return any(name.split(".")[0] in _SHADOWED for name in set(self.box.list(workdir)) - own)

    def _bash(self, script: str, timeout_s: float, environment: Mapping[str, str]) -> ShellRun:
        folder, path = self.folder, [f"{tool}/bin" for tool in self.config.tool_folders]
        own = {**folder.image.variables, **folder.settings.environment.env, "LANG": "C.UTF-8", **environment}
        return self.box.run(
            ["/bin/bash", script],
            folder=folder.workdir,
            environment={**own, "PATH": ":".join([*path, PATH])},
            timeout_s=timeout_s,
            output_bytes=_OUTPUT_BYTES,
        )


def _reward_of(value: Any) -> float:
    rewards = value if isinstance(value, dict) else {"reward": value}
    for reward in rewards.values():
        if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
            raise ValueError
    if not rewards:
        raise ValueError
    return float(rewards.get("reward", next(iter(rewards.values()))))


@contextlib.contextmanager
def episode(folder: TaskFolder, config: HarborConfig) -> Iterator[Episode]:
    """A box with the files of a task.

    Raises:
        ServerError: there is no box.
    """
    settings = folder.settings.environment
    with ShellBox(
        folder.writable,
        tools=config.tool_folders,
        storage_bytes=min(config.storage_mib, settings.storage_mb) << 20,
        memory_bytes=min(config.memory_mib, settings.memory_mb) << 20,
    ) as box:
        box.put(folder.placed())
        yield Episode(folder, config, box)
