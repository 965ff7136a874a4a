"""The trainers that tasks are exported to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grpo_sdk.errors import unknown_name
from grpo_sdk.interop.adapter import Completes


@dataclass(frozen=True, slots=True)
class Target:
    """A trainer, as an export needs it; its other files are templates in a folder of its name.

    Attributes:
        name: Name on the command line; with `_` for `-`, that of the module of `grpo_sdk.interop` that makes its rows.
        title: Name that people know.
        version: What the files were written for.
        install: How to get it.
        rows: Format of its rows; None where it takes them from the installed task.
        completes: What its adapter takes.
        pip: How packages are installed beside it.
        min_gpus: GPUs that it needs.
        takes_tools: What its adapter takes of tools.
    """

    name: str
    title: str
    version: str
    install: str
    rows: Literal["parquet", "jsonl"] | None
    completes: Completes
    pip: str = "pip install"
    min_gpus: int = 1
    takes_tools: bool | Literal["text"] = False


_WITH_OVERRIDES = "UV_OVERRIDE=FOLDER/overrides.txt uv pip install"
"""Chooses a version where a trainer's requirements exclude each other."""

_AREAL = f"pip install uv && {_WITH_OVERRIDES} 'areal[sglang]==1.0.4'"

TARGETS = {
    target.name: target
    for target in (
        Target(
            "verl", "verl", "verl 0.9.1", "pip install 'verl[vllm]==0.9.1'", "parquet", "episode", takes_tools="text"
        ),
        Target("openrlhf", "OpenRLHF", "openrlhf 0.11.2", "pip install 'openrlhf[vllm]==0.11.2'", "jsonl", "episode"),
        Target("slime", "slime", "slime of August 2026", "docker run … slimerl/slime:latest", "jsonl", "group"),
        Target("areal", "AReaL", "areal 1.0.4", _AREAL, "jsonl", "answer", pip=_WITH_OVERRIDES),
        Target("swift", "ms-swift", "ms-swift 4.6.0", "pip install 'ms-swift==4.6.0' vllm", "jsonl", "group"),
        Target(
            "prime-rl",
            "prime-rl",
            "prime-rl of August 2026",
            "git clone --recurse-submodules https://github.com/PrimeIntellect-ai/prime-rl && cd prime-rl && "
            "uv sync --all-extras",
            None,
            "episode",
            pip="uv pip install",
            min_gpus=2,  # the trainer and the inference server each have their own
        ),
        Target(
            "nemo-rl",
            "NeMo-RL",
            "NeMo-RL of August 2026",
            "git clone --recursive https://github.com/NVIDIA-NeMo/RL nemo-rl && cd nemo-rl && uv venv && uv sync",
            "jsonl",
            "answer",
            pip="uv pip install",
        ),
    )
}
"""Name -> trainer."""


def target_of(name: str) -> Target:
    """The trainer of a name or title, whatever its case: `ms-swift` is `swift`.

    Raises:
        UnknownNameError: there is none; says which there are.
    """
    for target in TARGETS.values():
        if name.casefold() in (target.name, target.title.casefold()):
            return target
    raise unknown_name("trainer", name, TARGETS)
