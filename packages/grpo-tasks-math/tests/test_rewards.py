import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_tasks_math import rewards
from grpo_tasks_math.rewards import accuracy, signed_accuracy
from grpo_tasks_math.verify import Verdict


@pytest.mark.parametrize(
    ("reward", "value"),
    [(accuracy, 0.0), (signed_accuracy, -1.0), (rewards.tag_pref, 0.0), (rewards.tag_math_correct, 0.0)],
)
def test_what_is_not_shown_to_be_right_is_wrong(reward: object, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewards, "verify", lambda *_, **__: Verdict.TIMEOUT)
    assert reward("<answer>x</answer>", "y") == value  # type: ignore[operator]  # all are (completion, gold) -> float


@pytest.mark.parametrize(
    ("gold", "value", "completions"),
    [
        ("12", 1.0, ["12"]),
        ("12", 0.5, ["First 12, then 15"]),
        ("12", -1.0, ["It has 112 parts, so 15", "the 12th of 15", "model v12, so 15", "12.5 or so: 15", ""]),
        ("12", -1.0, ["minus: -12, so 15"]),
        ("-12", 0.5, ["minus: -12, so 15"]),
        ("24", -1.0, ["<think>24</think> so 7", "#### not 24", "24% of them, so 7", "It is 7, never 24."]),
        ("1200", 0.5, ["He paid $1,200. Then 15"]),
        ("paris", 0.5, ["It is Paris, no. Lyon: 3"]),
    ],
)
def test_signed_accuracy(gold: str, value: float, completions: list[str]) -> None:
    assert {text: signed_accuracy(text, gold) for text in completions} == dict.fromkeys(completions, value)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 9999), st.integers(0, 9999))
def test_a_mention_is_a_whole_number(gold: int, other: int) -> None:
    assert rewards.is_mentioned(str(gold), f"there are {other} of them") is (gold == other)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Of 12 apples 5 are left, so 7", 0.5),
        ("48 / 4 = 12. And so 3", 0.5),
        ("12 or 13 or 14 or 15", -1.0),  # a list is no mention
        ("9 10 11 12 13 = 5", -1.0),  # nor is what stands before the last sign of equality
        ("48 / 4 = 12 = 3", -1.0),
        ("9 10 11 12 13\n#### 12", 1.0),  # an answer is an answer
    ],
)
def test_a_mention_stands_among_few_numbers_behind_the_last_equality(text: str, value: float) -> None:
    assert signed_accuracy(text, "12") == value


def test_rewards_take_a_reading() -> None:
    assert [rewards.accuracy("so 12", "12", reading=kind) for kind in ("free", "marked")] == [2.0, 0.0]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["1 ", "1,", "1.5 ", "0.", "-1 ", "1,111", "x "])
def test_a_hostile_text_is_searched_once(unit: str) -> None:
    assert not rewards.is_mentioned("18", unit * (1_000_000 // len(unit)))


@pytest.mark.parametrize(
    ("length", "value"),
    [(0, 0.0), (20, 0.0), (60, -0.125), (100, -0.5), (101, -0.5), (9999, -0.5)],  # −0.5·((60 − 20)/80)² = −0.125
)
def test_length_penalty(length: int, value: float) -> None:
    assert rewards.length_penalty("x" * length) == pytest.approx(value, abs=0)


@pytest.mark.parametrize(("length", "value"), [(50, 0.0), (125, -0.05), (200, -0.1), (999, -0.1)])  # halfway at 125
def test_overfit_length_penalty(length: int, value: float) -> None:
    assert rewards.overfit_length_penalty("x" * length) == pytest.approx(value)


ONE = "so it is</think>\n<answer>12</answer>"
TWO = "<answer>11</answer> no, <answer>12</answer>"


@pytest.mark.parametrize(
    ("tags", "answer", "completions"),
    [
        (1, 1, [ONE]),
        (1, 0, ["<answer>11</answer>", "<think><answer>12</answer></think> 12", "<answer></answer>"]),
        (1, 0, ["<answer>11 or 12</answer>", "<think>hm <answer>12</answer>"]),
        (0, 1, [TWO]),
        (0, 0, ["12", "</answer>12<answer>", "<answer>12", "12</answer>"]),
    ],
)
def test_tag_rewards(tags: int, answer: int, completions: list[str]) -> None:
    for completion in completions:
        assert rewards.tag_pref(completion, "12") == answer
        assert rewards.tag_pref(completion, "12", w_tag=0.5, w_ans=2.0) == 0.5 * tags + 2.0 * answer
        assert rewards.tag_math_correct(completion, "12") == tags * answer


@pytest.mark.parametrize(
    ("value", "completions"),
    [
        (1.0, [ONE, ONE + "\n", "x</think><answer></answer>"]),
        (0.0, [ONE + "!", "x</think> well: <answer>12</answer>", "<answer>12</answer>", "x</think>12</answer>", ""]),
        (0.0, ["x</think><answer>1</answer>2</answer>"]),
    ],
)
def test_tag_correct(value: float, completions: list[str]) -> None:
    assert {text: rewards.tag_correct(text) for text in completions} == dict.fromkeys(completions, value)
