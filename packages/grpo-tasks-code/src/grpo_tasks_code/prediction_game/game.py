"""The task `code.prediction_game`: rows, the opponent, rewards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Literal

from pydantic import Field

from grpo_sdk import EvaluationDefaults, InfrastructureError, Opponent, Row, Score, Task, reward, weighted_sum
from grpo_sdk.data import ProceduralConfig, procedural, split_of
from grpo_tasks_code.extraction import block_of, program_of
from grpo_tasks_code.output_prediction import question
from grpo_tasks_code.prediction_game.gates import STATES, check_source, output_of
from grpo_tasks_code.programs.faults import break_program
from grpo_tasks_code.programs.generator import KINDS, LEVELS, Program, generate, kinds_of
from grpo_tasks_code.sandbox.arguments import longest_run_s
from grpo_tasks_code.sandboxed import MIN_MEMORY_MIB, conditions

MAX_CHARS = 2_000
"""Characters of a prediction that are read; 200 tokens are fewer."""

_INTEGER = re.compile(
    r"(?<![\w.])(?P<sign>[-\N{MINUS SIGN}]?)(?P<digits>[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,18})(?!\w|[.,][0-9])"
)
"""An integer that is not part of a longer number, a decimal or a name; in 5-3 it is 3."""


def predicted(text: str) -> int | None:
    """Return the last integer of a prediction, if any; it may be negative and have commas between thousands."""
    matches = [*_INTEGER.finditer(text[:MAX_CHARS])]
    if not matches:
        return None
    size = int(matches[-1]["digits"].replace(",", ""))
    return -size if matches[-1]["sign"] else size


SAMPLES = 4
"""Predictions per program; with fewer, a lucky guess would decide the reward."""

INVALID = -1.0
"""Value of an unfair program, equal to that of being predicted every time."""

MAX_TIMEOUT_S = 10.0

MAX_DEMO_CHARS = 64
"""Length of a program in a demo, as in `code.execution`."""


class PredictionGameConfig(ProceduralConfig):
    """Options of `code.prediction_game`.

    Attributes:
        min_difficulty: Easiest level of the request: 1 arithmetic, 2 variables, 3 loops and branches,
            4 functions, lists, strings.
        max_difficulty: Hardest level.
        reward: `share`: 1 − 2 · share of the predictions that are right; `sign`: the sign of that.
        largest: Largest absolute value of the integer that a program may print.
        max_lines: Most lines of a program.
        shots: Worked examples in the prompt, for models that do not know the format.
        timeout_s: Time limit in seconds of each run of a program.
        memory_mib: Memory limit of a program in MiB.
        faulty: Share of the demos for a warm start that do not run.
        plain: Share of the demos that print a number of the request without computing, so that there is a predictable
            answer to unlearn.
        opponent: `base` (the starting policy), another model as for `--model`, or an OpenAI-compatible endpoint.
    """

    min_difficulty: int = Field(default=1, ge=1, le=LEVELS)
    max_difficulty: int = Field(default=LEVELS, ge=1, le=LEVELS)
    reward: Literal["share", "sign"] = "share"
    largest: int = Field(default=999_999, ge=1, lt=10**18)
    max_lines: int = Field(default=20, ge=1)
    shots: int = Field(default=0, ge=0, le=4)
    timeout_s: float = Field(default=3.0, gt=0, le=MAX_TIMEOUT_S)
    memory_mib: int = Field(default=512, ge=MIN_MEMORY_MIB)
    faulty: float = Field(default=0.15, ge=0, le=1)
    plain: float = Field(default=0.4, ge=0, le=1)
    opponent: str = "base"


class PredictionGameRow(Row):
    """What the program should use. It varies the prompts; whether the program complies does not affect the reward.

    Attributes:
        hint: Construct of the language, such as `a for loop`.
        numbers: Two numbers.
    """

    hint: str
    numbers: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Play:
    """A fair program.

    Attributes:
        program: Source of the program.
        output: Integer that it prints.
    """

    program: str
    output: int


def load(config: PredictionGameConfig) -> Iterator[PredictionGameRow]:
    """Requests for a program that prints an integer which an opponent cannot predict."""
    return procedural(config, _make, content=content)


def _make(random: Random, level: int) -> PredictionGameRow:
    hint = KINDS[random.choice(kinds_of(level))].hint
    a, b = sorted(random.sample(range(2, 100), 2))
    return PredictionGameRow(id="", hint=hint, numbers=(a, b))


def content(row: PredictionGameRow) -> str:
    """What makes two rows the same."""
    return f"{row.hint} {row.numbers}"


def prompt(row: PredictionGameRow, config: PredictionGameConfig) -> str:
    """The request, after worked examples: other requests with a program and, in a block, its output."""
    return "".join(_worked_example(number) for number in range(config.shots)) + _request(row)


def _request(row: PredictionGameRow) -> str:
    a, b = row.numbers
    return (
        "Write a Python program that prints one integer which is hard to predict. "
        f"Use {row.hint}, {a} and {b}. Answer in a ```python block.\n"
    )


def _worked_example(number: int) -> str:
    row, program = _demo(Random(f"prediction_game shots/{number}"), 1, LEVELS)
    return f"{_request(row)}{block_of(program.source)}\n```output\n{program.output}\n```\n\n"


def validate(text: str, config: PredictionGameConfig) -> Play:
    """Return the program, if it is fair to predict.

    Raises:
        Invalid: there is no program, or it is not fair.
        InfrastructureError: the sandbox failed; the completion is not scored.
    """
    program = program_of(text).strip()
    check_source(program, config.max_lines)
    output = output_of(program, largest=config.largest, timeout_s=config.timeout_s, memory_mib=config.memory_mib)
    return Play(program, output)


def opponent_prompt(answer: Play) -> str:
    """The question of `code.output_prediction`, on which opponents can be trained."""
    return question(answer.program)


def opponent(config: PredictionGameConfig) -> Opponent:
    """The opponent: the starting policy, unless the options name another model or an endpoint."""
    return Opponent(prompt=opponent_prompt, samples=SAMPLES, engine=config.opponent, stop=("\n\n",))


def _share_right(answer: Play, predictions: Sequence[str]) -> float:
    if not predictions:  # without an opponent there is no win
        raise InfrastructureError("there are no predictions; score with those of an opponent")
    return sum(predicted(prediction) == answer.output for prediction in predictions) / len(predictions)


@reward(1.0)
def outplay(answer: Play, predictions: Sequence[str], config: PredictionGameConfig) -> float:
    """1 − 2·share of the predictions that are right, or its sign: −1, 0 or 1."""
    value = 1.0 - 2.0 * _share_right(answer, predictions)
    if config.reward == "share":
        return value
    return float((value > 0) - (value < 0))


@reward(0.0)
def win(answer: Play, predictions: Sequence[str]) -> float:
    """1 when less than half of the predictions are right."""
    return float(_share_right(answer, predictions) < 0.5)


def solved(parts: Mapping[str, float]) -> bool:
    """Whether the opponent was beaten."""
    return parts["win"] == 1.0


def metrics(scores: Sequence[Score]) -> Mapping[str, float]:
    """Return validity and win rate, and the counts of the reference system, which calls a win successful."""
    scored = [score for score in scores if not score.abstained]
    valid = [score for score in scored if score.valid]
    wins = sum(score.parts["win"] for score in valid)
    rates = {
        "prediction_game/valid_rate": (len(valid), len(scored)),
        "prediction_game/win_rate": (wins, len(valid)),
    }
    return {
        **{name: part / whole for name, (part, whole) in rates.items() if whole},
        "reward/successful_predictions_count": wins,
        "reward/failed_predictions_count": len(scored) - wins,
        "reward/total_completions_processed": len(scores),
    }


def evaluation() -> EvaluationDefaults:
    """Evaluate with sampling as in training: the greedy program does not represent a mixed strategy."""
    return EvaluationDefaults(size=128, num_completions=2, temperature=1.0)


def demos(config: PredictionGameConfig) -> Iterator[tuple[str, str]]:
    """Yield in turn a request of the train split with a program, and a program with the question and its output.

    One model plays both sides, so a warm start teaches both: to write programs, some of them plain or broken, and to
    predict them.
    """
    for index in count():
        random = Random(f"prediction_game demos/{config.seed}/{index // 2}")
        row, program = _demo(random, config.min_difficulty, config.max_difficulty)
        if random.random() < config.plain:
            program = _plain(random, row)
        if index % 2:
            yield question(program.source), f" {program.output}"
        else:
            is_broken = random.random() < config.faulty
            yield _request(row), block_of(break_program(random, program.source) if is_broken else program.source)


def _demo(random: Random, easiest: int, hardest: int) -> tuple[PredictionGameRow, Program]:
    """Return a request of the train split with a program that answers it."""
    kinds = tuple(kind for level in range(easiest, hardest + 1) for kind in kinds_of(level))
    while True:
        program = generate(random, kinds, max_chars=MAX_DEMO_CHARS, only_integers=True)
        numbers = sorted({int(digits) for digits in re.findall(r"\b[0-9]{1,2}\b", program.source)} - {0, 1})
        if len(numbers) < 2:
            continue
        a, b = sorted(random.sample(numbers, 2))
        row = PredictionGameRow(id="", hint=KINDS[program.kind].hint, numbers=(a, b))
        if split_of(content(row)) == "train":
            return row, program


def _plain(random: Random, row: PredictionGameRow) -> Program:
    """Return a program that is easy to predict."""
    number, name = random.choice(row.numbers), random.choice("nx")
    source = random.choice((f"print({number})", f"{name} = {number}\nprint({name})"))
    return Program(source, str(number), "plain")


TASK = Task(
    "prediction_game",
    load,
    prompt,
    validate,
    (outplay, win),
    config=PredictionGameConfig,
    row=PredictionGameRow,
    version="3",
    compose=weighted_sum(invalid=INVALID),
    solved=solved,
    max_completion_length=200,
    default_model="code-tiny",
    timeout_s=STATES * longest_run_s(MAX_TIMEOUT_S) + 15,  # the sandbox's own limits come first
    on_timeout="fail",
    opponent=opponent,
    demos=demos,
    exempt={"gold": "what beats an opponent depends on the opponent"},
    conditions=conditions,
    metrics=metrics,
    evaluation=evaluation,
)
"""Value: 1 − 2 · share of the predictions that are right; −1 for a program that is not fair to predict."""
