"""What is known of each data set without importing reasoning-gym, which takes seconds: `datasets.json`.

`python -m grpo_tasks_gym.reasoning_gym.catalogue` writes the file anew, for another version of reasoning-gym.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import re
import subprocess
import sys
import typing
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO, Literal

import orjson
from pydantic import BaseModel

from grpo_tasks_gym.foreign.packages import import_library

Kind = Literal["int", "float", "bool", "str", "strs", "floats"]
"""Type of an option; `strs` and `floats` are several, separated by commas."""

FILE = "datasets.json"


class Option(BaseModel):
    """A field of a data set's own configuration."""

    kind: Kind
    default: Any = None


NOT_REPEATED = ("codeio", "intermediate_integration", "list_functions")
"""Data sets with few entries that depend on the process: on orders of sets, or on random numbers that nobody seeds."""


class Dataset(BaseModel):
    """A data set.

    Attributes:
        about: One line.
        levels: Levels of its curriculum; 0 without one.
        needs_process: Whether its entries depend on PYTHONHASHSEED or on random numbers that it does not seed.
        options: Fields of its configuration.
    """

    about: str
    levels: int = 0
    needs_process: bool = False
    options: dict[str, Option]


@cache
def datasets() -> dict[str, Dataset]:
    """Every data set by name."""
    content = orjson.loads(resources.files("grpo_tasks_gym.reasoning_gym").joinpath(FILE).read_bytes())
    return {name: Dataset.model_validate(facts) for name, facts in content.items()}


def read_datasets() -> dict[str, Dataset]:
    """The same, read off the installed reasoning-gym; runs it in processes with different hash seeds."""
    factory = import_library("reasoning_gym.factory")
    curricula = factory.CURRICULA
    digests = [_digests(seed) for seed in ("1", "2", "3")]
    return {
        name: Dataset(
            about=_about(name, dataset),
            levels=_levels(curricula[name]()) if name in curricula else 0,
            needs_process=name in NOT_REPEATED or len({each[name] for each in digests}) > 1,
            options={} if name == "composite" else _options(config),
        )
        for name, (dataset, config) in sorted(factory.DATASETS.items())
    }


def _about(name: str, dataset: type) -> str:
    lines = (dataset.__doc__ or "").strip().splitlines()
    return f"reasoning-gym: {lines[0].rstrip('.') if lines else name.replace('_', ' ')}."


def _levels(curriculum: Any) -> int:
    return max(len(attribute.levels) for attribute in curriculum.attributes.values())


def _options(config: type) -> dict[str, Option]:
    hints = typing.get_type_hints(config)
    options = {}
    for field in dataclasses.fields(config):
        kind = _kind(hints[field.name])
        if field.name in ("seed", "size") or kind is None:
            continue
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        options[field.name] = Option(kind=kind, default=_plain(default))
    return options


def _plain(default: Any) -> Any:
    if isinstance(default, enum.Enum):
        return default.value
    if isinstance(default, list | tuple):
        return [_plain(item) for item in default]
    return default if isinstance(default, int | float | str | None) else str(default)


def _kind(hint: Any) -> Kind | None:
    if typing.get_origin(hint) is typing.Union:  # Optional
        hint = typing.get_args(hint)[0]
    if hint in (int, float, bool, str):
        return typing.cast(Kind, hint.__name__)
    if (hint if (origin := typing.get_origin(hint)) is None else origin) in (list, tuple) or "Sequence" in str(hint):
        (item, *_) = typing.get_args(hint) or (str,)
        scalar = item is str or (isinstance(item, type) and issubclass(item, enum.Enum))
        return "strs" if scalar else "floats" if item is float else None
    if typing.get_origin(hint) is Literal or re.match(r"datetime\.", str(hint)) or "datetime" in str(hint):
        return "str"
    return "str" if isinstance(hint, type) and issubclass(hint, enum.Enum) else None


def _digests(hash_seed: str) -> dict[str, str]:
    """Name -> digest of some entries, in a process with this hash seed."""
    code = "from grpo_tasks_gym.reasoning_gym.catalogue import print_digests; print_digests()"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
        capture_output=True,
        check=True,
    )
    return typing.cast(dict[str, str], orjson.loads(done.stdout))


def print_digests() -> None:
    """Print a digest of some entries of each data set, as JSON."""
    import hashlib

    factory = import_library("reasoning_gym.factory")
    output = results_only()
    digests = {}
    for name in factory.DATASETS:
        if name != "composite":
            dataset = factory.create_dataset(name, seed=7, size=500)
            entries = repr([dataset[index] for index in range(6)])
            digests[name] = hashlib.blake2b(entries.encode(), digest_size=8).hexdigest()
    output.write(orjson.dumps({**digests, "composite": ""}))
    output.flush()


def results_only() -> BinaryIO:
    """The process's stdout; what data sets print goes to stderr from here on."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return output


def _write() -> None:
    content = {name: facts.model_dump() for name, facts in read_datasets().items()}
    Path(__file__).with_name(FILE).write_bytes(
        orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )


if __name__ == "__main__":
    _write()
