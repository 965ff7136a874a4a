"""`code.computed`: write a program that computes a rule of a hidden input, so that a constant earns nothing.

A policy that is rewarded for any output learns to print a constant. Here each row names a rule, the program reads a
number that the prompt does not show, and its output is compared on several numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from pydantic import Field

from grpo_sdk import Row, Task, reward, weighted_sum
from grpo_sdk.data import ProceduralConfig, procedural
from grpo_tasks_code.extraction import block_of, program_of
from grpo_tasks_code.rewards import NO_PROGRAM
from grpo_tasks_code.sandbox import Execution
from grpo_tasks_code.sandbox.arguments import longest_run_s
from grpo_tasks_code.sandboxed import MIN_MEMORY_MIB, conditions, outcome_of, run_program

INPUTS = 3
"""Hidden numbers per row. Their results differ, so that a constant is right for at most one of them."""

MAX_TIMEOUT_S = 10.0

SYNTAX_ERROR, FAILURE = -0.5, -1.0
"""As in `code.execution`; a program that runs starts from 0."""


class ComputedConfig(ProceduralConfig):
    """Options of `code.computed`.

    Attributes:
        min_difficulty: Easiest level: 1 two operations, 2 a branch or digits, 3 a loop.
        max_difficulty: Hardest level.
        timeout_s: Time limit in seconds of a program on one input.
        memory_mib: Memory limit of a program in MiB.
    """

    min_difficulty: int = Field(default=1, ge=1, le=3)
    max_difficulty: int = Field(default=3, ge=1, le=3)
    timeout_s: float = Field(default=3.0, gt=0, le=MAX_TIMEOUT_S)
    memory_mib: int = Field(default=512, ge=MIN_MEMORY_MIB)


class ComputedRow(Row):
    """A rule with its hidden inputs and expected outputs.

    Attributes:
        rule: The rule in words, as a function of n.
        inputs: Values of n, hidden from the model.
        outputs: Expected output for each input.
    """

    rule: str
    inputs: tuple[int, ...]
    outputs: tuple[str, ...]


def load(config: ComputedConfig) -> Iterator[ComputedRow]:
    """Rules of one number, which programs compute for hidden inputs."""
    return procedural(config, _make, content=lambda row: row.rule)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of n.

    Attributes:
        words: The rule in words, for the prompt.
        value: The rule as a function, for the check.
        lines: The rule as lines of a program that has n.
        case: Case of the rule that n belongs to; the inputs cover more than one.
    """

    words: str
    value: Callable[[int], int]
    lines: tuple[str, ...]
    case: Callable[[int], int] | None = None


def _make(random: Random, level: int) -> ComputedRow:
    while True:
        a, b, c = random.randint(2, 20), random.randint(1, 50), random.randint(2, 9)
        rule = random.choice(_RULES[level])(a, b, c)
        inputs = tuple(random.sample(range(3, 60), INPUTS))
        outputs = tuple(map(rule.value, inputs))
        # All outputs differ, and none is an input: neither a constant nor an echo is right.
        if len(set(outputs)) < INPUTS or set(outputs) & set(inputs):
            continue
        if rule.case is None or len(set(map(rule.case, inputs))) > 1:
            gold = block_of("\n".join(["n = int(input())", *rule.lines]))
            return ComputedRow(id="", rule=rule.words, inputs=inputs, outputs=tuple(map(str, outputs)), gold=gold)


