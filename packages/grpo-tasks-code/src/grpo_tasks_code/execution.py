"""`code.execution`: write a program that runs and prints something; the reward does not ask what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from random import Random

from pydantic import Field, field_validator, model_validator

from grpo_sdk import EvaluationDefaults, Row, Score, Task, TaskConfig, reward, weighted_sum
from grpo_sdk.data import MAX_GENERATED
from grpo_tasks_code.extraction import block_of, program_of
from grpo_tasks_code.programs.faults import break_program
from grpo_tasks_code.programs.generator import KINDS, LEVELS, generate
from grpo_tasks_code.rewards import NO_PROGRAM
from grpo_tasks_code.sandbox import Execution, Policy
from grpo_tasks_code.sandbox.arguments import longest_run_s
from grpo_tasks_code.sandboxed import MIN_MEMORY_MIB, conditions, outcome_of, run_program

PROMPT = "Write a complete, runnable Python program that prints something. Answer in a ```python block.\n"

MAX_TIMEOUT_S = 30.0

MAX_DEMO_CHARS = 64
"""Length of a program in a demo: a byte-level model needs a token per character, and learns on a CPU in minutes."""


class ExecutionConfig(TaskConfig):
    """Options of `code.execution`.

    Attributes:
        size: Number of rows, which all have the same prompt.
        success_with_output: Value of a program that runs and prints something; the largest value.
        success_no_output: Value of a program that runs without output.
        syntax_error: Value of a program that Python cannot compile.
        runtime_error: Value of a program that fails: an exception, an exit code, a signal, a memory or output limit.
        timeout_error: Value of a program that runs too long.
        timeout_s: Time limit of a program in seconds.
        memory_mib: Memory limit of a program in MiB.
        policy: `restricted` compiles programs with RestrictedPython, which refuses part of the language; what it
            refuses is a `runtime_error`, also where it is correct. By default all of Python runs.
        faulty: Share of the demos for a warm start that do not run with output.
        max_difficulty: Hardest level of the demos and golds: 1 one line, 2 variables, 3 loops and branches,
            4 functions, lists, strings.
    """

    size: int | None = Field(default=1000, ge=1, le=MAX_GENERATED)
    success_with_output: float = Field(default=1.0, ge=-1, le=1)
    success_no_output: float = Field(default=0.5, ge=-1, le=1)
    syntax_error: float = Field(default=-0.5, ge=-1, le=1)
    runtime_error: float = Field(default=-1.0, ge=-1, le=1)
    timeout_error: float = Field(default=-1.0, ge=-1, le=1)
    timeout_s: float = Field(default=3.0, gt=0, le=MAX_TIMEOUT_S)
    memory_mib: int = Field(default=512, ge=MIN_MEMORY_MIB)
    policy: Policy | None = None
    faulty: float = Field(default=0.45, ge=0, le=1)
    max_difficulty: int = Field(default=LEVELS, ge=1, le=LEVELS)

    @field_validator("path")
    @classmethod
    def _no_path(cls, value: str | None) -> str | None:
        if value is not None:
            raise ValueError("this task has one prompt and reads no file")
        return value

    @model_validator(mode="after")
    def _running_is_best(self) -> ExecutionConfig:
        others = (self.success_no_output, self.syntax_error, self.runtime_error, self.timeout_error)
        if self.success_with_output < max(others):
            raise ValueError(
                f"success_with_output={self.success_with_output:g} is below another value, {max(others):g}; "
                "it is what the prompt asks for"
            )
        return self


class ExecutionRow(Row):
    """The one prompt; gold is a program that runs."""


def load(config: ExecutionConfig) -> Iterator[ExecutionRow]:
    """One prompt, `size` times: a program that runs and prints anything."""
    for index in count():
        name = f"{config.split}-{index}"  # keys the random numbers of sampling, so that rows differ
        yield ExecutionRow(id=name, gold=block_of(_program(Random(f"execution/{config.seed}/{name}"), config)))


def _program(random: Random, config: ExecutionConfig) -> str:
    kinds = tuple(name for name, kind in KINDS.items() if kind.level <= config.max_difficulty)
    return generate(random, kinds, max_chars=MAX_DEMO_CHARS).source


def prompt() -> str:
    """The one prompt."""
    return PROMPT


def validate(text: str, config: ExecutionConfig) -> Execution:
    """Run the program.

    Raises:
        Invalid: the completion holds no program.
        InfrastructureError: the sandbox failed; the completion is not scored.
    """
    return run_program(program_of(text), timeout_s=config.timeout_s, memory_mib=config.memory_mib, policy=config.policy)


@reward(1.0)
def execution(answer: Execution, config: ExecutionConfig) -> float:
    """The configured value of how the program ended."""
    match outcome_of(answer):
        case "output":
            return config.success_with_output
        case "silent":
            return config.success_no_output
        case "syntax_error":
            return config.syntax_error
        case "timeout":
            return config.timeout_error
        case "runtime_error":
            return config.runtime_error


@reward(0.0)
def ran(answer: Execution) -> float:
    """1 when the program ran to its end, with or without output."""
    return float(answer.status == "ok")


@reward(0.0)
def timed_out(answer: Execution) -> float:
    """1 when the program ran too long."""
    return float(answer.status == "timeout")


@reward(0.0)
def uncompilable(answer: Execution) -> float:
    """1 when Python cannot compile the program."""
    return float(answer.status == "syntax_error")


def solved(answer: Execution) -> bool:
    """Whether the program ran and printed something."""
    return outcome_of(answer) == "output"


def metrics(scores: Sequence[Score]) -> Mapping[str, float]:
    """Return the counts of the reference system, whose two means equal `reward` and `solved_rate`."""
    parts = [score.parts for score in scores if not score.abstained]
    succeeded = sum(part["ran"] for part in parts)
    return {
        "execution/successful_executions": succeeded,
        "execution/failed_executions": len(parts) - succeeded,
        "execution/timeout_executions": sum(part["timed_out"] for part in parts),
        "execution/syntax_errors": sum(part["uncompilable"] for part in parts),
        "execution/total_completions": len(scores),
    }


def evaluation() -> EvaluationDefaults:
    """Evaluate with sampling, since greedy decoding of one prompt gives a single completion."""
    return EvaluationDefaults(size=256, temperature=1.0)


def demos(config: ExecutionConfig) -> Iterator[tuple[str, str]]:
    """Yield small programs for a warm start, a share of them broken so that there is something left to learn."""
    for index in count():
        random = Random(f"execution demos/{config.seed}/{index}")
        source = _program(random, config)
        yield PROMPT, block_of(break_program(random, source) if random.random() < config.faulty else source)


TASK = Task(
    "execution",
    load,
    prompt,
    validate,
    (execution, ran, timed_out, uncompilable),
    config=ExecutionConfig,
    row=ExecutionRow,
    version="2",
    compose=weighted_sum(invalid=NO_PROGRAM),
    solved=solved,
    max_completion_length=512,
    default_model="code-tiny",
    timeout_s=longest_run_s(MAX_TIMEOUT_S) + 15,  # the sandbox's own limits come first, and name what is slow
    on_timeout="fail",
    demos=demos,
    exempt={
        "split": "there is one prompt",
        "fuzz.constant": "any program that prints something is right: the task is to write one that runs",
        "fuzz.tampering": "a program that prints something is right, whatever else it tries",
        "fuzz.unearned": "a program that runs without output earns half, as in rl_coding_games",
    },
    conditions=conditions,
    metrics=metrics,
    evaluation=evaluation,
)
"""Value: 1.0 ran with output, 0.5 silent, −0.5 syntax error, −1.0 any other failure, a timeout or no program."""
