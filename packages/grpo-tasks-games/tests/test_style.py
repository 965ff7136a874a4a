from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_core import Invalid
from grpo_tasks_games.style import ask, find_move, reply

MOVE, LONE = "([0-9]{1,4})", "([0-8])"


@pytest.mark.parametrize(
    ("move", "texts"),
    [
        # Brackets in <answer> stand before all else; then one in brackets, before a lone digit.
        ("4", ["<answer>[4]</answer>", "<think>[1] or 2?</think><answer> [ 4 ] </answer>", "[3], no: <ANSWER>[4]"]),
        ("4", ["<answer>cell 4: [4]</answer>"]),  # the same move is one
        ("4", ["<answer>4</answer>", "4"]),
        ("5", ["3 is taken, so [5]"]),
        ("5", ["<think>cell 0 is bad</think><answer>5</answer>", "<think>cell 0 is bad</think>I take 5."]),
        ("7", ["I take 7."]),
        ("9", ["<answer>[9]</answer> or 3"]),  # it names a cell, though there is none: no second guess
        ("2", ["<think><answer>[1]</answer> is bad</think><answer>[2]</answer>"]),
        ("3", ["3 <think>so [4] or"]),
        (None, ["<answer>[zz]</answer> 3", "<think>[4]</think><answer>[five]</answer>", "<think>so [4] or"]),
        (None, ["<answer>[-3]</answer>", "[\N{MINUS SIGN}1]", "0.5 or 5.5", "a4 x_5", "9", "[]", "[12345]", ""]),
        (None, ["12 and 48", "\N{ARABIC-INDIC DIGIT FOUR} \N{SUPERSCRIPT TWO} \N{FULLWIDTH DIGIT THREE}"]),
        (None, ["\N{ARABIC-INDIC DIGIT FOUR}4"]),  # digits of a number are not alone
    ],
)
def test_where_a_move_is_looked_for(move: str | None, texts: list[str]) -> None:
    found = {text: find_move(text, MOVE, LONE) for text in texts}
    assert {text: each and each[1] for text, each in found.items()} == dict.fromkeys(texts, move)


@pytest.mark.parametrize(
    "text",
    [
        "<answer>[2] or [4]</answer>", "<answer>[2], not 4</answer>", "<answer>2 4</answer>", "so [5], or [6]",
        "2 or 3",
        "<answer></answer><answer>[2]</answer>", "<answer>[2]</answer><answer>[4]</answer>", "<answer>[2]<answer>",
        "<answer>[2]</answer> or <answer></answer>",
    ],
)  # fmt: skip
def test_a_second_move_or_tag_makes_the_answer_invalid(text: str) -> None:
    with pytest.raises(Invalid, match="second"):
        find_move(text, MOVE, LONE)


_LONG = 100_000


_TEXTS = [
    "<answer>" * _LONG, "<answer>" + " " * _LONG + "x", "[" * _LONG, "[" + " " * _LONG, "[ 1 " * _LONG, "1" * _LONG,
    "[1111" * _LONG, "\x00\ud800" * _LONG, "İ" * _LONG,
]  # fmt: skip


@pytest.mark.parametrize("text", _TEXTS, ids=range(len(_TEXTS)))
def test_long_text_takes_no_time(text: str) -> None:
    started = time.perf_counter()
    for patterns in ((MOVE, LONE), (r"([a-z])\s?([0-9]{1,4})", "([a-i])([0-9]{1,2})")):
        with suppress(Invalid):
            find_move(text, *patterns)
    assert time.perf_counter() - started < 2.0


@given(st.integers(0, 8), st.sampled_from(["full", "chat", "short"]), st.text(max_size=20))
def test_a_written_move_is_found_whatever_stands_before_it(cell: int, style: str, before: str) -> None:
    written = reply(str(cell), "I take it.", style)  # type: ignore[arg-type] # a style
    found = find_move(before + written if style != "short" else written, MOVE, LONE)
    assert found is not None
    if "<answer>" not in before.lower():
        assert int(found[1]) == cell


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