_RULES: Mapping[int, Sequence[Callable[[int, int, int], Rule]]] = {
    1: (
        lambda a, b, c: Rule(f"{a} times n, plus {b}", lambda n: a * n + b, (f"print({a} * n + {b})",)),
        lambda a, b, c: Rule(f"the sum of n and {b}, times {a}", lambda n: (n + b) * a, (f"print((n + {b}) * {a})",)),
        lambda a, b, c: Rule(
            f"{100 + b} minus {a} times n", lambda n: 100 + b - a * n, (f"print({100 + b} - {a} * n)",)
        ),
    ),
    2: (
        lambda a, b, c: Rule(
            f"n times {a} if n is even, and n plus {b} if it is odd",
            lambda n: n + b if n % 2 else n * a,
            ("if n % 2 == 0:", f"    print(n * {a})", "else:", f"    print(n + {b})"),
            lambda n: n % 2,
        ),
        lambda a, b, c: Rule(
            f"n minus {a} if n is greater than {b}, and n times {c} otherwise",
            lambda n: n - a if n > b else n * c,
            (f"if n > {b}:", f"    print(n - {a})", "else:", f"    print(n * {c})"),
            lambda n: n > b,
        ),
        lambda a, b, c: Rule(
            f"the remainder of n times {a} divided by {b + 10}",
            lambda n: n * a % (b + 10),
            (f"print(n * {a} % {b + 10})",),
            lambda n: n * a // (b + 10),
        ),
    ),
    3: (
        lambda a, b, c: Rule(
            f"{b} plus the sum of the numbers from 1 to n that {c} divides",
            lambda n: b + sum(range(c, n + 1, c)),
            (f"t = {b}", "for i in range(1, n + 1):", f"    if i % {c} == 0:", "        t += i", "print(t)"),
        ),
        lambda a, b, c: Rule(
            f"{a} times the sum of the digits of n, plus {b}",
            lambda n: a * sum(map(int, str(n))) + b,
            ("t = 0", "while n > 0:", "    t += n % 10", "    n //= 10", f"print({a} * t + {b})"),
        ),
        lambda a, b, c: Rule(
            f"what {b} becomes when it is n times in a row multiplied by {c} and reduced modulo {a + 100}",
            lambda n: b * pow(c, n, a + 100) % (a + 100),
            (f"x = {b}", "for i in range(n):", f"    x = x * {c} % {a + 100}", "print(x)"),
        ),
    ),
}
"""Level -> rules, each constructed from three numbers: 2 to 20, 1 to 50, 2 to 9."""


def prompt(row: ComputedRow) -> str:
    """The rule."""
    return (
        f"Write a Python program that reads a whole number n from its input and prints {row.rule}. "
        "Answer in a ```python block.\n"
    )


@dataclass(frozen=True, slots=True)
class Attempt:
    """Runs of a program on the hidden inputs.

    Attributes:
        last: Run on the last input; a failure ends the runs.
        printed: Output for each input, without surrounding white space.
        is_repeatable: Whether the output for an input is the same in another state of the machine; checked only where
            outputs differ from each other and are not those of the rule.
    """

    last: Execution
    printed: tuple[str, ...]
    is_repeatable: bool = False


def validate(text: str, row: ComputedRow, config: ComputedConfig) -> Attempt:
    """Run the program on each input, up to the first on which it fails.

    Raises:
        Invalid: the completion holds no program.
        InfrastructureError: the sandbox failed; the completion is not scored.
    """
    program = program_of(text)
    printed: list[str] = []
    for n in row.inputs:
        last = _run(program, n, config)
        if last.status != "ok":
            break
        printed.append(last.stdout.strip())
    is_repeatable = len(set(printed)) == INPUTS
    if is_repeatable and tuple(printed) != row.outputs:
        # In the reverse order, so that no counter of the machine, such as the process id, follows the inputs twice.
        again = (_run(program, n, config, machine_state=1).stdout.strip() for n in reversed(row.inputs))
        is_repeatable = all(output == expected for output, expected in zip(again, reversed(printed), strict=True))
    return Attempt(last, tuple(printed), is_repeatable)


def _run(program: str, n: int, config: ComputedConfig, machine_state: int = 0) -> Execution:
    return run_program(
        program, f"{n}\n", timeout_s=config.timeout_s, memory_mib=config.memory_mib, machine_state=machine_state
    )


@reward(1.0, maximum=0.0)
def execution(answer: Attempt) -> float:
    """0 when the program runs on every input, −0.5 for a syntax error, −1 for any other failure."""
    match outcome_of(answer.last):
        case "output" | "silent":
            return 0.0
        case "syntax_error":
            return SYNTAX_ERROR
        case _:
            return FAILURE


@reward(0.2)
def depends(answer: Attempt) -> float:
    """1 when no two inputs give the same output, and each input gives the same output again, on another machine too.

    Output that depends on the clock, chance or the process is no constant either, but does not follow from the input.
    """
    return float(answer.is_repeatable)


@reward(0.8)
def right(answer: Attempt, row: ComputedRow) -> float:
    """1 when the output is that of the rule for every input."""
    return float(answer.printed == row.outputs)


TASK = Task(
    "computed",
    load,
    prompt,
    validate,
    (execution, depends, right),
    config=ComputedConfig,
    row=ComputedRow,
    version="2",
    compose=weighted_sum(invalid=NO_PROGRAM),
    max_completion_length=512,
    default_model="code-tiny",
    timeout_s=2 * INPUTS * longest_run_s(MAX_TIMEOUT_S) + 15,  # the sandbox's own limits come first
    on_timeout="fail",
    conditions=conditions,
)
"""Value: 1.0 right, 0.2 the output depends on the input, 0.0 it runs, −0.5 syntax error, −1.0 other failure."""
