"""Verifications per second, beside plain math-verify on the same pairs in the same run.

    python benchmarks/verify.py [--json] [--seconds 1.0]

Both columns run in this process, alternating, by CPU time. Each formula has other numbers at each call, since both
sides keep what they have read. Plain math-verify is `verify(parse(gold), parse(text))` with
its own time limits off, because they cannot be used outside a main thread. The pool's line is wall time: all workers.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import count as counter

from arguments import command_line, positive

from grpo_tasks_math.verify import Verdict, close, symbolic, verify, warm

FILLER = "We add 12 and 30 to obtain 42, and then we note that 6 * 7 = 42 as well. "
Case = Callable[[int], tuple[str, str]]
"""Gold and completion, with a number in them."""
KILOBYTE = FILLER * (1000 // len(FILLER))

EXACT: dict[str, Case] = {
    "number": lambda n: ("42", "42"),
    "phrase": lambda n: ("42", "The answer is 42."),
    "box": lambda n: ("42", r"so that \boxed{42}."),
    "tags": lambda n: ("42", "<think>6 * 7 = 42</think>\n<answer>42</answer>"),
    "fraction": lambda n: ("1/2", r"\boxed{\dfrac{21}{42}}"),
    "set": lambda n: (r"\{1,2\}", r"\boxed{\{2, 1\}}"),
    "1 kB, box": lambda n: ("42", KILOBYTE + r"\boxed{42}"),
    "1 kB, phrase": lambda n: ("42", KILOBYTE + "The answer is 42."),
    "1 kB, last number": lambda n: ("42", KILOBYTE + "So 42 it is"),
    "1 kB, thinking": lambda n: ("42", f"<think>{KILOBYTE}</think>\n<answer>42</answer>"),
}
FORMULAS: dict[str, Case] = {
    "root": lambda n: (rf"\frac{{\sqrt{{{n}}}}}{{{n}}}", rf"\boxed{{\frac{{1}}{{\sqrt{{{n}}}}}}}"),
    "root of a letter": lambda n: (rf"{n}\sqrt{{x}} + 1", rf"\boxed{{1 + {n}\sqrt{{x}}}}"),
    "sine": lambda n: (rf"\sin({n}x) + 1", rf"\boxed{{1 + \sin({n}x)}}"),
    "polynomial": lambda n: (f"(x+{n})^2", rf"\boxed{{x^2+{2 * n}x+{n * n}}}"),
    "matrix": lambda n: (
        rf"\begin{{pmatrix}}1&2\\3&{n}\end{{pmatrix}}",
        rf"\boxed{{\begin{{pmatrix}}1 & 2\\ 3 & {n}\end{{pmatrix}}}}",
    ),
    "wrong": lambda n: (rf"\sqrt{{{n}}}", rf"\boxed{{\sqrt{{{n + 1}}}}}"),
    "wrong, with letters": lambda n: (rf"{n}\sqrt{{x}} + 1", rf"\boxed{{{n}\sqrt{{x}} - 1}}"),
}


@dataclass(frozen=True)
class Line:
    """One row of the table; rates per second of CPU time of one process."""

    case: str
    characters: int
    ours_per_s: float
    math_verify_per_s: float
    ours_is_correct: bool
    math_verify_is_correct: bool

    @property
    def ratio(self) -> float:
        """How many times math-verify's rate."""
        return self.ours_per_s / self.math_verify_per_s


def rate(check: Callable[[str, str], object], case: Case, seconds: float) -> float:
    """Checks per second of CPU time, over at least `seconds`."""
    numbers = counter(2)

    def function() -> None:
        check(*case(next(numbers)))

    function()
    calls, batch, begin = 0, 1, time.process_time()
    while (spent := time.process_time() - begin) < seconds:
        for _ in range(batch):
            function()
        calls += batch
        batch = min(batch * 2, 256)
    return calls / spent


def plain_math_verify(gold: str, completion: str) -> bool:
    from math_verify import parse
    from math_verify import verify as compare

    expected = parse(f"${gold}$", parsing_timeout=None)
    return bool(compare(expected, parse(completion, parsing_timeout=None), timeout_seconds=None))


def in_process(gold: str, completion: str) -> bool:
    """Our symbolic path without the pool, so that engines are compared and not processes."""
    return symbolic.handle(symbolic.encode(gold, completion.removeprefix(r"\boxed{").removesuffix("}"))) == b"correct"


def measure(cases: dict[str, Case], ours: Callable[[str, str], object], expected: object, seconds: float) -> list[Line]:
    lines = []
    for name, case in cases.items():
        # Two half measurements each, alternating, so that a busy machine slows both.
        halves = [(rate(ours, case, seconds / 2), rate(plain_math_verify, case, seconds / 2)) for _ in range(2)]
        gold, completion = case(2)
        lines.append(
            Line(
                name,
                len(completion),
                sum(half[0] for half in halves) / 2,
                sum(half[1] for half in halves) / 2,
                ours(gold, completion) == expected,
                plain_math_verify(gold, completion),
            )
        )
    return lines


def pool_rate(seconds: float) -> float:
    """Checks per second of wall time through the pool, with distinct payloads."""
    warm()
    pairs = [(rf"\sqrt[3]{{x}} + {n}", rf"\boxed{{{n} + \sqrt[3]{{x}}}}") for n in range(50_000)]
    done, begin = 0, time.perf_counter()
    with ThreadPoolExecutor(16) as threads:
        while (spent := time.perf_counter() - begin) < seconds:
            verdicts = list(threads.map(lambda pair: verify(pair[0], pair[1], 60.0), pairs[done : done + 64]))
            assert set(verdicts) == {Verdict.CORRECT}
            done += len(verdicts)
    close()
    return done / spent


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--seconds", type=positive, default=1.0, help="CPU time of each measurement")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # math-verify warns that its time limits are off, as they are meant to be

    exact = measure(EXACT, verify, Verdict.CORRECT, arguments.seconds)
    formulas = measure(FORMULAS, in_process, True, arguments.seconds)
    pooled = pool_rate(2 * arguments.seconds)
    if arguments.json:
        report = {
            "cpus": os.cpu_count(),
            "exact": [asdict(line) | {"ratio": line.ratio} for line in exact],
            "symbolic": [asdict(line) | {"ratio": line.ratio} for line in formulas],
            "pool_per_s_wall": pooled,
        }
        print(json.dumps(report, indent=2))
        return
    print(f"{'per second of CPU time':24} {'chars':>6} {'ours':>10} {'math-verify':>12} {'ratio':>8}   both correct?")
    for title, lines in (("exact", exact), ("symbolic, in process", formulas)):
        print(title)
        for line in lines:
            print(
                f"  {line.case:22} {line.characters:6d} {line.ours_per_s:10.0f} {line.math_verify_per_s:12.0f} "
                f"{line.ratio:7.1f}x   {line.ours_is_correct!s:>5}, {line.math_verify_is_correct}"
            )
    print(f"symbolic, through the pool: {pooled:.0f} per second of wall time on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
