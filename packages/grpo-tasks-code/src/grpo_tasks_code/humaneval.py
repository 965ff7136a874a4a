"""`code.humaneval`: complete a function from its signature and docstring, checked by hidden tests. A test set."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from textwrap import indent
from typing import Any, Literal

from pydantic import Field

from grpo_sdk import Row, Task, reward
from grpo_sdk.data import DatasetConfig, read_rows
from grpo_tasks_code.extraction import FENCE, MAX_PROGRAM_CHARS, block_of, program_of
from grpo_tasks_code.sandbox import TestResult, check_tests
from grpo_tasks_code.sandbox.arguments import longest_run_s
from grpo_tasks_code.sandboxed import MIN_MEMORY_MIB, conditions, run_against_tests

HUB = "openai/openai_humaneval"

MAX_TIMEOUT_S = 60.0

INDENT = "    "


class HumanEvalConfig(DatasetConfig):
    """Options of `code.humaneval`.

    Attributes:
        split: `test`, the only split: training on these problems would invalidate every published result.
        path: Local file in HumanEval's format; by default the hub's dataset.
        timeout_s: Time limit in seconds of a program and its checks together.
        memory_mib: Memory limit of a program in MiB.
    """

    split: Literal["test"] = "test"
    timeout_s: float = Field(default=10.0, gt=0, le=MAX_TIMEOUT_S)
    memory_mib: int = Field(default=512, ge=MIN_MEMORY_MIB)


class HumanEvalRow(Row):
    """One problem; its difficulty is the number of lines of the reference solution.

    Attributes:
        start: Text to continue: imports, helpers, the function's signature and docstring.
        check: Source of a function `check(candidate)` that asserts.
        entry_point: Name of the function.
    """

    start: str
    check: str
    entry_point: str


def load(config: HumanEvalConfig) -> Iterator[HumanEvalRow]:
    """Functions to complete: HumanEval from the hub (openai/openai_humaneval), or a file of its form; a test set."""
    published = config.path is None or config.path.startswith("hub:") or "{split}" in config.path
    # A local file would be split by a hash, and together the three splits are the file.
    for part in ("test",) if published else ("train", "validation", "test"):
        yield from read_rows(
            config.model_copy(update={"split": part}),
            _row,
            needs=("task_id", "prompt", "canonical_solution", "test", "entry_point"),
            hub=HUB,
        )


def _row(record: Mapping[str, Any]) -> HumanEvalRow:
    texts = {name: record[name] for name in ("task_id", "prompt", "canonical_solution", "test", "entry_point")}
    for name, value in texts.items():
        if not isinstance(value, str) or len(value) > MAX_PROGRAM_CHARS:
            raise ValueError(f"{name}: text of at most {MAX_PROGRAM_CHARS} characters is wanted")
    if not texts["entry_point"].isidentifier():
        raise ValueError(f"entry_point: {texts['entry_point']!r} is no name of a function")
    if _definition(texts["entry_point"]).search(texts["prompt"]) is None:
        raise ValueError(f"prompt: it does not define {texts['entry_point']}")
    row = HumanEvalRow(
        id=texts["task_id"],
        start=texts["prompt"],
        check=texts["test"],
        entry_point=texts["entry_point"],
        gold=block_of(texts["prompt"] + texts["canonical_solution"].rstrip()),
        difficulty=float(sum(bool(line.strip()) for line in texts["canonical_solution"].splitlines())),
    )
    check_tests([row.check], setup=_given(row), entry_point=row.entry_point)
    return row


def prompt(row: HumanEvalRow) -> str:
    """The start of the program, as it is."""
    return row.start


_FIRST = """
for text in {texts!r}:
    try:
        fault = exec(compile(text, __file__, "exec", dont_inherit=True), globals())
    except Exception as error:
        fault = error
    if {name!r} in globals():
        break
if fault is not None:
    raise fault
"""
"""Runs the first text that defines a function; only the sandbox compiles them, since nesting can crash the parser."""


def program_for(row: HumanEvalRow, text: str) -> str:
    """Build the whole program from a completion, which is a program that defines the function, or the function's body.

    It runs as a program first, after the start's imports and helpers. If that does not define the function, it is
    appended to the start, indented if necessary, up to where the function ends, since models go on writing.

    Raises:
        Invalid: the completion holds no program.
    """
    program = program_of(text)
    whole = program
    # Models end a body with a fence and go on with prose: between later fences is no body, unless it is indented.
    if not program.lstrip("\r\n")[:1].isspace() and not text.lstrip().startswith(FENCE):
        program = program_of(text, unlabelled=False)
    start = row.start.rstrip("\n").split("\n")
    lines = [*start, *_indented(program.replace("\r\n", "\n").strip("\n").split("\n"))]
    body = "\n".join([*lines[: _end_of_function(lines, len(start))], ""])
    return _given(row) + _FIRST.format(texts=(whole, body), name=row.entry_point)


def _end_of_function(lines: list[str], start: int) -> int:
    """Return the number of lines up to the end of the function in which the start ends.

    Lines without indentation belong to it within brackets, strings and comments.
    """
    depth = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
            depth += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
            if token.type == tokenize.DEDENT and not depth and token.start[0] > start:
                return token.start[0] - 1
    except (tokenize.TokenError, SyntaxError, SystemError, UnicodeEncodeError):
        pass  # what does not end, or is prose after the function; from Python 3.12 on a NUL or half of a surrogate pair
    return len(lines)


def _given(row: HumanEvalRow) -> str:
    """Return the imports and helpers at the start of a problem."""
    start = _definition(row.entry_point).search(row.start)
    assert start is not None, "checked when the row was read"
    return row.start[: start.start()]


def _definition(name: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:async )?def {re.escape(name)}\b", re.MULTILINE)


def _indented(lines: list[str]) -> list[str]:
    """Indent a body whose first line lost its indentation, as the start of a completion does, or all lines did."""
    first, *rest = lines
    if first[:1].isspace():
        return lines
    following = next((line for line in rest if line.strip()), "")
    depth = len(following) - len(following.lstrip())
    # After `if x:` one level is its own block; only a second level shows that the rest is indented.
    if depth >= len(INDENT) * (2 if first.rstrip().endswith(":") else 1):
        return [INDENT + first, *rest]
    return indent("\n".join(lines), INDENT).split("\n")


def validate(text: str, row: HumanEvalRow, config: HumanEvalConfig) -> TestResult:
    """Run the hidden checks on the program.

    Raises:
        Invalid: the completion holds no program.
        InfrastructureError: the sandbox failed; the completion is not scored.
    """
    return run_against_tests(
        program_for(row, text),
        [row.check],
        setup=_given(row),  # checks call the prompt's own helpers, not what a program makes of them
        entry_point=row.entry_point,
        timeout_s=config.timeout_s,
        memory_mib=config.memory_mib,
        reference=None if row.gold is None else program_of(row.gold),
    )


@reward(1.0)
def checks(answer: TestResult) -> float:
    """1 when every check passes; HumanEval gives no partial credit."""
    return float(0 < answer.total == answer.passed)


TASK = Task(
    "humaneval",
    load,
    prompt,
    validate,
    (checks,),
    config=HumanEvalConfig,
    row=HumanEvalRow,
    version="2",
    max_completion_length=512,
    timeout_s=longest_run_s(MAX_TIMEOUT_S) + 30,  # the sandbox's own limits come first, and name what is slow
    on_timeout="fail",
    exempt={"split": "a test set: all of it is held out"},
    conditions=conditions,
)
"""Value: 1.0 every check passes, else 0.0."""
