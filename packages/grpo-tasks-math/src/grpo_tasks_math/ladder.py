"""`math.ladder`: the tasks of this package from easiest to hardest, as one task for a curriculum."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, zip_longest

from pydantic import Field, field_validator, model_validator

from grpo_sdk import BoundTask, InfrastructureError, Invalid, Prompt, Row, Score, Task, TaskConfig, load_task, reward
from grpo_sdk.data import MAX_GENERATED, CommaSeparated

_RUNGS = "echo pattern arithmetic counting base_conversion comparison word_problem gsm8k scheduling"
RUNGS = tuple(_RUNGS.split())
"""Names of every rung, easiest first."""


class LadderConfig(TaskConfig):
    """Options of `math.ladder`.

    Attributes:
        size: Total number of rows, shared equally by the rungs.
        path: File of rung `gsm8k`, as for `math.gsm8k`.
        rungs: Names of the rungs in order, separated by commas. By default all but `gsm8k`, which needs a network or a
            file.
    """

    size: int | None = Field(default=1000, ge=1, le=MAX_GENERATED)
    rungs: CommaSeparated[str] = tuple(rung for rung in RUNGS if rung != "gsm8k")

    @field_validator("rungs")
    @classmethod
    def _exist(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for rung in value:
            if rung not in RUNGS:
                raise ValueError(f"there is no rung {rung!r}; the rungs are {', '.join(RUNGS)}")
        if not value or len(set(value)) < len(value):
            raise ValueError("name at least one rung, and each of them once")
        return value

    @model_validator(mode="after")
    def _path_is_read(self) -> LadderConfig:
        if self.path is not None and "gsm8k" not in self.rungs:
            raise ValueError("path is the file of rung gsm8k, which is not among the rungs: ?rungs=…,gsm8k")
        return self


class LadderRow(Row):
    """A row of one rung; its difficulty is the index of the rung.

    Attributes:
        rung: Name of the rung's task without `math.`.
        inner: Row of that task as JSON.
    """

    rung: str
    inner: str


def load(config: LadderConfig) -> Iterator[LadderRow]:
    """Rows of all rungs in turn, so that every prefix holds the rungs equally."""
    columns = [_rows(config, place, rung) for place, rung in enumerate(config.rungs)]
    return (row for row in chain.from_iterable(zip_longest(*columns)) if row is not None)


def _rows(config: LadderConfig, place: int, rung: str) -> list[LadderRow]:
    options: dict[str, object] = {"seed": config.seed, "split": config.split}
    if config.size is not None:
        options["size"] = config.size // len(config.rungs) + (place < config.size % len(config.rungs))
        if options["size"] == 0:
            return []
    if rung == "gsm8k":
        options["path"] = config.path
    return [
        LadderRow(id=f"{rung}/{row.id}", gold=row.gold, difficulty=float(place), rung=rung, inner=row.model_dump_json())
        for row in _task(rung).with_options(**options).rows()
    ]


@lru_cache(maxsize=len(RUNGS))
def _task(rung: str) -> BoundTask:
    return load_task(f"math.{rung}")


@lru_cache(maxsize=64)  # prompt, validator and rewards get the same row in succession
def _inner(rung: str, inner: str) -> Row:
    return _task(rung).row_from_json(inner)


def prompt(row: LadderRow) -> Prompt:
    """Prompt of the rung."""
    return _task(row.rung).prompt(_inner(row.rung, row.inner))


def validate(text: str, row: LadderRow) -> Score:
    """Return the rung's score, if the completion has an answer.

    Raises:
        Invalid: the rung's validator refused the completion.
        TimeoutError: the rung ran out of time; the completion is not scored.
        InfrastructureError: something around the rung failed; likewise.
        RuntimeError: the rung's own code failed; likewise.
    """
    score = _task(row.rung).score(text, _inner(row.rung, row.inner))
    if score.abstained:
        faults = {"timeout": TimeoutError, "infrastructure": InfrastructureError}
        raise faults.get(score.fault, RuntimeError)(f"rung {row.rung}: {score.why}")
    if not score.valid:
        raise Invalid(score.why.removeprefix("invalid: "))
    return score


@reward(1.0)
def share(answer: Score, row: LadderRow) -> float:
    """Value of the rung over its maximum, from 0 to 1, so that all rungs have the same range."""
    most = sum(spec.weight * spec.maximum for spec in _task(row.rung).rewards if not spec.is_penalty)
    return min(1.0, max(0.0, (answer.value or 0.0) / most))


def solved(answer: Score) -> bool:
    """Whether the rung counts the completion as solved."""
    return answer.solved


TASK = Task(
    "ladder",
    load,
    prompt,
    validate,
    (share,),
    config=LadderConfig,
    row=LadderRow,
    order="ladder",
    solved=solved,
    timeout_s=10.0,  # the longest of its rungs
    on_timeout="fail",
    exempt={"leak": "so do the prompts of rungs echo, pattern and comparison"},
)
"""Value: the rung's own, scaled to a maximum of 1.0."""
