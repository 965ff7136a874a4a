"""The task `chess.policy`: options, prompt, rewards, metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from grpo_sdk import Invalid, Score, Task, reward
from grpo_sdk.rewards import graduated
from grpo_tasks_chess.data.mates import GENERATED as GENERATED_MATES
from grpo_tasks_chess.data.mates import ThemesConfig, mates_in_one, themes_of
from grpo_tasks_chess.data.positions import positions
from grpo_tasks_chess.formats import without_best, write_policy_prompt
from grpo_tasks_chess.loading import packaged, rows_of
from grpo_tasks_chess.policy import grading, labels
from grpo_tasks_chess.policy.rows import PolicyRow, best_first, generated_row, make_row
from grpo_tasks_chess.records import distinct as each_once
from grpo_tasks_chess.rules import legal_moves, position
from grpo_tasks_chess.shaping import ShapedConfig

GENERATED = 2000
"""Default number of generated rows, which take a second."""


class PositionsConfig(ThemesConfig, labels.LabelsConfig):
    """Options of tasks whose rows are positions with best moves.

    Attributes:
        size: Number of rows; by default 2000 generated ones, 300 with `themes`, or all of a file.
        rows: Source of the rows without a file: `generated` from the seed, without labels, or `packaged`, a few hundred
            with labels. Those of the split test are the packaged ones, unless `themes` are chosen.
        in_check: Share of generated positions with a check that must be answered, see `data.positions.positions`.
    """

    rows: Literal["generated", "packaged"] = "generated"
    in_check: float = Field(default=0.0, ge=0, le=1)

    @property
    def is_packaged(self) -> bool:
        """Whether the rows are those of the package."""
        return self.path is None and (self.rows == "packaged" or (self.split == "test" and not self.themes))

    @model_validator(mode="after")
    def _has_one_source(self) -> PositionsConfig:
        if self.themes and self.in_check:
            raise ValueError("in_check is of positions from games, and themes are of composed ones: give one of them")
        return self


class PolicyConfig(ShapedConfig, PositionsConfig):
    """Options of `chess.policy`.

    Attributes:
        demo_order: Order of the moves in demos: that of the rows, which is random in RookWorld's data; or `best_first`,
            which is easier to predict and which greedy decoding does not turn into one move five times.
        demo_errors: Share of the demos that end before `B:`, and so are invalid, so that a warm start leaves something
            to learn.
    """

    demo_order: Literal["as_given", "best_first"] = "as_given"
    demo_errors: float = Field(default=0.0, ge=0, le=1)


class Judged(NamedTuple):
    """An answer with everything that its rewards are computed from."""

    answer: grading.Answer
    truth: grading.Truth
    legal: Collection[str]

    def __repr__(self) -> str:
        """Return it as `grpo explain` shows it: without the legal moves, of which there are dozens."""
        return f"{self.answer}, judged by {self.truth}"


def load(config: PositionsConfig) -> Iterator[PolicyRow]:
    """Positions: generated, with labels from the package, or of a file."""
    if config.is_packaged:
        name = "policy_test.jsonl" if config.split == "test" else "policy.jsonl"
        config = config.model_copy(update={"path": packaged(name)})
    if config.path is not None:
        rows = rows_of(config, "policy", make_row)
        return (row for row in rows if config.takes(_themes(row))) if config.is_choosing else rows
    return islice(_generated(config), config.size or (GENERATED_MATES if config.themes else GENERATED))


def _generated(config: PositionsConfig) -> Iterator[PolicyRow]:
    if config.themes:
        boards = mates_in_one(config.seed, config.split, label="chess.policy", attackers=config.attackers)
    else:
        boards = positions(config.seed, config.split, label="chess.policy", in_check=config.in_check)
    rows = each_once(map(generated_row, boards))
    return config.taken(rows, _themes) if config.is_choosing else rows


def _themes(row: PolicyRow) -> tuple[str, ...]:
    return themes_of(position(row.fen))


def prompt(row: PolicyRow) -> str:
    """`P: FEN`."""
    return write_policy_prompt(row.fen)


def demos(config: PolicyConfig) -> Iterator[tuple[str, str]]:
    """Yield the prompt and gold completion of each row, in the configured order and with errors."""
    random = Random(f"demos/{config.seed}/{config.split}")
    for each in load(config):
        row = labels.with_labels(each, config, random)
        if row is not None and row.gold is not None:
            completion = best_first(row) if config.demo_order == "best_first" else row.gold
            yield prompt(row), without_best(completion) if random.random() < config.demo_errors else completion


def validate(text: str, row: PolicyRow, config: PolicyConfig) -> Judged:
    """Read the answer, and look up the known evaluations of its position.

    Raises:
        Invalid: it has no candidates, no evaluations or no best move.
        InfrastructureError: the engine that grades it fails; the completion is not scored.
    """
    answer = grading.read_answer(text)
    return Judged(answer, labels.truth_of(row, config), legal_moves(position(row.fen)).keys())


def conditions(config: PositionsConfig) -> Mapping[str, str]:
    """Return the source of the labels, and what grades the rows without labels."""
    if config.is_packaged:
        return {"chess labels": "of the package, for every row"}
    graded_by = labels.conditions_of(config)
    if config.path is None:
        return graded_by
    return {"chess labels": f"of {config.path}, for the rows that have them there", **graded_by}


@reward(4.0)
def best_move(answer: Judged) -> float:
    """The best move's worth by its rank; see `best_move_grade`."""
    return grading.best_move_grade(answer.answer.best, answer.truth, answer.legal)


