"""reasoning-gym's scorers, run so that no completion is executed.

Several scorers of version 0.1.25 pass the answer to `eval`, or to `sympy.parse_expr`, which calls it: an answer could
run any Python. Here such an answer must be a literal, or arithmetic with names of a list.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from grpo_core import Invalid, UserError
from grpo_tasks_gym.entries import decode

if TYPE_CHECKING:
    from grpo_tasks_gym.options import GymConfig
    from grpo_tasks_gym.rows import GymRow

EVALUATE = ("binary_matrix", "n_queens", "number_sorting", "spiral_matrix", "string_insertion")
"""Data sets whose module calls `eval` on answers that should be literals."""

EXPRESSIONS: Mapping[str, tuple[str, ...]] = {
    "bitwise_arithmetic": ("problem",),
    "countdown": (),
    "intermediate_integration": ("integrand", "variable"),
    "polynomial_multiplication": (),
    "puzzle24": (),
    "simple_integration": ("integrand", "variable"),
}
"""Data sets that evaluate expressions -> fields of their metadata that are expressions, as the answer is."""

FUNCTIONS = frozenset({
    "Abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "cot", "csc", "erf", "exp", "ln", "log",
    "pi", "sec", "sin", "sinh", "sqrt", "tan", "tanh",
})  # fmt: skip
"""Names in an expression besides single letters."""

MAX_EXPRESSION_CHARS = 2000

_TOKENS = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+|[A-Za-z][A-Za-z0-9]*|[-+*/%^&|~<>(), ]|\s")


def score(config: GymConfig, row: GymRow, answer: str) -> float:
    """Value of an answer, by the scorer of the row's data set.

    Raises:
        Invalid: the answer is no expression where one is evaluated.
        Exception: whatever the scorer raises.
    """
    dataset = dataset_of(config, row.level)
    metadata = decode(row.metadata)
    name = str(metadata.get("source_dataset", config.dataset)) if isinstance(metadata, dict) else config.dataset
    if name in EXPRESSIONS:
        for field in EXPRESSIONS[name]:
            _check_expression(str(metadata.get(field, "")))
        _check_expression(row.answer or "")
        _check_expression(answer)
    entry = {"question": row.question, "answer": row.answer, "metadata": metadata}
    return float(dataset.score_answer(answer, entry))


def _check_expression(text: str) -> None:
    """Refuse text in which a call could reach anything but a function of mathematics."""
    if len(text) > MAX_EXPRESSION_CHARS:
        raise Invalid("an expression of more than 2,000 characters")
    end = 0
    for token in _TOKENS.finditer(text):
        if token.start() != end:
            break
        end = token.end()
        word = token.group()
        if word[0].isalpha() and len(word) > 1 and word not in FUNCTIONS:
            raise Invalid(f"{word[:40]!r} is no name of an expression")
    if end != len(text):
        raise Invalid(f"{text[end : end + 1]!r} cannot be part of an expression")


@lru_cache(maxsize=64)
def dataset_of(config: GymConfig, level: int | None) -> Any:
    """reasoning-gym's data set under these options, at a level of its curriculum.

    Raises:
        UserError: its configuration refuses the options.
    """
    return build(config, level, seed=0)


def build(config: GymConfig, level: int | None, *, seed: int) -> Any:
    """A data set with a seed; see `dataset_of`."""
    factory = _import("reasoning_gym.factory")
    try:
        if config.dataset == "composite":
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


def _composite(config: GymConfig, seed: int) -> Any:
    composite = _import("reasoning_gym.composite")
    if config.path is not None:
        with open(config.path, encoding="utf-8") as file:
            settings = composite.CompositeConfig.from_yaml_stream(file)
        settings.seed = seed
    else:
        weights = config.weights()  # type: ignore[attr-defined] # CompositeOptions
        specs = [composite.DatasetSpec(name, weight, {}) for name, weight in weights.items()]
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


def _import(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in what it depends on
        return importlib.import_module(name)
