"""What a sweep varies and how, read from a file or from KEY=A,B,C words."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import orjson
from annotated_types import Ge, Le, MinLen
from pydantic import Field, ValidationError, model_validator

from grpo_core.config.section import Section
from grpo_sdk.errors import UserError, near_match
from grpo_sdk.records import yaml_text
from grpo_sdk.records.run_folder import flat

MAX_RUNS = 10_000
"""More runs are a mistake in a grid."""

Method = Literal["grid", "list", "random", "optuna"]
Goal = Literal["max", "min"]
Seed = Annotated[int, Ge(0), Le(2**63 - 1)]
Number = Annotated[int, Ge(-(2**63)), Le(2**63 - 1)] | float


class Range(Section):
    """A range of numbers to draw from: integers if both ends are.

    Attributes:
        min: Lowest value.
        max: Highest value.
        log: Draw evenly on a logarithmic scale.
        step: Distance of the values; any number in the range by default.
    """

    min: Number
    max: Number
    log: bool = False
    step: Number | None = None

    @property
    def is_whole(self) -> bool:
        """Whether integers are drawn."""
        return all(isinstance(each, int) for each in (self.min, self.max, self.step or 1))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.min < self.max:
            raise UserError(f"min={self.min} must be below max={self.max}.")
        if self.log and (self.min <= 0 or self.step is not None):
            raise UserError("log: true needs a min above 0, and no step.")
        if self.step is not None and not 0 < self.step <= self.max - self.min:
            raise UserError(f"step={self.step} must be above 0, and at most max - min.")
        return self


class Definition(Section):
    """A sweep.

    Attributes:
        method: `grid`: every combination of values; `list`: the configurations of `runs`; `random`: `trials` draws;
            `optuna`: `trials` configurations that Optuna proposes.
        settings: Settings of every run.
        parameters: Setting -> its values, or a range.
        runs: Configurations of a list.
        seeds: Seeds with each of which every configuration runs.
        trials: Number of configurations to draw.
        draw_seed: Seed of the draws.
        metric: Metric to compare.
        goal: Whether its maximum or its minimum is best; known for metrics of grpo-core.
        prune: Whether Optuna ends runs whose interval evaluations are below the median of the others.
    """

    method: Method = "grid"
    settings: dict[str, Any] = Field(default_factory=dict)
    parameters: dict[str, Annotated[list[Any], MinLen(1)] | Range] = Field(default_factory=dict)
    runs: list[dict[str, Any]] = Field(default_factory=list)
    seeds: list[Seed] = Field(default_factory=list)
    trials: Annotated[int, Ge(1), Le(MAX_RUNS)] | None = None
    draw_seed: Seed = 0
    metric: str | None = None
    goal: Goal | None = None
    prune: bool = True

    @property
    def fixed(self) -> dict[str, str]:
        """Settings of every run, by dotted key."""
        return texts(self.settings)

    @property
    def is_drawn(self) -> bool:
        """Whether configurations are drawn, not listed."""
        return self.method in ("random", "optuna")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.method == "list" and (self.parameters or not self.runs):
            raise UserError("method: list takes its configurations from runs, and no parameters.")
        if self.method != "list" and self.runs:
            raise UserError(f"runs are the configurations of method: list, not of {self.method}.")
        if self.is_drawn != (self.trials is not None):
            raise UserError("trials is the number of draws of method: random or optuna, which need it.")
        if self.method != "list" and not self.parameters and (self.is_drawn or len(self.seeds) < 2):
            raise UserError("nothing varies: give several values, as in trainer.learning_rate=1e-5,3e-5.")
        if self.method == "grid" and any(isinstance(values, Range) for values in self.parameters.values()):
            raise UserError("a range needs method: random or optuna; a grid needs a list of values.")
        if self.method == "optuna" and len(self.seeds) > 1:
            raise UserError("method: optuna takes one seed: run its best configurations with several, as a list.")
        if len(set(self.seeds)) < len(self.seeds):
            raise UserError(f"a seed is given twice: {', '.join(map(str, self.seeds))}.")
        for value in (each for values in self.parameters.values() if not isinstance(values, Range) for each in values):
            text_of(value)  # refuses what no setting can be
        for key in (*self.parameters, *self.fixed, *(key for run in self.runs for key in texts(run))):
            _check_key(key, is_fixed=key in self.fixed)
        if twice := sorted(self.fixed.keys() & self.parameters.keys()):
            raise UserError(f"{twice[0]} is both in settings and in parameters.")
        return self


def _check_key(key: str, *, is_fixed: bool) -> None:
    if key == "output_dir":
        raise UserError("every run of a sweep has a folder of its own: leave out output_dir, and give --output-dir.")
    if key == "seed" and not is_fixed:
        raise UserError("the seeds of a sweep are written seeds: [0, 1, 2], or seed=0,1,2 on the command line.")


def texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings by dotted key, with values as they are written on a command line."""
    return {key: text_of(value) for key, value in flat(settings, ".").items()}


def text_of(value: Any) -> str:
    """Return a value as it is written on a command line.

    Raises:
        UserError: no setting has such a value.
    """
    try:
        return value if isinstance(value, str) else orjson.dumps(value).decode()  # JSON is YAML
    except orjson.JSONEncodeError as error:
        raise UserError(f"{str(value)[:80]} is no value of a setting: {error}.") from None


