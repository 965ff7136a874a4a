import math
from itertools import islice

import pytest

from grpo_sdk import Score, UserError, load_task
from grpo_tasks_code.execution import MAX_DEMO_CHARS, PROMPT, metrics
from grpo_tasks_code.extraction import program_of

TASK = load_task("code.execution?size=20&timeout_s=0.5")
ROW = TASK.rows()[0]


def test_the_policy_is_an_option() -> None:
    annotated = "```python\nx: int = 1\nprint(x)\n```"
    assert TASK.score(annotated, ROW).solved
    restricted = load_task("code.execution?policy=restricted")
    assert restricted.score(annotated, ROW).value == -1.0, "RestrictedPython takes no annotated assignment"
    assert restricted.score("```python\nprint(sum(range(4)))\n```", ROW).solved


@pytest.mark.parametrize(("options", "values"), [
    ("", [1.0, 0.5, -0.5, -1.0, -1.0]),
    (
        "&success_with_output=0.9&success_no_output=0.1&syntax_error=-0.2&runtime_error=-0.6&timeout_error=-0.8",
        [0.9, 0.1, -0.2, -0.6, -0.8],
    ),
])  # fmt: skip
def test_the_rungs_are_options(options: str, values: list[float]) -> None:
    task = load_task(f"code.execution?timeout_s=0.5{options}")
    scores = [task.score(text, ROW) for text in ("print(1)", "x = 1", "print(", "x", "while 1: pass")]
    assert [score.value for score in scores] == values
    assert [score.solved for score in scores] == [True, *[False] * 4]
    assert (task.score("", ROW).value, task.score("", ROW).valid) == (-1.0, False)


@pytest.mark.parametrize(("option", "message"), [
    ("success_no_output=1&success_with_output=0.5", "below another value"),
    ("syntax_error=-2", "syntax_error"),
    ("timeout_s=0", "timeout_s"),
    ("path=rows.jsonl", "reads no file"),
    ("faulty=2", "faulty"),
    ("policy=none_such", "policy"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(option: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_task(f"code.execution?{option}")


def test_one_prompt_and_rows_of_their_own() -> None:
    rows = load_task("code.execution").rows()
    assert len(rows) == len({row.id for row in rows}) == 1000  # the reference's data set
    assert {TASK.prompt(row) for row in rows} == {PROMPT}
    assert not {row.id for row in rows} & {row.id for row in load_task("code.execution?split=test").rows()}


def test_metrics_count_what_the_reference_counts() -> None:
    texts = ["print(1)", "print(2)", "x = 1", "print(", "x", "while 1: pass", ""]
    scores = [*(TASK.score(text, ROW) for text in texts), Score(None, fault="infrastructure")]
    assert metrics(scores) == {
        "execution/successful_executions": 3,  # a silent one ran too
        "execution/failed_executions": 4,
        "execution/timeout_executions": 1,
        "execution/syntax_errors": 1,
        "execution/total_completions": 8,
    }
    assert set(metrics([])) == set(metrics(scores))  # the names are known before the first score


def test_the_share_of_broken_demos_is_an_option() -> None:
    task = load_task("code.execution?faulty=0.25&size=80")
    demos = list(task.demos())
    assert len(demos) == 80 and {prompt for prompt, _ in demos} == {PROMPT}
    assert all(len(program_of(text)) <= MAX_DEMO_CHARS + 20 for _, text in demos)  # a fault may add a little
    share = sum(task.score(text, ROW).solved for _, text in demos) / 80
    assert abs(share - 0.75) <= 3 * math.sqrt(0.25 * 0.75 / 80)  # three standard deviations


def test_demos_can_be_simple_and_go_by_the_seed() -> None:
    def first(options: str) -> list[tuple[object, str]]:
        return list(islice(load_task(f"code.execution?{options}").demos(), 5))

    assert all(program_of(text).count("\n") == 1 for _, text in first("max_difficulty=1&faulty=0"))
    assert first("seed=1") == first("seed=1") != first("seed=2")


def test_it_is_evaluated_by_sampling() -> None:
    assert TASK.evaluation.temperature == 1.0 and TASK.evaluation.size == 256
