from pathlib import Path
from typing import Any

import orjson
import pytest

from grpo_sdk import BoundTask, UserError, load_task
from grpo_tasks_code.humaneval import HumanEvalRow, program_for

PROMPT = '''from typing import List

def helper(x):
    return x * 2


def total(numbers: List[int]) -> int:
    """ Sum of the doubled numbers.
    >>> total([1, 2])
    6
    """
'''
BODY = "    result = 0\n    for number in numbers:\n        result += helper(number)\n    return result\n"
DEDENTED = "result = 0\nfor number in numbers:\n    result += helper(number)\nreturn result"
CHECK = """METADATA = {'author': 'nobody'}


def check(candidate):
    assert candidate([]) == 0
    assert candidate([1, 2]) == 6
    for n in range(5):
        assert candidate([n]) == 2 * n, "of one"
"""
RECORD = {"task_id": "HumanEval/0", "prompt": PROMPT, "canonical_solution": BODY, "test": CHECK, "entry_point": "total"}


def task_of(folder: Path, **changed: Any) -> BoundTask:
    path = folder / "rows.jsonl"
    path.write_bytes(orjson.dumps({**RECORD, **changed}))
    return load_task(f"code.humaneval?path={path}")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> BoundTask:
    return task_of(tmp_path_factory.mktemp("humaneval"))


@pytest.fixture
def row(task: BoundTask) -> HumanEvalRow:
    (row,) = task.rows()
    assert isinstance(row, HumanEvalRow)
    return row


def test_the_prompt_is_the_start_and_every_row_is_held_out(task: BoundTask, row: HumanEvalRow) -> None:
    assert task.prompt(row) == PROMPT and task.config.split == "test"
    with pytest.raises(UserError, match="split"):
        task.with_options(split="train")


@pytest.mark.parametrize("completion", [
    "\n" + BODY,
    BODY.lstrip(),  # the first line's indentation went with the prompt
    f"```python\n{BODY}```",
    f"```python\n{DEDENTED}\n```",
    BODY + "\nprint(total([1]))\n# done\n\ntext that is no Python",  # a model goes on writing
    BODY + '\n"""\nanother problem',
    BODY + "```\n\nThis sums the doubled numbers:\n```\n>>> total([1])\n2\n```",  # closes the prompt's block
    f"The body is:\n```\n{BODY}```\nIt prints:\n```\n6\n```",
    f"The function is:\n~~~\ndef total(numbers):\n{BODY}~~~",
    f"Here is it:\n```python\n{PROMPT}{BODY}```",  # a whole program
    f"```python\ndef total(numbers: List[int]) -> int:\n{BODY}```",  # whose imports and helpers are the prompt's
    "if not numbers:\n    return 0\nreturn helper(sum(numbers))",
    # A whole program that defines the function in another way,
    f"```python\nfrom __future__ import annotations\ndef total(numbers: List[int]) -> int:\n{BODY}```",
    "total = lambda numbers: helper(sum(numbers))",
    "if True:\n    def total(numbers): return 2 * sum(numbers)",
    # and a body with lines in the first column that belong to it.
    "    factors = [\n2,\n]\n# of each\n    return factors[0] * sum(numbers)\n",
    '    """Of\nall."""\n    return helper(sum(numbers))\n\nprint("more")\n',
])  # fmt: skip
def test_a_body_or_a_whole_program(task: BoundTask, row: HumanEvalRow, completion: str) -> None:
    score = task.score(completion, row)
    assert score.value == 1.0 and score.solved, (score, program_for(row, completion))


@pytest.mark.parametrize("completion", ["    return 0\n", "```python\ndef other(numbers):\n    return 6\n```"])
def test_what_is_wrong_earns_nothing(task: BoundTask, row: HumanEvalRow, completion: str) -> None:
    score = task.score(completion, row)
    assert (score.value, score.solved) == (0.0, False)


@pytest.mark.parametrize(("changed", "message"), [
    ({"entry_point": "sum"}, "it does not define sum"),
    ({"entry_point": "to tal"}, "no name of a function"),
    ({"test": "def check(candidate):\n    candidate([1])\n"}, "rows.jsonl:1: test 0 asserts nothing"),
    ({"test": "def check(candidate):\n    assert candidate([1]).equals(1)\n"}, "asks the program whether"),
    ({"canonical_solution": "x" * 70_000}, "at most 65536 characters"),
])  # fmt: skip
def test_a_record_that_does_not_fit_is_named(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        task_of(tmp_path, **changed).rows()


def test_a_program_cannot_redefine_the_helper_that_judges_it(task: BoundTask, row: HumanEvalRow) -> None:
    # With a `return`, it cannot be merged into the test, and is called.
    check = "def check(candidate):\n    assert candidate([1]) == helper(1)\n    assert helper(3) == 6\n    return\n"
    row = row.model_copy(update={"check": check})
    cheat = "def helper(x):\n    return 0\n\ndef total(numbers):\n    return 0\n"
    assert task.score(f"```python\n{cheat}```", row).value == 0.0
    assert task.score(BODY, row).value == 1.0
