from grpo_sdk import load_task
from grpo_tasks_math.counting import CountingRow, content

TASK = load_task("math.counting?size=60")
WORDS = CountingRow(id="x", phrase="red fox runs", unit="words")
LETTERS = CountingRow(id="x", phrase="butter cup", unit="letters")
LETTER = CountingRow(id="x", phrase="butter cup", unit="letter", letter="t")


def test_prompts_and_results() -> None:
    assert [(TASK.prompt(row), row.result) for row in (WORDS, LETTERS, LETTER)] == [
        ('How many words are in "red fox runs"? Answer:', 3),
        ('How many letters are in "butter cup"? Answer:', 9),
        ('How many times does the letter "t" appear in "butter cup"? Answer:', 2),
    ]


def test_the_order_of_words_makes_no_other_problem() -> None:
    assert content(LETTERS) == content(LETTERS.model_copy(update={"phrase": "cup butter"}))
    assert content(LETTERS) != content(LETTER)


def test_one_is_not_almost_always_the_count_of_a_letter() -> None:
    rows = load_task("math.counting?min_difficulty=3&size=300").rows()
    ones = sum(row.result == 1 for row in rows if isinstance(row, CountingRow))
    assert ones < 200
