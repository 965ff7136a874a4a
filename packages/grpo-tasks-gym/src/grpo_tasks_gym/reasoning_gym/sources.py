"""Instances of reasoning-gym's data sets under the options of a task."""

from __future__ import annotations

import ast
import sys
from contextlib import redirect_stdout
from functools import lru_cache
from io import StringIO
from typing import Any, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError

from grpo_sdk import UserError
from grpo_tasks_gym.foreign.packages import import_library
from grpo_tasks_gym.reasoning_gym.options import CompositeOptions, GymConfig

EVALUATE = ("binary_matrix", "n_queens", "number_sorting", "spiral_matrix", "string_insertion")
"""Data sets whose module calls `eval` on answers that should be literals."""


@lru_cache(maxsize=64)
def dataset_of(config: GymConfig, level: int | None) -> Any:
    """reasoning-gym's data set under these options, at a level of its curriculum.

    Raises:
        UserError: its configuration refuses the options.
    """
    return build(config, level, seed=0)


def build(config: GymConfig, level: int | None, *, seed: int) -> Any:
    """A data set with a seed; see `dataset_of`."""
    factory = import_library("reasoning_gym.factory")
    try:
        if isinstance(config, CompositeOptions):
            return _composite(config, seed)
        options = _checked(factory.DATASETS[config.dataset][1], config.own_options())
        if level is None:
            return _safe(factory.create_dataset(config.dataset, seed=seed, **options))
        curriculum = factory.create_curriculum(config.dataset)
        for name, attribute in curriculum.attributes.items():
            curriculum.set_attr_level(name, min(level, len(attribute.levels) - 1))
        by_level = curriculum.generate_configuration({"seed": seed})
        for name, value in options.items():
            setattr(by_level, name, value)
        by_level.validate()
        return _safe(factory.DATASETS[config.dataset][0](by_level))
    except (AssertionError, ValueError, TypeError, KeyError, OSError) as error:
        if isinstance(error, OSError):
            raise UserError(f"reasoning_gym.{config.dataset}: path={config.path}: {error.strerror}.") from error
        kind = "" if isinstance(error, AssertionError | ValueError) else f"{type(error).__name__}: "
        problem = f"{kind}{error}".rstrip(".") or "its options do not go together"
        raise UserError(f"reasoning_gym.{config.dataset}: {problem}.") from error


def _composite(config: CompositeOptions, seed: int) -> Any:
    composite = import_library("reasoning_gym.composite")
    if config.path is not None:
        try:
            with open(config.path, encoding="utf-8") as file:
                settings = composite.CompositeConfig.from_yaml_stream(file)
        except (yaml.YAMLError, TypeError, ValueError) as error:
            problem = " ".join(str(error).split())
            raise UserError(f"reasoning_gym.composite: path={config.path} is no mixture: {problem}.") from error
        settings.seed = seed
    else:
        specs = [composite.DatasetSpec(name, weight, {}) for name, weight in config.weights().items()]
        settings = composite.CompositeConfig(seed=seed, datasets=specs)
    whole = composite.CompositeDataset(settings)
    for part in whole.datasets.values():
        _safe(part)
    return whole


def _safe(dataset: Any) -> Any:
    """The data set; its module's `eval` reads literals alone."""
    module = sys.modules[type(dataset).__module__]
    if module.__name__.rpartition(".")[2] in EVALUATE:
        vars(module)["eval"] = ast.literal_eval
    return dataset


def _checked(config: type, options: dict[str, Any]) -> dict[str, Any]:
    """The options with the types of a data set's configuration: `list[TaskType]`, `datetime.date`."""
    hints = get_type_hints(config)
    typed = {}
    for name, value in options.items():
        try:
            typed[name] = TypeAdapter(hints[name]).validate_python(value)
        except ValidationError as error:
            raise ValueError(f"{name}={value}: {error.errors()[0]['msg']}") from None
    return typed


def prints_nothing() -> redirect_stdout[StringIO]:
    """Some generators print a dot for each attempt, which is no part of a command's output."""
    return redirect_stdout(StringIO())
