from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.errors import UserError
from grpo_core.rewards import answer_block, length_penalty, pairwise_ranking, soft_overlong, xml_format


@pytest.mark.parametrize(
    ("chars", "expected"),
    [
        (0, 0.0),
        (50, 0.0),
        (125, -0.05),  # half way from 50 to 200
        (200, -0.1),
        (10_000, -0.1),
    ],
)
def test_length_penalty(chars: int, expected: float) -> None:
    assert length_penalty("x" * chars) == pytest.approx(expected)


@given(st.integers(0, 400), st.integers(0, 400))
def test_a_longer_text_never_costs_less(a: int, b: int) -> None:
    shorter, longer = sorted((a, b))
    assert -0.1 <= length_penalty("x" * longer) <= length_penalty("x" * shorter) <= 0.0


def test_the_least_settings_are_allowed() -> None:
    assert length_penalty("x", free_chars=0, max_chars=2) == pytest.approx(-0.05)
    assert length_penalty("x" * 300, most=0.0) == 0.0
    assert soft_overlong(10, max_length=10, buffer=1) == -1.0


@pytest.mark.parametrize("settings", [{"free_chars": 200}, {"free_chars": -1}, {"most": -0.1}])
def test_length_penalty_refuses_settings_that_are_none(settings: dict[str, float]) -> None:
    with pytest.raises(UserError, match="need 0 <= free_chars < max_chars and most >= 0"):
        length_penalty("x", **settings)


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (80, 0.0),  # max_length 100 − buffer 20
        (85, -0.25),  # (80 − 85) / 20
        (100, -1.0),
        (140, -1.0),
    ],
)
def test_soft_overlong_is_dapos_equation_13(length: int, expected: float) -> None:
    assert soft_overlong(length, max_length=100, buffer=20) == pytest.approx(expected)


@pytest.mark.parametrize("buffer", [0, 101])
def test_soft_overlong_refuses_a_buffer_that_does_not_fit(buffer: int) -> None:
    with pytest.raises(UserError, match="need 1 <= buffer <= max_length"):
        soft_overlong(1, max_length=100, buffer=buffer)


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think><answer>b</answer>",
        "  <think>\na < b\n</think>\n\n<answer></answer>\n",
    ],
)
def test_xml_format_accepts_each_tag_once_in_order(text: str) -> None:
    assert xml_format(text) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<answer>b</answer>",
        "<answer>b</answer><think>a</think>",
        "<think>a</think><answer>b",
        "<think>a</think><answer>b</answer><answer>c</answer>",
        "<think>a<answer>b</answer></think>",
        "<think>a<think></think><answer>b</answer>",
        "<think>a</think> so: <answer>b</answer>",
        "well <think>a</think><answer>b</answer>",
        "<think>a</think><answer>b</answer> done",
        "</think>a<think><answer>b</answer>",
        "< think >a</ think ><answer>b</answer>",
    ],
)
def test_xml_format_refuses_everything_else(text: str) -> None:
    assert xml_format(text) == 0.0


def test_a_tag_that_the_prompt_opened_is_not_wanted_again() -> None:
    assert xml_format("a</think><answer>b</answer>", opened="think") == 1.0
    assert xml_format("<think>a</think><answer>b</answer>", opened="think") == 0.0


def test_the_prompt_can_only_open_the_first_tag() -> None:
    with pytest.raises(UserError, match=r"the prompt can only open the first of \('think', 'answer'\)"):
        xml_format("x", opened="answer")


@given(st.lists(st.sampled_from(["<a>", "</a>", "<b>", "</b>", "x", " "]), max_size=8))
def test_xml_format_agrees_with_its_definition(pieces: list[str]) -> None:
    # The definition, written as a state machine: white space only outside, no tag inside a tag.
    wanted, inside, ok = ["<a>", "</a>", "<b>", "</b>"], False, True
    for piece in pieces:
        if piece in ("x", " "):
            ok &= inside or piece == " "
        elif wanted and piece == wanted[0]:
            wanted.pop(0)
            inside = not inside
        else:
            ok = False
    assert xml_format("".join(pieces), tags=("a", "b")) == float(ok and not wanted)


@pytest.mark.parametrize("prefers", [5, lambda answer, other: True, "longer"])
def test_a_preference_takes_two_answers_and_the_row(prefers: Any) -> None:
    with pytest.raises(UserError, match=r"prefers is a function \(answer, other, row\)"):
        pairwise_ranking(prefers)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("4", None),
        ("<answer>4</answer>", "4"),
        ("<answer>3</answer> No: <ANSWER> 4 </Answer>.", " 4 "),
        ("<answer>3</answer> No: <answer>4", "3"),  # a closed one counts before one that is cut
        ("It is <answer>4", "4"),
        ("4</answer> and more", "4"),  # the prompt opened it
        ("<answer>3 <answer>4</answer>", "4"),
        ("</answer>", ""),
        ("<answer></answer>", ""),
    ],
)
def test_an_answer_block_is_the_last_closed_one(text: str, answer: str | None) -> None:
    assert answer_block(text) == answer
