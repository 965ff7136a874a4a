"""Ways to write a gold that a person would take for the same answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from grpo_core.testing.answers import NUMBER, Gold
from grpo_core.testing.oracle import Oracle

TRIED_ROWS = 4

_FULL_WIDTH = str.maketrans("0123456789", "".join(chr(0xFF10 + digit) for digit in range(10)))
_LOOK_ALIKES = str.maketrans(
    "aeocpx",
    "\N{CYRILLIC SMALL LETTER A}\N{CYRILLIC SMALL LETTER IE}"
    "\N{CYRILLIC SMALL LETTER O}\N{CYRILLIC SMALL LETTER ES}\N{CYRILLIC SMALL LETTER ER}\N{CYRILLIC SMALL LETTER HA}",
)


def _number(change: Callable[[str], str]) -> Callable[[Gold], str]:
    def write(gold: Gold) -> str:
        return gold.before + (change(gold.answer) if NUMBER.fullmatch(gold.answer) else gold.answer) + gold.after

    return write


def _answer(change: Callable[[str], str]) -> Callable[[Gold], str]:
    return lambda gold: gold.before + (change(gold.answer) if gold.is_short else gold.answer) + gold.after


FORMS: Mapping[str, Callable[[Gold], str]] = {
    "a space after it": lambda gold: gold.text + " ",
    "a line break after it": lambda gold: gold.text + "\n",
    "a space before it": lambda gold: " " + gold.text,
    "a line break before it": lambda gold: "\n" + gold.text,
    "no white space around it": lambda gold: gold.text.strip(),
    "a full stop": _answer(lambda answer: answer + "."),
    "upper case": _answer(str.upper),
    "lower case": _answer(str.lower),
    "bold": _answer(lambda answer: f"**{answer}**"),
    "quotes": _answer(lambda answer: f'"{answer}"'),
    "in a sentence": _answer(lambda answer: f"The answer is {answer}"),
    "a plus sign": _number(lambda answer: answer if answer[0] in "+-\u2212" else f"+{answer}"),
    "zeros after the point": _number(lambda answer: answer if "." in answer else f"{answer}.0"),
    "a zero before": _number(lambda answer: re.sub(r"(?=[0-9])", "0", answer, count=1)),
    "commas between thousands": _number(
        lambda answer: f"{int(answer):,}" if re.fullmatch(r"-?[1-9][0-9]{3,}", answer) else answer
    ),
    "full-width digits": _number(lambda answer: answer.translate(_FULL_WIDTH)),
    "look-alike letters": _answer(lambda answer: answer.translate(_LOOK_ALIKES)),
}
"""Name -> the gold written so."""


def solved_forms(oracle: Oracle) -> dict[str, tuple[int, int]]:
    """Form -> (times that golds written so are solved, times tried), for golds that are solved and that it changes."""
    places = [place for place, score in enumerate(oracle.gold_scores) if score is not None and score.solved]
    trials = []
    for place in places[:TRIED_ROWS]:
        gold = oracle.sample.golds[place]
        assert gold is not None
        trials += [(name, write(gold), place) for name, write in FORMS.items() if write(gold) != gold.text]
    scores = oracle.scores([(text, place) for _, text, place in trials])
    counts: dict[str, tuple[int, int]] = {}
    for (name, _, _), score in zip(trials, scores, strict=True):
        solved, tried = counts.get(name, (0, 0))
        counts[name] = (solved + score.solved, tried + 1)
    return counts
