from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_sdk import Invalid
from grpo_tasks_games.style import ask, read_move, reply

MOVE = "([0-9]{1,4})"


@pytest.mark.parametrize(
    ("move", "texts"),
    [
        ("4", ["<answer>[4]</answer>", "<think>[1] or 2?</think><answer> [ 4 ]. </answer>", "<ANSWER type='x'>[4]"]),
        ("4", ["<answer>4</answer>", "4", "[4]", "4.", "<think>cell 0 is bad</think>[4]", "4</answer>", "4<|im_end|>"]),
        ("9", ["<answer>[9]</answer>", "9"]),  # the game says that there is none
        ("2", ["<think><answer>[1]</answer> is bad</think><answer>[2]</answer>"]),
        (None, ["<answer>[zz]</answer> 3", "<think>[4]</think><answer>[five]</answer>", "<think>so [4] or"]),
        (None, ["<answer>[-3]</answer>", "[\N{MINUS SIGN}1]", "0.5 or 5.5", "a4 x_5", "[]", "[12345]", "", "[4", "4]"]),
        (None, ["\N{ARABIC-INDIC DIGIT FOUR}", "\N{FULLWIDTH DIGIT THREE}", "I take 7.", "3 is taken, so [5]"]),
        # A second move, whether there is such a one or not, and one that is denied or computed.
        (None, ["<answer>[2] or [4]</answer>", "<answer>4 or 9</answer>", "<answer>[4] or 9</answer>", "2 4"]),
        (None, ["<answer>2+2</answer>", "4-5", "4%", "not 4", "anything but 4", "<answer>cell 4: [4]</answer>"]),
    ],
)
def test_the_whole_answer_is_one_move(move: str | None, texts: list[str]) -> None:
    found: dict[str, str | None] = dict.fromkeys(texts)
    for text in texts:
        with suppress(Invalid):
            found[text] = read_move(text, MOVE)[1]
    assert found == dict.fromkeys(texts, move)


@pytest.mark.parametrize(
    "text",
    [
        "<answer></answer><answer>[2]</answer>", "<answer>[2]</answer><answer>[4]</answer>", "<answer>[2]<answer>",
        "<answer>[2]</answer> or <answer></answer>", "2</answer><answer>4", "<answer x>2</answer><answer>4</answer>",
    ],
)  # fmt: skip
def test_a_second_tag_makes_the_answer_invalid(text: str) -> None:
    with pytest.raises(Invalid, match="second"):
        read_move(text, MOVE)


_LONG = 100_000


_TEXTS = [
    "<answer>" * _LONG, "<answer>" + " " * _LONG + "x", "[" * _LONG, "[" + " " * _LONG, "[ 1 " * _LONG, "1" * _LONG,
    "[1111" * _LONG, "\x00\ud800" * _LONG, "İ" * _LONG,
]  # fmt: skip


@pytest.mark.parametrize("text", _TEXTS, ids=range(len(_TEXTS)))
def test_long_text_takes_no_time(text: str) -> None:
    started = time.perf_counter()
    for pattern in (MOVE, r"([a-z])\s?([0-9]{1,4})"):
        with suppress(Invalid):
            read_move(text, pattern)
    assert time.perf_counter() - started < 2.0


@given(st.integers(0, 8), st.sampled_from(["full", "chat", "short"]), st.text(max_size=20))
def test_a_written_move_is_found_whatever_stands_before_it(cell: int, style: str, before: str) -> None:
    written = reply(str(cell), "I take it.", style)  # type: ignore[arg-type] # a style
    assert int(read_move(before + written if style != "short" else written, MOVE)[1]) == cell


def test_the_three_styles() -> None:
    def asked(style: str) -> object:
        return ask("Rules.", "board", "n", "3", "Why not.", style)  # type: ignore[arg-type] # a style

    full = asked("full")
    assert isinstance(full, str)
    assert full.startswith("Rules.\n")
    assert "<think>your reasoning</think><answer>[n]</answer>\n" in full
    assert full.endswith("<think>Why not.</think><answer>[3]</answer>\n")
    assert asked("chat") == ({"role": "user", "content": full},)
    assert asked("short") == "board\n"
    assert reply("3", "Why not.", "short") == "3"