def read_definition(words: Iterable[str], *, metric: str | None = None, goal: str | None = None) -> Definition:
    """Read the definition of a sweep.

    Args:
        words: At most one file; `KEY=VALUE`, a setting of every run; `KEY=A,B,C`, values of a grid, in CSV: a value
            with a comma stands in double quotes or in brackets. Words take precedence over the file; in a list, a
            setting of some runs becomes one of all.
        metric: Metric to compare, instead of the file's.
        goal: Likewise whether its maximum or minimum is best.

    Raises:
        UserError: a word, the file, or what they say together is not a sweep.
    """
    data: dict[str, Any] = {}
    name = ""
    settings: dict[str, Any] = {}
    parameters: dict[str, list[str]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            if name:
                raise UserError(f"{name} and {word} are two files: a sweep has one. A setting is written KEY=VALUE.")
            name, data = word, _read_file(word)
        elif key in settings or key in parameters:
            raise UserError(f"{key} is given twice.")
        elif len({*(values := _values(key, text))}) > 1 or (key == "seed" and len(values) > 1):
            parameters[key] = values
        else:
            settings[key] = values[0]
    merged = {**data, **({"metric": metric} if metric else {}), **({"goal": goal} if goal else {})}
    of_file = {part: data[part] for part in ("settings", "parameters") if isinstance(data.get(part), Mapping)}
    given = settings.keys() | parameters.keys()
    if "seed" in settings and "seeds" in data:
        parameters["seed"] = [settings.pop("seed")]
    if "seed" in parameters:
        merged["seeds"] = [_seed(text) for text in parameters.pop("seed")]
    if isinstance(runs := data.get("runs"), list):
        merged["runs"], settings = _with_words(runs, settings)
    for part, words_of in (("settings", settings), ("parameters", parameters)):
        if words_of or part in of_file:
            values_of = flat(of_file.get(part, {}), ".") if part == "settings" else of_file.get(part, {})
            merged[part] = {**{key: each for key, each in values_of.items() if key not in given}, **words_of}
    definition = validated(merged, name)
    if definition.seeds and "seed" in definition.fixed:  # not checked in a folder, where older versions allowed it
        raise UserError(f"{name}: seed is in settings, and seeds give each run its own: leave out one of them.")
    return definition


def validated(data: Mapping[str, Any], name: str) -> Definition:
    """Check a definition.

    Args:
        data: Its keys and values.
        name: File that it comes from, for messages; empty for the command line.

    Raises:
        UserError: it is none; says which key or value is wrong.
    """
    try:
        return Definition.model_validate(data)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        # Of a range that is wrong, the first one says that it is no list.
        problem = next((each for each in problems if each["type"] not in ("list_type", "model_type")), problems[0])
        cause = problem.get("ctx", {}).get("error")
        where = f"{name}: " if name else ""
        place = ".".join(str(part) for part in problem["loc"] if "[" not in str(part))
        if isinstance(cause, UserError):
            raise UserError(f"{where}{f'{place}: ' if place else ''}{cause}") from None
        if place.startswith("parameters."):
            key = str(problem["loc"][1])
            wanted = "give a list of values, or a range with the numbers min and max, and if wanted log or step"
            unknown = [str(each["loc"][-1]) for each in problems if each["type"] == "extra_forbidden"]
            hint = near_match(unknown[0], Range.model_fields) if unknown else ""
            hint = hint if "." in key else " A setting has its whole name, as trainer.beta."
            raise UserError(f"{where}parameters.{key}: {wanted}.{hint}") from None
        if problem["type"] == "extra_forbidden":
            keys = list(Definition.model_fields)
            raise UserError(
                f"{where}no key {place!r} in a sweep.{near_match(place, keys)} Keys: {', '.join(keys)}."
            ) from None
        raise UserError(f"{where}{place}: {problem['msg'][:200]}.") from None


def _read_file(name: str) -> dict[str, Any]:
    path = Path(name).expanduser()
    if path.is_dir():
        raise UserError(f"{name}: a folder without a sweep.json: give that of a sweep, a file, or KEY=A,B,C.")
    try:
        text = yaml_text.text_of(path, name)
    except UserError as error:
        raise UserError(f"{error} A setting is written KEY=VALUE or KEY=A,B,C.") from None
    top = yaml_text.compose_file(text, name)
    data = {} if top is None else yaml_text.value_of(top, name)
    if not isinstance(data, dict) or not data:
        raise UserError(f"{name}: empty; a sweep has parameters, or runs.")
    return data


def _values(key: str, text: str) -> list[str]:
    try:
        values = next(csv.reader([text], strict=True, skipinitialspace=True), [""])
    except csv.Error:
        raise UserError(f'{key}={text[:80]}: write values as in KEY=A,B,C or KEY="A,1","B,2".') from None
    if not values or not all(value.strip() for value in values):
        raise UserError(f"{key}={text[:80]}: a value is empty. Values are separated by single commas.")
    joined: list[str] = []
    for value in map(str.strip, values):
        if joined and not _is_closed(joined[-1]):
            joined[-1] += f",{value}"
        else:
            joined.append(value)
    if not _is_closed(joined[-1]):
        raise UserError(f"{key}={text[:80]}: a bracket is not closed.")
    return joined


def _is_closed(value: str) -> bool:
    """Whether a value is whole: no list or mapping, or one with all of its brackets."""
    return value[0] not in "[{" or all(value.count(first) <= value.count(last) for first, last in ("[]", "{}"))


def _with_words(runs: list[Any], settings: dict[str, str]) -> tuple[list[Any], dict[str, str]]:
    """Replace settings in the runs of a list; those that no run has are left."""
    keys = {key for run in runs if isinstance(run, Mapping) for key in flat(run, ".")}
    varied = {key: text for key, text in settings.items() if key in keys}
    if varied:
        runs = [{**flat(run, "."), **varied} if isinstance(run, Mapping) else run for run in runs]
    return runs, {key: text for key, text in settings.items() if key not in varied}


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise UserError(f"seed={text[:40]}: a seed is a whole number, 0 or more.")
    return int(text)
