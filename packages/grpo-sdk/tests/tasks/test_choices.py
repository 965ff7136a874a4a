"""An answer is a choice by its letter, its text, or both; anything else is no answer."""

from __future__ import annotations

import time

import pytest

from grpo_sdk.tasks.answers import answer_of
from grpo_sdk.tasks.choices import choice_of

CITIES = ("Paris", "Rome", "Vitamin C", "Madrid")
NUMBERS = ("8", "12", "16", "20")
CASES = ("AA", "Aa", "aa")

RIGHT = [
    *("B", "b", "(B)", "B.", "[B]", "**B**", "`B`", '"B"', "$B$", r"\(B\)", "Option B", "<b>B</b>"),
    *("Rome", "rome.", "**Rome**", "B) Rome", "(b) rome", "B: Rome", "B - Rome", "Option B: Rome", "B (Rome)"),
    *(r"\boxed{B}", r"$\boxed{\textbf{B}}$", "<answer>B</answer>", "#### B", "<answer>Rome</answer>"),
    *("The answer is B.", "The answer is: B", "**Answer:** B", "Final Answer: **(B) Rome**", "Answer: B\nso"),
    *("Paris is in France, so the answer is B) Rome.", "The answer is B, since A is in France."),
    *("B, because A is French", r"\boxed{\textbf{(B)}\ \text{Rome}}", "Rome (B)", "Rome [b]."),
    *("<think>A or B?</think>B", "The correct answer is (B). The others are not in Italy."),
]
NONE = [
    *("B or C", "A, B", "B/C", "B > C", "B? C?", "B\nC", "[B, C]", "All of A, B, C, D", "A through D"),
    *("B, with C as a backup", "It is hardly B", "not B", "!B", "~~B~~ C", "B is wrong", "I like B"),
    *("B if n is even, else C", "Rome. Paris.", "B (Paris)", "A) Rome", "B) Rome or C) Vitamin C", "E", "", "Romeo"),
    *("The answer cannot be B", "Paris (B)", "Rome (B) or Paris (A)"),
    *("<answer>B or C</answer>", r"\boxed{B, C}", "The answer is B or the answer is C.", "<answer></answer>"),
]


@pytest.mark.parametrize(
    ("choices", "texts"),
    [
        (CITIES, dict.fromkeys(RIGHT, "B")),
        (CITIES, dict.fromkeys(NONE)),
        (NUMBERS, {"12": "B", "B) 12": "B", "B) 16": None, "112": None, "12.5": None}),
        (CASES, {"AA": "A", "Aa": "B", "aa": "C"}),
        (("a", "b"), {"a": "A", "B": "B", "A) a": "A", "C": None}),
        (("b", "a"), {"b": "A", "B": "B", "A) b": "A"}),
        ((), {"C": "C", "(J)": "J", "K": None, "C) anything": None}),
        (("caf\u00e9", "x \u2212 1"), {"cafe\u0301": "A", "x - 1": "B"}),
    ],
)
def test_a_choice_is_named_by_its_letter_its_text_or_both(choices: tuple[str, ...], texts: dict[str, str]) -> None:
    assert {text: choice_of(answer_of(text), choices) for text in texts} == texts


@pytest.mark.parametrize("text", ["B ", "(B", "B, since ", "because ", "option ", "*", "[", "\\text{"])
def test_hostile_answers_take_no_time(text: str) -> None:
    began = time.perf_counter()
    choice_of(text * 50_000, CITIES)
    assert time.perf_counter() - began < 5
