"""Real problems: every reference solution passes all its tests, and one of another problem passes none."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from shared_data import shared_data

from grpo_sdk import Row, load_task
from grpo_tasks_code.extraction import program_of
from grpo_tasks_code.mbpp.rows import MBPPRow
from grpo_tasks_code.sandbox import Sandbox, TestResult

SLOW_MACHINE_S = 120.0
"""Problem 123 sums the divisors of all numbers up to 9999, twice: 5 s of processor time on the machine of this test."""


def problems(split: str) -> Sequence[Row]:
    return load_task(f"code.mbpp?split={split}&path={shared_data('mbpp_600.jsonl')}").rows()


def result_of(sandbox: Sandbox, row: Row, gold: str | None) -> TestResult:
    assert isinstance(row, MBPPRow)
    tests = (*row.tests, *row.challenge_tests)
    return sandbox.run_tests(program_of(gold or ""), tests, SLOW_MACHINE_S, setup=row.setup)


def check_references(sandbox: Sandbox, rows: Sequence[Row]) -> None:
    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(lambda row: result_of(sandbox, row, row.gold), rows))
    for row, result in zip(rows, results, strict=True):
        assert result.passed == result.total > 0, (row.id, result)


def test_some_reference_solutions_pass_and_none_of_another_problem(sandbox: Sandbox) -> None:
    rows = [row for row in problems("test") if row.id != "123"]
    odd = [row for row in (*rows, *problems("validation")) if row.id in ("367", "596")]  # tree as set-up; getsizeof
    check_references(sandbox, [*rows[:8], *odd])
    for row, other in pairwise(rows[:8]):
        assert result_of(sandbox, row, other.gold).passed == 0


@pytest.mark.slow
@pytest.mark.parametrize(("split", "count"), [("test", 500), ("validation", 90)])
def test_every_reference_solution_passes(sandbox: Sandbox, split: str, count: int) -> None:
    rows = problems(split)
    assert len(rows) == count
    check_references(sandbox, rows)  # none is broken in the data
