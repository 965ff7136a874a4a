from grpo_sdk import load_task
from grpo_tasks_math.echo import EchoRow

TASK = load_task("math.echo?size=60")


def test_echo_is_verifiable_and_says_why_its_prompt_holds_the_answer() -> None:
    assert list(TASK.task.exempt) == ["leak"]


def test_levels_are_one_word_two_words_and_a_made_up_word() -> None:
    words = [row.words.split() for row in TASK.rows() if isinstance(row, EchoRow)]
    assert [len(parts) for parts in words[:6]] == [1, 2, 1, 1, 2, 1]
    assert all(4 <= len(parts[0]) <= 8 for parts in words[2::3])
