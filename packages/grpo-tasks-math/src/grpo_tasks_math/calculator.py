"""`math.calculator`: "347*812=" -> a call of the calculator, its result, "281764"."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

from pydantic import Field

from grpo_sdk import EvaluationDefaults, Task, ToolError, tool
from grpo_sdk.data import CommaSeparated, ProceduralConfig, procedural
from grpo_tasks_math.arithmetic import SYMBOLS, ArithmeticRow, Operation, content
from grpo_tasks_math.integers import REWARDS
from grpo_tasks_math.parsing import computed, one_integer

MAX_EXPRESSION_CHARS = 100
"""Bounds the depth of an expression and the digits of its value."""

MAX_DIGITS = 6

DEMO_DIGITS = 4
"""Digits of the longest number in a demo."""

_EXPRESSION = re.compile(r"[-+*/() 0-9]+")


class CalculatorConfig(ProceduralConfig):
    """Options of `math.calculator`.

    Attributes:
        min_difficulty: Digits of both numbers, at least.
        max_difficulty: Digits of both numbers, at most.
        operations: `add`, `sub`, `mul`, separated by commas.
        tool: Whether the calculator can be called.
        calls: Share of the demos for a warm start that call the calculator; the others answer at once.
        faulty: Share of these demos' calls, and of their answers, that have one wrong digit.
    """

    min_difficulty: int = Field(default=3, ge=1, le=MAX_DIGITS)
    max_difficulty: int = Field(default=3, ge=1, le=MAX_DIGITS)
    operations: CommaSeparated[Operation] = ("mul",)
    tool: bool = True
    calls: float = Field(default=0.5, ge=0, le=1)
    faulty: float = Field(default=0.0, ge=0, le=1)


def load(config: CalculatorConfig) -> Iterator[ArithmeticRow]:
    """Products, sums and differences of two numbers that have equally many digits."""
    return procedural(config, lambda random, digits: _make(random, digits, digits, config.operations), content=content)


def _make(random: Random, digits_a: int, digits_b: int, operations: tuple[Operation, ...]) -> ArithmeticRow:
    a, b = (random.randrange(10 ** (digits - 1), 10**digits) for digits in (digits_a, digits_b))
    row = ArithmeticRow(id="", a=a, operation=random.choice(operations), b=b)
    return row.model_copy(update={"gold": str(row.result)})


def expression_of(row: ArithmeticRow) -> str:
    """The question as an expression: "347*812"."""
    return f"{row.a}{SYMBOLS[row.operation]}{row.b}"


def prompt(row: ArithmeticRow) -> str:
    """The question, on a line of its own, so that its tokens are the same whatever follows."""
    return f"{expression_of(row)}=\n"


@tool
def calculator(expression: str) -> str:
    """Compute an expression of whole numbers exactly.

    Args:
        expression: Numbers with + - * / and parentheses, e.g. "(12+7)*30". A division must leave no remainder.
    """
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise ToolError(f"an expression of {len(expression)} characters; at most {MAX_EXPRESSION_CHARS} are allowed")
    if not _EXPRESSION.fullmatch(expression):
        raise ToolError("an expression has digits, + - * / and parentheses alone")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return str(computed(tree.body, _OPERATIONS))
    except SyntaxError as error:
        raise ToolError(f"{expression!r} is no expression: {error.msg}") from None
    except ValueError as error:
        raise ToolError(f"{str(error)!r} is not allowed: only + - * / and parentheses are") from None


def _quotient(a: Fraction, b: Fraction) -> int:
    if b == 0:
        raise ToolError("division by zero")
    if a % b:
        raise ToolError(f"{a}/{b} is no whole number")
    return a // b


_OPERATIONS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def evaluation() -> EvaluationDefaults:
    """Evaluate with sampling: whether a policy calls is a probability, which greedy decoding rounds to 0 or 1."""
    return EvaluationDefaults(temperature=1.0)


def demos(config: CalculatorConfig) -> Iterator[tuple[str, str]]:
    """Yield turns of questions that rows never ask: the digits of the two numbers or the operation differ."""
    random = Random(f"calculator demos/{config.seed}/{config.split}")
    asked = range(config.min_difficulty, config.max_difficulty + 1)
    while True:
        row = _make(random, random.randint(1, DEMO_DIGITS), random.randint(1, DEMO_DIGITS), tuple(SYMBOLS))
        lengths = {len(str(row.a)), len(str(row.b))}
        if row.operation in config.operations and len(lengths) == 1 and lengths.issubset(asked):
            continue
        if random.random() >= config.calls:
            yield prompt(row), str(row.result)
            continue
        expression = _perhaps_faulty(random, expression_of(row), config)
        call = json.dumps({"name": "calculator", "arguments": {"expression": expression}})
        first = f"<tool_call>{call}</tool_call>"
        yield prompt(row), first
        result = calculator(expression)
        yield f"{prompt(row)}{first}\n<tool_result>{result}</tool_result>\n", _perhaps_faulty(random, result, config)


def _perhaps_faulty(random: Random, text: str, config: CalculatorConfig) -> str:
    if random.random() >= config.faulty:
        return text
    place = random.choice([match.start() for match in re.finditer("[0-9]", text)])
    return f"{text[:place]}{random.choice('123456789'.replace(text[place], ''))}{text[place + 1 :]}"


def specialize(config: CalculatorConfig, task: Task) -> Task:
    """The task, without its tool if the options say so."""
    return replace(task, specialize=None) if config.tool else replace(task, tools=(), max_turns=1, specialize=None)


TASK = Task(
    "calculator",
    load,
    prompt,
    one_integer,
    REWARDS,
    config=CalculatorConfig,
    row=ArithmeticRow,
    max_turns=2,
    tools=(calculator,),
    max_completion_length=64,
    default_model="tools-tiny",
    on_timeout="fail",
    demos=demos,
    exempt={"demos": "they ask what rows never ask, so that the model learns the form and not the answers"},
    evaluation=evaluation,
    specialize=specialize,
)
"""Value: 1.0 exact, 0.2 near, 0.1 another integer, 0.0 no integer."""
