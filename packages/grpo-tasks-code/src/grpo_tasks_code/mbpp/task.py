"""The tasks `code.mbpp`, and `code.mbpp_retry`: two attempts, with the failing test shown in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pydantic import Field, model_validator

from grpo_sdk import EvaluationDefaults, Invalid, Task, UserError, reward
from grpo_sdk.data import DatasetConfig
from grpo_tasks_code.extraction import program_of
from grpo_tasks_code.mbpp.environment import mbpp_environment
from grpo_tasks_code.mbpp.report import report
from grpo_tasks_code.mbpp.rows import PROMPT_IDS, MBPPRow, Variant, read_problems, read_prompt_problems
from grpo_tasks_code.sandbox import TestResult
from grpo_tasks_code.sandbox.arguments import longest_run_s
from grpo_tasks_code.sandboxed import MIN_MEMORY_MIB, conditions, run_against_tests

MAX_TIMEOUT_S = 60.0


class MBPPConfig(DatasetConfig):
    """Options of `code.mbpp`. `MBPP_…` environment variables give defaults (see `environment`).

    Attributes:
        seed: Decides which problems `size` takes.
        path: Local file in MBPP's format, full or sanitized, whose problems are split by number; `{split}` in it names
            one file per split. By default the hub's dataset.
        variant: Variant of the hub's dataset: `sanitized` (427 problems, checked by hand) or `full` (974).
        all_weight: Share of the reward for passing every test; the rest is proportional to the tests passed.
        challenge: Whether to run the challenge tests too, where a problem has some.
        shots: Solved problems before the question, from those reserved for prompts (1 to 10).
        timeout_s: Time limit in seconds of a program and its tests together.
        memory_mib: Memory limit of a program in MiB.
    """

    variant: Variant = "sanitized"
    all_weight: float = Field(default=0.5, ge=0, le=1)
    challenge: bool = False
    shots: int = Field(default=0, ge=0, le=len(PROMPT_IDS))
    timeout_s: float = Field(default=10.0, gt=0, le=MAX_TIMEOUT_S)
    memory_mib: int = Field(default=512, ge=MIN_MEMORY_MIB)

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, data: Any) -> Any:
        return {**mbpp_environment().task_options, **data} if isinstance(data, dict) else data


def load(config: MBPPConfig) -> Iterator[MBPPRow]:
    """Functions from a description: MBPP from the hub (google-research-datasets/mbpp), or a local file of its form."""
    return read_problems(config, config.variant)


def prompt(row: MBPPRow, config: MBPPConfig) -> str:
    """A docstring with the description and the first test, after the configured number of solved problems."""
    solved = [f"{_docstring(example)}{example.gold}\n\n" for example in _examples(config)[: config.shots]]
    return "".join(solved) + _docstring(row)


def _docstring(row: MBPPRow) -> str:
    return f'"""\n{row.text}\n{row.tests[0]}\n"""\n'


def _examples(config: MBPPConfig) -> tuple[MBPPRow, ...]:
    # The cache key leaves out options that do not change the examples.
    if not config.shots:
        return ()
    examples = _read_examples(config.path, config.variant, tuple(sorted(config.fields.items())))
    if len(examples) < config.shots:
        raise UserError(
            f"code.mbpp: shots={config.shots}, and of problems {PROMPT_IDS[0]} to {PROMPT_IDS[-1]} the data has "
            f"{len(examples)}; use fewer shots, or a file that has them."
        )
    return examples


@lru_cache(maxsize=4)
def _read_examples(path: str | None, variant: Variant, fields: tuple[tuple[str, str], ...]) -> tuple[MBPPRow, ...]:
    return tuple(read_prompt_problems(DatasetConfig(path=path, fields=dict(fields)), variant))


def validate(text: str, row: MBPPRow, config: MBPPConfig) -> TestResult:
    """Run the hidden tests on the program.

    Raises:
        Invalid: the completion holds no program.
        InfrastructureError: the sandbox failed; the completion is not scored.
    """
    return run_against_tests(
        program_of(text),
        row.tests + (row.challenge_tests if config.challenge else ()),
        setup=row.setup,
        timeout_s=config.timeout_s,
        memory_mib=config.memory_mib,
        reference=None if row.gold is None else program_of(row.gold),
    )


@reward(1.0)
def passing(answer: TestResult, config: MBPPConfig) -> float:
    """(1 − all_weight) · share of the tests passed + all_weight · [all of them]."""
    return (1.0 - config.all_weight) * _share(answer) + config.all_weight * float(_share(answer) == 1.0)


@reward(0.0)
def passed_tests(answer: TestResult) -> float:
    """The share of the tests passed."""
    return _share(answer)


def _share(answer: TestResult) -> float:
    return answer.passed / answer.total


def solved(answer: TestResult) -> bool:
    """Whether every test passed."""
    return _share(answer) == 1.0


def evaluation() -> EvaluationDefaults:
    """Evaluation of all problems, greedily, every 20 training steps, unless the environment says otherwise."""
    environment = mbpp_environment()
    return EvaluationDefaults(
        size=environment.eval_num_questions,
        split=environment.test_split,
        temperature=environment.eval_temperature,
        max_completion_length=environment.max_new_tokens,
        at_start=environment.eval_at_start,
        interval_steps=environment.eval_interval_steps,
        at_end=environment.eval_at_end,
        enabled=environment.eval_enabled,
        report=report,
    )


TASK = Task(
    "mbpp",
    load,
    prompt,
    validate,
    (passing, passed_tests),
    config=MBPPConfig,
    row=MBPPRow,
    version="2",
    solved=solved,
    max_completion_length=512,
    timeout_s=longest_run_s(MAX_TIMEOUT_S) + 30,  # the sandbox's own limits come first, and name what is slow
    on_timeout="fail",
    conditions=conditions,
    evaluation=evaluation,
)
"""Value: 1.0 every test passes; half the share of those that pass otherwise; 0.0 no program."""


ATTEMPTS = 2
SHOWN_CHARS = 300
"""Characters that are shown of a test and of its failure."""


def respond(text: str, row: MBPPRow, config: MBPPConfig) -> str | None:
    """Return the first failing test as a docstring to continue from; None if all pass.

    Raises:
        InfrastructureError: the sandbox failed; the completion is not scored.
    """
    try:
        result = validate(text, row, config)
    except Invalid as invalid:
        return _asked_again(f"{invalid}.")
    if result.passed == result.total:
        return None
    first = list(result.per_test).index(False)
    tests = row.tests + (row.challenge_tests if config.challenge else ())
    return _asked_again(f"This test fails ({_short(result.statuses[first])}):\n{_short(tests[first])}")


def _asked_again(why: str) -> str:
    return f'\n"""\n{why}\nWrite the whole function again.\n"""\n'


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


RETRY = replace(TASK, name="mbpp_retry", respond=respond, max_turns=ATTEMPTS, evaluation=None)
"""Value: that of `code.mbpp` for the last attempt."""
