import pytest

from grpo_sdk import load_task
from grpo_tasks_code.computed import ComputedRow
from grpo_tasks_code.extraction import program_of
from grpo_tasks_code.programs.generator import output_of

TASK = load_task("code.computed?size=30&timeout_s=1")
ROW = ComputedRow(id="x", rule="2 times n, plus 5", inputs=(3, 10, 4), outputs=("11", "25", "13"))


@pytest.mark.parametrize(("text", "value"), [
    ("n = int(input())\nprint(2 * n + 5)", 1.0),
    ("print(int(input()) * 2 + 5, flush=True)", 1.0),
    ("print(int(input()) * 2)", 0.2),  # it depends on the input
    ("print(11)", 0.0),  # right on one input
    ("input()", 0.0),
    ("import time\nprint(time.time_ns())", 0.0),  # another output each time, whatever the input
    ("import random\nprint(random.random(), input())", 0.0),
    ("print(hash(input()))", 0.0),  # of the hash seed, which is of the machine
    ("import random\nrandom.seed(input())\nprint(random.random())", 0.2),  # the input alone decides it
    ("print(2 * n + 5)", -1.0),
    ("n = int(input())\nprint(2 * n + 5 if n < 10 else 1 / 0)", -1.0),  # fails on one input
    ("print(", -0.5),
    ("while True: pass", -1.0),
    ("", -1.0),
])  # fmt: skip
def test_the_ladder(text: str, value: float) -> None:
    score = TASK.score(text, ROW)
    assert score.value == pytest.approx(value) and score.solved == (value == 1.0)


def test_rows_hide_their_inputs_meet_every_case_and_have_the_output_of_their_gold() -> None:
    rows = load_task("code.computed?split=test&size=512").rows()
    assert len(rows) == 512
    for row in rows:
        assert isinstance(row, ComputedRow)
        assert len(set(row.outputs)) == len(row.inputs) == 3  # so that a constant is wrong
        assert not set(row.outputs) & set(map(str, row.inputs))
        assert row.rule in str(TASK.prompt(row))
        if "even" in row.rule:
            assert {n % 2 for n in row.inputs} == {0, 1}
        if "greater than" in row.rule:
            border = int(row.rule.split("greater than ")[1].split(",")[0])
            assert {n > border for n in row.inputs} == {True, False}
        for n, output in zip(row.inputs, row.outputs, strict=True):
            assert output_of(program_of(row.gold or "").replace("int(input())", str(n))) == output, row
