import pytest

from grpo_sdk import load_task
from grpo_tasks_code.output_prediction import OutputPredictionRow

TASK = load_task("code.output_prediction?size=40")


def test_there_are_enough_rows_to_evaluate() -> None:
    assert len(load_task("code.output_prediction?split=test&size=512").rows()) == 512


def test_the_prompt_shows_the_program_and_nothing_of_its_output() -> None:
    prompt = TASK.prompt(OutputPredictionRow(id="x", source="x = 6\nprint(x * 7)", output="42"))
    assert prompt == (
        "What does this program print? Answer with its output alone.\n```python\nx = 6\nprint(x * 7)\n```\nOutput:"
    )


@pytest.mark.parametrize(("text", "output", "value"), [
    ("42\nbecause 6 times 7", "42", 1.0),
    ("`42`", "42", 1.0),
    ("'pears'", "pears", 1.0),
    (" -42", "-42", 1.0),
    (" 41", "42", 0.2),
    (" 42", "-42", 0.1),
    (" forty-two", "42", 0.0),
    (" 42.0", "42", 0.0),
    (" 42 or 43", "42", 0.0),
    (" pear", "pears", 0.18),  # 4 of 5 letters: 0.1 + 0.1 · 0.8
    (" 7", "pears", 0.0),
    ("9" * 100_000, "9", 0.0),
    ("\n42", "42", 0.0),
])  # fmt: skip
def test_the_rungs(text: str, output: str, value: float) -> None:
    score = TASK.score(text, OutputPredictionRow(id="x", source=f"print({output!r})", output=output))
    assert score.value == pytest.approx(value) and score.solved == (value == 1.0)


@pytest.mark.parametrize(("level", "marks"), [(1, ("print(",)), (2, ("=",)), (3, ("for ", "while ", "if "))])
def test_levels(level: int, marks: tuple[str, ...]) -> None:
    for row in load_task(f"code.output_prediction?min_difficulty={level}&max_difficulty={level}&size=20").rows():
        assert isinstance(row, OutputPredictionRow) and any(mark in row.source for mark in marks)
