"""Write a text that a regular expression matches: "b[ac]{2}d+" -> "bcad"."""

import re

from grpo_sdk import Invalid, Row, Task, reward
from grpo_sdk.data import ProceduralConfig, procedural

PIECES = ("{c}", "{c}", "[{c}{d}]", "{c}{{2}}", "{c}{{3}}", "[{c}{d}]{{2}}", "{c}+", "[^{c}]")
LETTERS = "abcdefgh"


class Pattern(Row):
    """One problem: a pattern by its pieces."""

    pieces: list[str]


def make(random, difficulty):
    """Draw three to five pieces, and a text that they match."""
    pieces, gold = [], ""
    for _ in range(random.randint(3, 5)):
        c, d = random.sample(LETTERS, 2)
        kind = random.randrange(len(PIECES))
        pieces.append(PIECES[kind].format(c=c, d=d))
        others = [letter for letter in LETTERS if letter != c]
        gold += (
            c,
            c,
            random.choice((c, d)),
            c * 2,
            c * 3,
            "".join(random.choices((c, d), k=2)),
            c,
            random.choice(others),
        )[kind]
    return Pattern(id="", gold=gold, pieces=pieces)


def load(config):
    """Patterns, in disjoint splits."""
    return procedural(config, make, content=lambda row: "".join(row.pieces))


def prompt(row):
    """Show the pattern."""
    return f"{''.join(row.pieces)} = "


def validate(text, row):
    """Take one short word."""
    if not re.fullmatch(r"[a-z]{1,24}", text):
        raise Invalid("not one word of a to z")
    return text


@reward(0.3)
def begins(answer, row):
    """The share of the pieces that a beginning of the word matches."""
    n = len(row.pieces)
    return max(k for k in range(n + 1) if re.match("".join(row.pieces[:k]), answer)) / n


@reward(0.7)
def matches(answer, row):
    """The whole word matches."""
    return float(re.fullmatch("".join(row.pieces), answer) is not None)


match = Task(
    "match", load, prompt, validate, (begins, matches), config=ProceduralConfig, row=Pattern, max_completion_length=26
)
