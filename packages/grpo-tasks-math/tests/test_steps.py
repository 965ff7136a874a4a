import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_tasks_math.steps import MAX_STEPS, steps


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("48/2 = <<48/2=24>>24 clips", [("48/2=24", True)]),
        ("$3 * 1,000 = $3,000.", [("3*1,000=3,000", True)]),
        ("80,000 * 150% = 120,000", [("80,000*150%=120,000", True)]),
        ("10 / 50 = 20%", [("10/50=20%", True)]),
        ("10 / 50 * 100 = 20%", [("10/50*100=20%", True)]),
        ("10 / 50 = 30%", [("10/50=30%", False)]),
        ("10 / 3 = 3.33", [("10/3=3.33", True)]),
        ("10 / 3 = 3.34", [("10/3=3.34", False)]),
        ("10 / 3 = 3", [("10/3=3", False)]),
        ("10 / 3 ≈ 3", [("10/3=3", True)]),
        ("2 + 3 = 5 = 10 / 2", [("2+3=5", True), ("5=10/2", True)]),
        ("4 × 3 = 12 and 4 x 3 = 13", [("4*3=12", True), ("4*3=13", False)]),
        (r"\(\frac{48}{2} \times 3 = 72\)", [(r"\frac{48}{2}*3=72", True)]),
        ("-3 + 5 = 2", [("-3+5=2", True)]),
        ("(2 + 3) * 4 = 20 (since 5 * 4 = 20)", [("(2+3)*4=20", True), ("5*4=20", True)]),
    ],
)
def test_steps(text: str, expected: list[tuple[str, bool]]) -> None:
    assert list(steps(text).items()) == expected


NO_STEPS = [
    "20 = 20", "x = 24", "2x + 3 = 7", "x2 + 3 = 5", "3 * 4 = 2x", "60 students x 2/3 = 40", "5 apples - 3 = 2",
    "6:00 + 48 = 6:48", "3 + = 4", "1 / 0 = 5", "no arithmetic", "",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_STEPS)
def test_without_an_operation_between_whole_sides_there_is_no_step(text: str) -> None:
    assert steps(text) == {}


def test_a_repeated_step_is_one() -> None:
    assert len(steps("1 + 1 = 2\n" * 50)) == 1


def test_at_most_the_stated_number_is_read() -> None:
    text = "\n".join(f"{n} + 1 = {n + 1}" for n in range(MAX_STEPS + 10))
    assert len(steps(text)) == MAX_STEPS


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 999), st.integers(1, 999), st.sampled_from("+-*"), st.integers(-3, 3))
def test_truth_is_that_of_the_integers(a: int, b: int, operator: str, error: int) -> None:
    value = {"+": a + b, "-": a - b, "*": a * b}[operator]
    (is_true,) = steps(f"so {a} {operator} {b} = {value + error} apples").values()
    assert is_true is (error == 0)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789.,+-*/^(){}=<>$%!x \n\\frac≈\ud800", max_size=120))
def test_never_raises(text: str) -> None:
    assert len(steps(text)) <= MAX_STEPS
