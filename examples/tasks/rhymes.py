"""Say another word that rhymes: "black rhymes with" -> "pack"."""

import re

from grpo_core import Invalid, Row, Task, reward
from grpo_core.data import split_of

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
WORDS = {
    onset + ending: ending
    for ending, onsets in (line.split(": ") for line in FAMILIES.split("\n") if line)
    for onset in onsets.split()
}


class Word(Row):
    """One problem: a word to rhyme with."""

    word: str


def load(config):
    """The words of a split, each with another word of its family as gold."""
    for word, ending in WORDS.items():
        if split_of(word) == config.split:
            others = sorted(other for other in WORDS if WORDS[other] == ending and other != word)
            yield Word(id=word, gold=others[sum(map(ord, word)) % len(others)], word=word)


def prompt(row):
    """Ask for the rhyme."""
    return f"{row.word} rhymes with "


def validate(text, row):
    """Take one word."""
    if not re.fullmatch("[a-z]{2,12}", text):
        raise Invalid("not one word")
    return text


@reward(0.3)
def known(answer):
    """A word of the list."""
    return float(answer in WORDS)


@reward(0.7, needs="known")
def rhymes(answer, row):
    """Another word of the same family."""
    return float(WORDS[answer] == WORDS[row.word] and answer != row.word)


rhyme = Task("rhyme", load, prompt, validate, (known, rhymes), row=Word, max_completion_length=12)
