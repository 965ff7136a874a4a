"""Texts to score: junk, which is wrong whatever the task, hostile texts, and golds that are damaged."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping

JUNK: Mapping[str, str] = {
    "empty": "",
    "white space": " \n\t \n",
    "filler words": "lorem ipsum dolor sit amet consectetur adipiscing elit",
    "a refusal": "I am sorry, but I cannot help with that.",
    "punctuation": "?!...;:--",
    "empty tags": "<think></think><answer></answer>",
    "a placeholder": "<answer>your answer here</answer>",
    "an empty box": "The final answer is \\boxed{}.",
    "an empty code block": "```python\n```",
    "empty JSON": "{}",
}
"""Name -> text that answers no question."""

BLANKS: Mapping[str, str] = {"separators": "\x1c\x1d\x1e\x1f", "blanks": "\v\f\x85\u00a0\u2003\u3000"}
"""Name -> characters that `str.strip()` removes, and that `int()`, `float()` or JSON refuses."""

MEBI = 1 << 20

HOSTILE: Mapping[str, str] = {
    "1 MB of one letter": "x" * MEBI,
    "1 MB of white space": " " * (MEBI - 1) + "4",
    "1 MB of lines": "a\n" * (MEBI // 2),
    "a NUL": "4\x002\x00",
    "a lone surrogate": "4\ud8002",
    "two surrogates in the wrong order": "\udfff\ud800",
    "right-to-left marks": "\N{RIGHT-TO-LEFT OVERRIDE}24\N{POP DIRECTIONAL FORMATTING}",
    "digits of other scripts": "\N{ARABIC-INDIC DIGIT FOUR}\N{SUPERSCRIPT TWO}\N{CIRCLED DIGIT FOUR}",
    "combining marks": "4" + "\N{COMBINING ACUTE ACCENT}" * 10_000,
    "100,000 digits": "9" * 100_000,
    "a number with 100,000 decimals": "0." + "3" * 100_000,
    "a huge exponent": "9e999999999",
    "a tower of powers": "9**9**9**9**9",
    "not a number": "nan",
    "infinity": "-inf",
    "an unclosed tag": "<think><answer>",
    "a closed tag that nothing opens": "</answer></think>",
    "100,000 unclosed tags": "<answer>" * 100_000,
    "a tag of 100,000 letters": "<" + "a" * 100_000,
    "100,000 code fences": "```python\n" * 50_000 + "```\n" * 50_000,
    "50,000 parentheses": "(" * 50_000 + ")" * 50_000,
    "50,000 brackets": "[" * 50_000 + "]" * 50_000,
    "50,000 JSON objects": '{"a":' * 50_000,
    "50,000 boxes": "\\boxed{" * 50_000,
    "50,000 signs": "-" * 50_000 + "1",
    "20,000 sums": "1+" * 20_000 + "1",
    **{f"{name} alone": run for name, run in BLANKS.items()},
    **{f"a digit between {name}": f"{run}1{run}" for name, run in BLANKS.items()},
    "escape codes of a terminal": "\x1b[2J\x1b]0;title\x07",
    "control characters": "".join(map(chr, range(32))) + "\x7f\x85\u2028",
    "format fields": "{0} {row.gold} %s %n ${HOME} {{7*7}}",
    "a pattern that backtracks": "a" * 30_000 + "!",
    "digits that backtrack": "1" * 30_000 + "!",
}
"""Name -> text that breaks parsers: too long, too deep, undecodable, unclosed."""

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the characters that are replaced."""


def damaged(text: str, share: float, seed: str) -> str:
    """Replace a share of the letters and digits by others.

    What a share replaces, a larger one with the same seed replaces by the same: damage only grows.
    """
    rng = random.Random(f"damage/{seed}")
    characters = list(text)
    places = [place for place, character in enumerate(characters) if character.isalnum()]
    rng.shuffle(places)
    changes = [(place, _other(characters[place], rng)) for place in places]
    for place, character in changes[: -int(-share * len(changes) // 1)]:
        characters[place] = character
    return "".join(characters)


def _other(character: str, rng: random.Random) -> str:
    for alphabet in (string.digits, string.ascii_lowercase, string.ascii_uppercase):
        if character in alphabet:
            return rng.choice(alphabet.replace(character, ""))
    return "x"