@reward(2.0)
def format(answer: Judged) -> float:
    """1 for the full form: as many evaluations as moves, the best one among them, all legal; see `format_grade`."""
    return grading.format_grade(answer.answer, answer.legal)


@reward(1.5)
def candidates(answer: Judged) -> float:
    """The share of the best moves that is listed; see `candidates_grade`."""
    return grading.candidates_grade(answer.answer.moves, answer.truth, answer.legal)


@reward(1.0)
def evaluations(answer: Judged) -> float:
    """How near the evaluations of the best moves are; see `evaluations_grade`."""
    return grading.evaluations_grade(answer.answer.evaluations, answer.truth)


@reward(0.0)
def format_validity(answer: Judged) -> float:
    """1 for the full form, else 0."""
    return float(grading.is_full_form(answer.answer, answer.legal))


@reward(0.0)
def distinct(answer: Judged) -> float:
    """The share of different moves among the candidates: the full form may repeat one."""
    moves = answer.answer.moves
    return len(set(moves)) / len(moves)


@reward(0.0)
def best_move_accuracy(answer: Judged) -> float:
    """1 when no known move is better than the best one; 0 also where none is known."""
    return float(answer.truth.rank(answer.answer.best) == 1)


@reward(0.0)
def top5_accuracy(answer: Judged) -> float:
    """1 when the best move is among the best five that are known."""
    rank = answer.truth.rank(answer.answer.best)
    return float(rank is not None and rank <= 5)


@reward(0.0)
def legality(answer: Judged) -> float:
    """1 when the best move is legal."""
    return float(answer.answer.best in answer.legal)


@reward(0.0)
def evaluations_compared(answer: Judged) -> float:
    """How many moves have an evaluation and a known one."""
    return float(len(grading.evaluation_errors(answer.answer.evaluations, answer.truth)))


@reward(0.0)
def evaluation_error(text: str, row: PolicyRow, config: PolicyConfig) -> float:
    """Mean |Δ| in pawns over these moves, held to ±10; 10 where there are none, as in an invalid completion."""
    try:
        answer = grading.read_answer(text)
    except Invalid:
        return grading.EVALUATION_LIMIT
    errors = grading.evaluation_errors(answer.evaluations, labels.truth_of(row, config))
    return sum(errors) / len(errors) if errors else grading.EVALUATION_LIMIT


@reward(0.0)
def graded_by_labels(row: PolicyRow, config: PolicyConfig) -> float:
    """1 when the row's labels grade its completions."""
    return float(labels.source_of(row, config) == "labels")


@reward(0.0)
def graded_by_engine(row: PolicyRow, config: PolicyConfig) -> float:
    """1 when an engine grades them."""
    return float(labels.source_of(row, config) == "engine")


@reward(0.0)
def graded_by_search(row: PolicyRow, config: PolicyConfig) -> float:
    """1 when the built-in search grades them; where all three are 0, legality alone does."""
    return float(labels.source_of(row, config) == "search")


def solved(answer: Judged) -> bool:
    """Whether the best move is found, in the full form."""
    return answer.truth.rank(answer.answer.best) == 1 and grading.is_full_form(answer.answer, answer.legal)


MEANS = (
    format_validity,
    distinct,
    best_move_accuracy,
    top5_accuracy,
    legality,
    graded_by_labels,
    graded_by_engine,
    graded_by_search,
)
"""Facts whose means are metrics."""

TRUTHS = (graded_by_labels, graded_by_engine, graded_by_search)
"""Facts of which one holds unless legality alone grades."""

NEED_TRUTH = (best_move_accuracy, top5_accuracy)
"""Facts that are undefined for completions graded by legality alone."""


def metrics(scores: Sequence[Score]) -> dict[str, float]:
    """Return the means of the facts by name, and the mean error of all evaluations that could be compared."""
    means = {}
    for fact in MEANS:
        parts = [score.parts for score in scores if not score.abstained]
        if fact in NEED_TRUTH:
            parts = [each for each in parts if any(each[source.__name__] for source in TRUTHS)]
        if parts:
            means[f"chess_policy/{fact.__name__}"] = sum(each[fact.__name__] for each in parts) / len(parts)
    compared = [score.parts for score in scores if not score.abstained and score.parts["evaluations_compared"]]
    if compared:
        errors = sum(each["evaluation_error"] * each["evaluations_compared"] for each in compared)
        means["chess_policy/evaluation_error"] = errors / sum(each["evaluations_compared"] for each in compared)
    return means


def specialize(config: PolicyConfig) -> Task:
    """The task with the configured shaping."""
    return replace(TASK, compose=graduated(shaping=config.shaping), specialize=None)


TASK = Task(
    "policy",
    load,
    prompt,
    validate,
    (
        best_move,
        format,
        candidates,
        evaluations,
        *MEANS,
        evaluations_compared,
        evaluation_error,
    ),
    config=PolicyConfig,
    row=PolicyRow,
    solved=solved,
    demos=demos,
    default_model="chess-tiny",
    stop=("\n",),
    max_completion_length=176,  # a token per character of the longest completion; most tokenizers need half of it
    timeout_s=labels.TASK_TIMEOUT_S,
    on_timeout="fail",
    conditions=conditions,
    metrics=metrics,
    specialize=specialize,
)
"""Quality: (4 best_move + 2 format + 1.5 candidates + evaluations) / 8.5, shaped as the options say; −0.3 invalid."""
