"""Write one line that rhymes with a word: a task plugin in one file."""

import re
from collections.abc import Iterable

from grpo_core import Invalid, Row, Task, hookimpl, reward
from grpo_core.data import split_of

FAMILIES = """
cat hat mat bat rat         night light bright kite white    moon soon spoon tune dune
day play grey stay away     tree sea bee key free            stone bone alone phone own
sky high why cry goodbye    rain train plane again chain     snow glow slow toe below
star far car guitar jar     wall ball small tall fall        ring sing king spring thing
hand sand land stand band   rock clock sock knock block      deep sleep sheep keep leap
"""
WORDS = FAMILIES.split()
RHYMES = {word: set(WORDS[i - i % 5 : i - i % 5 + 5]) - {word} for i, word in enumerate(WORDS)}  # five to a family


class Couplet(Row):
    """One problem: a word to rhyme with."""

    word: str


def load(config) -> Iterable[Couplet]:
    """Words to rhyme with."""
    for word in WORDS:
        if split_of(word) == config.split:  # by hash of the word: no word is in two splits
            yield Couplet(id=word, gold=f"I wrote a song about the {min(RHYMES[word])}", word=word)


def prompt(row):
    """Ask for the line."""
    return f"Write one line that ends in a word rhyming with {row.word!r}.\n"


def validate(text, row):
    """Split a completion into lines of words."""
    lines = [re.findall(r"[A-Za-z']+", line) for line in text.splitlines() if line.strip()]
    if not lines or not all(lines):
        raise Invalid("a line without words" if lines else "no line")
    return lines


@reward(0.3)
def one_line(answer):
    """Exactly one line, of at least four different words."""
    return float(len(answer) == 1 and len({word.lower() for word in answer[0]}) >= 4)


@reward(0.7, needs="one_line")
def rhymes(answer, row):
    """The last word rhymes, and is not the word itself."""
    return float(answer[0][-1].lower() in RHYMES[row.word])


couplet = Task("couplet", load, prompt, validate, (one_line, rhymes), max_completion_length=32)


@hookimpl
def grpo_tasks():
    """The tasks of this plugin: `rhyme.couplet`."""
    return [couplet]
