from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_tasks_games.style import ask, find_move, reply

MOVE, LONE = "([0-9]{1,4})", "([0-8])"


@pytest.mark.parametrize(
    ("text", "move"),
    [
        ("<answer>[4]</answer>", "4"),
        ("<think>[1] or 2?</think><answer> [ 4 ] </answer>", "4"),  # brackets in <answer> stand before all else
        ("[3], no: <ANSWER>[4]", "4"),
        ("3 is taken, so [5], or [6]", "5"),  # the first of the brackets, before a lone digit
        ("<answer>4</answer>", "4"),  # no brackets anywhere: a lone digit
        ("I take 7.", "7"),
        ("4", "4"),
        ("<answer>[9]</answer> or 3", "9"),  # it names a cell, though there is none: no second guess
        ("<answer>[zz]</answer> 3", None),
        ("<think>[4]</think><answer>[five]</answer>", None),
        ("<think>cell 0 is bad</think><answer>5</answer>", "5"),
        ("<think>cell 0 is bad</think>I take 5.", "5"),
        ("<think><answer>[1]</answer> is bad</think><answer>[2]</answer>", "2"),
        ("<think>so [4] or", None),
        ("3 <think>so [4] or", "3"),
        ("<answer>[-3]</answer>", None),
        ("[\N{MINUS SIGN}1]", None),
        ("0.5 or 5.5", None),
        ("12 and 48", None),  # digits of a number are not alone
        ("a4 x_5", None),
        ("9", None),
        ("[]", None),
        ("[12345]", None),
        ("", None),
        ("\N{ARABIC-INDIC DIGIT FOUR} \N{SUPERSCRIPT TWO} \N{FULLWIDTH DIGIT THREE}", None),
        ("\N{ARABIC-INDIC DIGIT FOUR}4", None),
    ],
)
def test_where_a_move_is_looked_for(text: str, move: str | None) -> None:
    found = find_move(text, MOVE, LONE)
    assert (found[1] if found else None) == move


_LONG = 100_000


@pytest.mark.parametrize(
    "text",
    [
        "<answer>" * _LONG,
        "<answer>" + " " * _LONG + "x",
        "[" * _LONG,
        "[" + " " * _LONG,
        "[ 1 " * _LONG,
        "1" * _LONG,
        "[1111" * _LONG,
        "\x00\ud800" * _LONG,
        "İ" * _LONG,  # becomes longer in lower case
    ],
    ids=range(9),
)
def test_long_text_takes_no_time(text: str) -> None:
    started = time.perf_counter()
    find_move(text, MOVE, LONE)
    find_move(text, r"([a-z])\s?([0-9]{1,4})", "([a-i])([0-9]{1,2})")
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
