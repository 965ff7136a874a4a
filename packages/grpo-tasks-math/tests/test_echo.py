import pytest

from grpo_sdk import load_task
from grpo_tasks_math.echo import EchoRow

TASK = load_task("math.echo?size=60")
APPLE = EchoRow(id="x", words="apple")


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (1.0, [" apple", '"apple".', '"apple."']),
        (0.2 * 4 / 5, [" apply"]),
        (0.2 * 3 / 5, [" app"]),
        (0.2 * 5 / 11, [" apple apple"]),
        (0.2 * 5 / 9, [" apple pie"]),
        (0.0, [" pineapple", " Apple", " Say apple:", '""', ""]),
    ],
)
def test_the_rungs(value: float, texts: list[str]) -> None:
    for text in texts:
        score = TASK.score(text, APPLE)
        assert score.value == pytest.approx(value) and score.solved == (value == 1.0), text


def test_echo_is_verifiable_and_says_why_its_prompt_holds_the_answer() -> None:
    assert list(TASK.task.exempt) == ["leak"]


def test_levels_are_one_word_two_words_and_a_made_up_word() -> None:
    words = [row.words.split() for row in TASK.rows() if isinstance(row, EchoRow)]
    assert [len(parts) for parts in words[:6]] == [1, 2, 1, 1, 2, 1]
    assert all(4 <= len(parts[0]) <= 8 for parts in words[2::3])
