from collections.abc import Callable

import pytest

from grpo_sdk.errors import UserError
from grpo_sdk.rewards import answer_block, length_penalty, pairwise_ranking, soft_overlong, xml_format


@pytest.mark.parametrize(("chars", "settings", "expected"), [
    (50, {}, 0.0),
    (125, {}, -0.05),  # half way from 50 to 200
    (200, {}, -0.1),
    (1, {"free_chars": 0, "max_chars": 2}, -0.05),
])  # fmt: skip
def test_length_penalty(chars: int, settings: dict[str, float], expected: float) -> None:
    assert length_penalty("x" * chars, **settings) == pytest.approx(expected)


@pytest.mark.parametrize(("length", "max_length", "buffer", "expected"), [
    (80, 100, 20, 0.0),  # max_length 100 − buffer 20
    (85, 100, 20, -0.25),  # (80 − 85) / 20
    (100, 100, 20, -1.0),
])  # fmt: skip
def test_soft_overlong_is_dapos_equation_13(length: int, max_length: int, buffer: int, expected: float) -> None:
    assert soft_overlong(length, max_length=max_length, buffer=buffer) == pytest.approx(expected)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: length_penalty("x", free_chars=200), "need 0 <= free_chars < max_chars and most >= 0"),
    (lambda: length_penalty("x", free_chars=-1), "need 0 <= free_chars < max_chars and most >= 0"),
    (lambda: length_penalty("x", most=-0.1), "need 0 <= free_chars < max_chars and most >= 0"),
    (lambda: soft_overlong(1, max_length=100, buffer=0), "need 1 <= buffer <= max_length"),
    (lambda: soft_overlong(1, max_length=100, buffer=101), "need 1 <= buffer <= max_length"),
    (lambda: xml_format("x", opened="answer"), r"can only open the first of \('think', 'answer'\)"),
    (lambda: pairwise_ranking(5), r"prefers is a function \(answer, other, row\)"),
    (lambda: pairwise_ranking(lambda answer, other: True), r"prefers is a function \(answer, other, row\)"),
])  # fmt: skip
def test_settings_that_are_none_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.parametrize(("text", "opened", "value"), [
    ("<think>a</think><answer>b</answer>", None, 1.0),
    ("  <think>\na < b\n</think>\n\n<answer></answer>\n", None, 1.0),
    ("a</think><answer>b</answer>", "think", 1.0),  # the prompt opened it
    ("<think>a</think><answer>b</answer>", "think", 0.0),
    ("<think>a<answer>b</answer></think>", None, 0.0),
    ("<think>a</think>x<answer>b</answer>", None, 0.0),
    ("<answer>b</answer><think>a</think>", None, 0.0),
    ("<think>a</think><answer>b</answer><answer>b</answer>", None, 0.0),
])  # fmt: skip
def test_xml_format(text: str, opened: str | None, value: float) -> None:
    assert xml_format(text, opened=opened) == value


@pytest.mark.parametrize(("text", "answer"), [
    ("4", None),
    ("<answer>3</answer> No: <ANSWER> 4 </Answer>.", " 4 "),
    ("<answer></answer>", ""),
])  # fmt: skip
def test_an_answer_block_is_the_last_closed_one(text: str, answer: str | None) -> None:
    assert answer_block(text) == answer
