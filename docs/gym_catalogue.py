"""Writes what `grpo_tasks_gym.reasoning_gym.catalogue` reads: `datasets.json`, for the installed reasoning-gym.

`python docs/gym_catalogue.py` writes the file anew, for another version of reasoning-gym.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import re
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any, Literal

import orjson

from grpo_tasks_gym.foreign.packages import import_library
from grpo_tasks_gym.reasoning_gym import catalogue
from grpo_tasks_gym.reasoning_gym.catalogue import Dataset, Kind, Option
from grpo_tasks_gym.reasoning_gym.rows import results_only

NOT_REPEATED = ("codeio", "intermediate_integration", "list_functions")
"""Data sets with few entries that depend on the process: on orders of sets, or on random numbers that nobody seeds."""


def read_datasets() -> dict[str, Dataset]:
    """Every data set by name, read off the installed reasoning-gym; runs it in processes with different hash seeds."""
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
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "digests"],
        env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
        capture_output=True,
        check=True,
    )
    return typing.cast(dict[str, str], orjson.loads(done.stdout))


def print_digests() -> None:
    """Print a digest of some entries of each data set, as JSON."""
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


if __name__ == "__main__":
    if sys.argv[1:] == ["digests"]:
        print_digests()
    else:
        content = {name: facts.model_dump() for name, facts in read_datasets().items()}
        Path(catalogue.__file__).with_name(catalogue.FILE).write_bytes(
            orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        )
