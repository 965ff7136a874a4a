from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from grpo_core import BoundTask, UserError, load_task
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
CHECK = """METADATA = {'author': 'nobody'}


def check(candidate):
    assert candidate([]) == 0
    assert candidate([1, 2]) == 6
    for n in range(5):
        assert candidate([n]) == 2 * n, "of one"
"""
RECORD = {
    "task_id": "HumanEval/0",
    "prompt": PROMPT,
    "canonical_solution": BODY,
    "test": CHECK,
    "entry_point": "total",
}


@pytest.fixture
def task(tmp_path: Path) -> BoundTask:
    path = tmp_path / "humaneval.jsonl"
    records = [{**RECORD, "task_id": f"HumanEval/{number}"} for number in range(12)]
    path.write_bytes(b"\n".join(map(orjson.dumps, records)))
    return load_task(f"code.humaneval?path={path}")


def row_of(task: BoundTask) -> HumanEvalRow:
    row = task.rows()[0]
    assert isinstance(row, HumanEvalRow)
    return row


def test_the_prompt_is_the_start_and_gold_is_right(task: BoundTask) -> None:
    assert task.prompt(row_of(task)) == PROMPT
    assert task.score(row_of(task).gold or "", row_of(task)).value == 1.0


DEDENTED = "result = 0\nfor number in numbers:\n    result += helper(number)\nreturn result"


@pytest.mark.parametrize(
    "completion",
    [
        BODY,
        "\n" + BODY,
        BODY.lstrip(),  # the first line's indentation went with the prompt
        DEDENTED,
        f"```python\n{BODY}```",
        f"```python\n{DEDENTED}\n```",
        BODY + "\n\ndef other():\n    return 1\n",  # a model goes on writing
        BODY + "\nprint(total([1]))\n# done\n\ntext that is no Python",
        BODY + '\n"""\nanother problem',
        BODY + "\nclass Other:\n    def broken(:\n",
        BODY + "```\n\nThis sums the doubled numbers:\n```\n>>> total([1])\n2\n```",  # closes the prompt's block
        BODY.lstrip() + "```\nThis sums the doubled numbers.",
        f"```\n{BODY}```",
        f"```\n{DEDENTED}\n```",
        f"The body is:\n```\n{BODY}```\nIt prints:\n```\n6\n```",
        f"The function is:\n~~~\ndef total(numbers):\n{BODY}~~~",
        f"Here is it:\n```python\n{PROMPT}{BODY}```",  # a whole program
        f"```python\ndef total(numbers: List[int]) -> int:\n{BODY}```",  # whose imports and helpers are the prompt's
        "```python\ndef total(numbers):\n    return sum(map(helper, numbers))\n```",
        "if not numbers:\n        return 0\n    return helper(sum(numbers))",
        "if not numbers:\n    return 0\nreturn helper(sum(numbers))",
    ],
)
def test_a_body_or_a_whole_program(task: BoundTask, completion: str) -> None:
    score = task.score(completion, row_of(task))
    assert score.value == 1.0 and score.solved, (score, program_for(row_of(task), completion))


@pytest.mark.parametrize(
    "completion",
    [
        "    return 0\n",
        "    return numbers\n",
        "    pass\n",
        "",
        "I cannot do this.",
        "```python\ndef other(numbers):\n    return 6\n```",
        "    import sys\n    sys.exit(0)\n",
        "    return type('X', (int,), {'__eq__': lambda s, o: True})()\n",
    ],
)
def test_what_is_wrong_earns_nothing(task: BoundTask, completion: str) -> None:
    score = task.score(completion, row_of(task))
    assert (score.value, score.solved) == (0.0, False)


def test_every_row_is_held_out_and_no_other_split_exists(task: BoundTask) -> None:
    assert len(task.rows()) == 12 and task.config.split == "test"
    with pytest.raises(UserError, match="split"):
        task.with_options(split="train")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"entry_point": "sum"}, "it does not define sum"),
        ({"entry_point": "to tal"}, "no name of a function"),
        ({"test": None}, "test: text"),
        ({"test": "def check(candidate):\n    candidate([1])\n"}, "rows.jsonl:1: test 0 asserts nothing"),
        ({"test": "def check(candidate):\n    assert candidate([1]).equals(1)\n"}, "asks the program whether"),
        ({"canonical_solution": "x" * 70_000}, "at most 65536 characters"),
    ],
)
def test_a_record_that_does_not_fit_is_named(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(orjson.dumps({**RECORD, **changed}))
    with pytest.raises(UserError, match=message):
        load_task(f"code.humaneval?path={path}").rows()


def test_a_program_cannot_redefine_the_helper_that_judges_it(task: BoundTask) -> None:
    row = row_of(task).model_copy(
        update={"check": "def check(candidate):\n    assert candidate([1]) == helper(1)\n    assert helper(3) == 6\n"}
    )
    cheat = "def helper(x):\n    return 0\n\ndef total(numbers):\n    return 0\n"
    assert task.score(f"```python\n{cheat}```", row).value == 0.0
    assert task.score(BODY, row).value == 1.0
