"""Write one line that rhymes with a word: a task plugin in one file."""

import re
from collections.abc import Iterable
from itertools import chain, product

from grpo_sdk import Invalid, Row, Task, hookimpl, reward
from grpo_sdk.data import split_of

FAMILIES = """
ack: b bl cr h j l p qu r s sh sl st t tr
ail: b f h j m n p qu r s t tr
ain: br ch dr g gr l m p pl r st str t tr
ake: b br c f fl l m qu r s sh st t w
ale: b g h m p s sc t wh
ame: bl c f fl fr g l n s sh t
ank: b bl cr dr fl fr pl pr r s sp t th
ap: c ch cl fl g l m n r s sl str t tr wr
ash: b c cl cr d fl g h l m r s sm spl tr
at: b c ch f fl h m p r s sp th v
ate: cr d f g gr h l m pl r sk st
aw: cl dr fl j l p r s str th
ay: b cl d g h j l m p pl pr r s st str sw tr w
eat: b ch h m n p s tr wh
ell: b c d f s sh sm sp sw t w y
est: b ch cr g n p qu r t v w
ice: d m n pr r sl sp tw
ick: br ch cl fl k l p qu s st t th tr w
ide: br gl gu h pr r s sl str t w
ight: br f fl kn l m n pl r s sl t
ill: b ch d dr f g gr h k m p qu s sk sp st t thr w
in: b ch f gr p s sk sp t th tw w
ine: d f l m n p sh sp v w
ing: br cl fl k r s sl spr st str sw th w wr
ink: bl br cl dr l m p r s shr sl st th w
ip: ch cl d dr fl gr h l n qu r s sh sk sl sn str t tr wh
ock: bl cl cr d fl fr kn l m r s sh st
oke: br ch j p sm sp w
op: ch cr dr fl h m p pl pr sh st t
ore: b ch c m s sc sh st t w
ot: bl c d g h kn l n p pl r sh sl sp t tr
uck: b ch cl d l m p s st str t tr
ug: b d dr h j m p pl r sh sl sn t th
ump: b d gr h j l p st th tr
unk: b ch d fl j shr s sk tr
"""
ONSETS = {ending: onsets.split() for ending, onsets in (line.split(": ") for line in FAMILIES.strip().split("\n"))}
WORDS = {onset + ending: ending for ending, onsets in ONSETS.items() for onset in onsets}


class Couplet(Row):
    """One problem: a word to rhyme with, and its ending."""

    word: str
    ending: str


def load(config) -> Iterable[Couplet]:
    """Words to rhyme with: every onset before every ending, so that many are made up."""
    for ending, onset in product(ONSETS, sorted(set(chain(*ONSETS.values())))):
        word = onset + ending
        if split_of(word) == config.split:  # by hash of the word: no word is in two splits
            others = sorted(other for other in WORDS if WORDS[other] == ending and other != word)
            answer = others[sum(map(ord, word)) % len(others)]
            yield Couplet(id=word, gold=f"I know a word: {answer}", word=word, ending=ending)


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
    """The last word is a real one, rhymes, and is not the word itself."""
    last = answer[0][-1].lower()
    return float(last != row.word and WORDS.get(last) == row.ending)


couplet = Task("couplet", load, prompt, validate, (one_line, rhymes), max_completion_length=32)


@hookimpl
def grpo_tasks():
    """The tasks of this plugin: `rhyme.couplet`."""
    return [couplet]
