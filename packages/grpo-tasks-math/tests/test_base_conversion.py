from grpo_sdk import load_task
from grpo_tasks_math.base_conversion import BaseConversionRow, content

TASK = load_task("math.base_conversion?size=210")
TO_BINARY = BaseConversionRow(id="x", number=13, source="decimal", target="binary")
TO_HEX = BaseConversionRow(id="x", number=2748, source="binary", target="hexadecimal")
TO_DECIMAL = BaseConversionRow(id="x", number=200, source="hexadecimal", target="decimal")

RADIX = {"binary": 2, "decimal": 10, "hexadecimal": 16}


def test_prompts() -> None:
    assert [TASK.prompt(row) for row in (TO_HEX, TO_DECIMAL)] == [
        "Convert 101010111100 from binary to hexadecimal:",
        "Convert C8 from hexadecimal to decimal:",
    ]


def test_gold_agrees_with_python_and_is_never_what_the_prompt_shows() -> None:
    for row in TASK.rows():
        assert isinstance(row, BaseConversionRow) and row.gold is not None
        assert int(row.gold, RADIX[row.target]) == row.number
        prompt = TASK.prompt(row)
        assert isinstance(prompt, str) and prompt.split()[1] != row.gold.strip()


def test_a_conversion_and_its_inverse_are_one_problem() -> None:
    inverse = BaseConversionRow(id="x", number=13, source="binary", target="decimal")
    assert content(TO_BINARY) == content(inverse)
