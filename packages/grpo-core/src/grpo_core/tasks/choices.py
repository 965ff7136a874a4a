"""The choice that an answer names, by its letter or its text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from unicodedata import normalize

from grpo_core.tasks.answers import plain_latex

LETTERS = "ABCDEFGHIJ"

LISTED = 4
"""Letters of which on they are a list and no answer, where the number of choices is unknown."""
BEGIN_CHARS, END_CHARS = 4_000, 16_000
"""Characters at the beginning and the end of a long answer that are read."""
JOINT_CHARS = 32
"""Most characters before a letter that may join it to another one, or that may begin every line of a list."""

_MARKS = "".join(chr(0xE000 + place) for place in range(len(LETTERS)))
"""Characters that stand for the texts of the choices while an answer is read; `_MARKUP` drops them from the answer."""
_LETTER_OF = dict(zip(_MARKS, LETTERS, strict=True))
_MARKUP = re.compile(rf"(?<![0-9] )\*|\*(?! [0-9])|[`${_MARKS}]|\\[()\[\]]|</?(?:strong|em|b|i|u|p|br)\s?/?>")
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"))
_SPACES = re.compile(r"[^\S\n]+")
_PUNCTUATION = " \n.,;:!…。"
_HEADED = re.compile(r"(?:(?i:option|choice|answer|letter)\s)?[(\[]?([A-Ja-j])[)\].:\s-]{1,4}(.+)", re.DOTALL)
_WORDS_OF_RULES = frozenset({
    "a", "an", "the", "i", "it", "is", "are", "was", "be", "not", "no", "never", "or", "and", "to", "so", "but", "as",
    "because", "since", "answer", "option", "choice", "letter", "right", "wrong", "correct", "incorrect", "best", "out",
})  # fmt: skip
"""Words that the rules below look for: the text of a choice of such words is found only as a whole answer."""

_SAYS_OF_CHOICE = (
    r"(?:is|was|because|since|as|and|or|but|not|seems|looks|would|fits|makes|must|can|cannot|has|should|does|to"
    r"|through)\b"
)
_ARTICLE = re.compile(rf"(?:^|(?<=[.!?:;\n])|(?<=[.!?:;] ))A (?!{_SAYS_OF_CHOICE})(?=[a-z])")
"""An `A` that begins a sentence, before a word that says nothing of a choice; elsewhere the article is no capital."""
_PRONOUN = re.compile(r"(?<![A-Za-z])I (?!(?:is|because|since|as)\b)(?=[a-z])")

_NOUN = r"(?i:option|choice|answer|letter)s?"
_OPEN = r"[\s(\[{\"'“‘_<]{0,6}"
_CLOSE = r"[)\]}\"'”’_>]{0,4}"
_CLAUSE_END = rf"(?={_CLOSE}\s{{0,2}}(?:[.,;!?\n]|$))"
_OR = (
    r"(?:[\s(]{0,2}(?:[/&|+]|,?\s?\b(?i:and|nor|to|through)\b,?"
    r"|[,;]?\s?\b(?i:or|maybe|perhaps|possibly|alternatively)\b,?)\s?"
    r"(?i:(?:maybe|possibly|perhaps|also|either)\s)?)"
)
_FILL = (
    r"(?:[\s:,]{0,3}\b(?i:option|choice|answer|letter|the|clearly|definitely|likely|most|probably|indeed|therefore|thus"
    r"|either|just|simply|really|that|it|is|be|with|to|correct|best|final)\b){0,4}[\s:=]{0,3}"
)
_DENIES = (
    r"(?i:\b(?:not|never|neither|nor|none of|cannot|(?<!other )than|instead of|unlike|over|against|eliminat\w{1,5}"
    r"|exclud\w{1,4}|reject\w{0,4}|rul\w{1,4} out|(?:wrong|incorrect|false) (?:option|choice|answer|one) (?:is|was)"
    r"|(?<!be )(?:all|any|every|anything|everything)(?: (?:option|choice|answer)s?)? (?:but|except|other than)"
    r"(?! \S{1,12} (?:is|are) (?:wrong|incorrect|false)))|n['’]t)\b"
    r"(?:\s(?i:be|to|it|is|that|the|think|believe|it['’]s|necessarily|really|either|pick|choose|say|go with|correct"
    r"|right|answer)\b){0,4}\s"
)
_IS_WRONG = (
    r"(?:\s{1,2}(?i:is|are|was|were|would be|seems?|looks?|must be)\s"
    r"(?i:(?:clearly|also|all|both|just|obviously|definitely|simply|therefore|thus|then)\s){0,2}"
    r"(?i:not|wrong|incorrect|false|out|ruled out|eliminated|impossible|invalid|excluded)"
    r"\b|[\s:(-]{1,3}(?i:wrong|incorrect|false)\b"
    r"|\s(?i:is|was) (?i:the|an?) (?i:wrong|incorrect|false) (?i:option|choice|answer|one)\b"
    r"|\s{1,2}(?i:(?:is|are|was|were|do|does|did|ca|wo|could|would)n['’]t|(?:can|do|does|did|could) ?not|fails?)\b"
    r"|[\s:(-]{0,3}[✗✘❌])"
)
_SAYS_ANSWER = (
    r"(?i:(?<!is )(?<!is the )(?<!each )(?<!every )(?<!answer )"
    r"\b(?:ans(?:wer)?(?! (?:choice|option)s)|correct|choice|option|selection|response|solution))\b"
    r"(?:[^.\n:=?]{0,60}?(?:\b(?i:is|was|be)\b|[:=→]|->|\s-\s)|\W{0,3}\n)"
)
_CHOOSES = (
    r"\b(?i:choose|chose|choosing|select(?:ed|ing)?|pick(?:ed|ing)?|opt(?:ed)? for|vote for|go(?:ing)? (?:with|for))\b"
)
_SAYS = r"\b(?i:say|(?:it|this|that)(?:['’]s| is| must be| should be| has to be| would be| can only be))\b"
_CORRECTS = r"\b(?i:actually|wait|rather|i mean|make that)\b,?"
_CONCLUDES = r"\b(?i:so|therefore|thus|hence|leaves|leaving)\b,?"
_REASON = re.compile(r".{0,60}?\b(?:because|since|as|explanation|reason)", re.IGNORECASE | re.DOTALL)
"""Behind a letter it says that others are not in a list with it."""
_ITEM = re.compile(rf"^[^\w\n]{{0,6}}(?:{_NOUN}\s)?[(\[]?([A-J])[)\].:]{{1,2}}(?:[ ].*)?$", re.MULTILINE)
"""A line of a list of choices."""
_IS_RIGHT = (
    r"[\s,]{1,2}(?i:is|would be|must be|looks|seems|should be|fits)\b"
    r"[^.\n,;A-Z]{0,40}?\b(?i:correct|right|answer|best|true)\b"
)


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Where an answer names letters.

    Attributes:
        ranked: Ways to name one, the most explicit first; their last group is the letter.
        lone: A letter that stands alone; group 1.
        denied: Letters that are said not to be the answer; in one of the two groups.
        before: Letters that are joined to one behind them.
        behind: Letters that are joined to one before them.
        headed: A letter with the text of a choice behind it.
        any_letter: Every letter, also a small one, and every text.
        ends_with_text: A text of a choice that a clause ends with.
    """

    ranked: tuple[re.Pattern[str], ...]
    lone: re.Pattern[str]
    denied: re.Pattern[str]
    before: re.Pattern[str]
    behind: re.Pattern[str]
    headed: re.Pattern[str]
    any_letter: re.Pattern[str]
    ends_with_text: re.Pattern[str]


@lru_cache
def _patterns(count: int) -> _Patterns:
    """Patterns for the first letters; every repetition in them is bounded, so that they take linear time."""
    last = LETTERS[count - 1]
    alone = r"(?!['’-]?[a-z]|[A-Z]|\.[a-z]\.)"
    letter = rf"(?<![A-Za-z])[A-{last}{_MARKS}]{alone}"
    any_letter = rf"(?<![A-Za-z])[A-{last}a-{last.lower()}{_MARKS}]{alone}"
    # A small letter may be a word, so it counts only where the answer could end.
    small = (
        rf"(?<![A-Za-z])[a-{last.lower()}]"
        r"(?=[)\]}\"'_]{1,3}(?:[\s(.,:]|$)|[.:,;!](?![A-Za-z0-9])|\s*(?:$|\n)|\s(?:because|since|as)\b)"
    )
    named = rf"{_OPEN}({letter}|{small})"
    item, any_item = (rf"(?:{_NOUN}\s)?[(\[\"'“‘_]{{0,2}}{each}{_CLOSE}" for each in (letter, any_letter))
    series = rf"{item}(?:(?:,\s?{item}){{0,8}}+,?\s(?i:or|nor|and)\s{item}|/{item}){{0,8}}"
    beside = r"[\s,;.:!?-]{0,4}"
    begins = rf"\A[^\w~{_MARKS}]{{0,8}}(?:{_NOUN}\s?:?\s?)?{named}{_CLOSE}"
    ranked = (
        rf"(?:{_SAYS_ANSWER}|{_CHOOSES}){_FILL}{named}|{_CORRECTS}{_FILL}{named}{_CLAUSE_END}",
        rf"{begins}[.,:;!]?\s*(?:\n|\Z)",  # the first line
        rf"(?:{_SAYS}{_FILL}{named}|{_CONCLUDES}{_FILL}{named}{_CLAUSE_END})",
        rf"({letter}){_CLOSE}{_IS_RIGHT}",
        rf"{begins}(?:(?<=[)\]])|[.:,;!]|\s[(-]|\s(?i:because|since|as)\b)",
    )
    return _Patterns(
        ranked=tuple(map(re.compile, ranked)),
        lone=re.compile(rf"(?<![A-Za-z])([A-{last}]){alone}"),
        denied=re.compile(rf"{_DENIES}({series})|(?<!except )(?<!but )({series}){_IS_WRONG}"),
        before=re.compile(rf"(?:{item}[ ,/-]{{0,3}}|{any_item}{_OR})(?:{_NOUN}\s)?{_OPEN}\Z"),
        behind=re.compile(
            # Beside a letter only a list that ends there: in "B. A and C are …" a sentence begins.
            rf"{_CLOSE}(?:{_OR}{item}|(?:,\s?{item}){{1,8}}+,?\s(?i:or)\s{item}"
            rf"|(?:{beside}{_OR}?{any_item}){{1,12}}+(?=\s{{0,2}}(?:[.,;!?\n]|:?$|{letter}|(?:because|since|but)\b)))"
        ),
        headed=re.compile(rf"([A-{last}])({_CLOSE}[.:,]?[\s-]{{0,3}})([{_MARKS}])"),
        any_letter=re.compile(any_letter),
        ends_with_text=re.compile(rf"[{_MARKS}]{_CLAUSE_END}"),
    )


def named_choices(answer: str, choices: tuple[str, ...]) -> set[str]:
    """Letters of the choices that an answer names: several where it hedges, none where it names none.

    It names the choice whose text it is, with or without the letter before it; else the letter (or text) that it calls
    the answer or chooses, its first line, what it concludes with, calls right or begins with; else the last letter that
    stands alone; without any letter the text that a clause ends with. What it denies does not count, nor do lines that
    list choices where the rest names one of them. Letters that are joined to that one are named too, all of them
    where all choices are listed in its place.
    """
    if (letter := letter_of(answer, choices)) is not None:
        return {letter}
    patterns = _patterns(len(choices) or len(LETTERS))
    listed = max(2, len(choices) or LISTED)
    text = _plain(answer)
    if len(text) > BEGIN_CHARS + END_CHARS:
        text = f"{text[:BEGIN_CHARS]}\n~\n{text[-END_CHARS:]}"
    text = _marked(text, choices, patterns)
    rest, in_lists = _without_lists(text)
    letters = _named_in(rest, patterns, listed) if in_lists else set[str]()
    return letters if letters and letters <= in_lists else _named_in(text, patterns, listed)


def _named_in(text: str, patterns: _Patterns, listed: int) -> set[str]:
    """Letters that a text with marks names; from `listed` letters on they are a list."""
    articles = set("A") if listed > 2 and _ARTICLE.search(text) else set[str]()
    text, denied = _without_denied(_PRONOUN.sub("", _ARTICLE.sub("", text)), patterns)
    for pattern in (*patterns.ranked, patterns.lone):
        spans = [match.span(match.lastindex or 1) for match in pattern.finditer(text)]
        if pattern is patterns.lone:
            spans = [span for span in spans if text[slice(*span)] not in denied]
        if spans:
            letters = {_letter(text[slice(*span)]) for span in spans} | _siblings(text, *spans[0], patterns) | articles
            return letters if len(letters) >= listed else _joined(text, *spans[-1], patterns)
    marks = re.findall(f"[{_MARKS}]", text) if patterns.ends_with_text.search(text) else []
    return set(map(_letter, marks))


def _without_lists(text: str) -> tuple[str, set[str]]:
    """The text with ~ in place of lists of choices, one a line in their order, and the letters in these lists."""
    lists: list[list[re.Match[str]]] = []
    for item in _ITEM.finditer(text):
        last = lists[-1][-1] if lists else None
        if last and last[1] < item[1] and not text[last.end() : item.start()].strip():
            lists[-1].append(item)
        else:
            lists.append([item])
    lists = [items for items in lists if len(items) > 1]
    kept, start = list[str](), 0
    for items in lists:
        kept.append(text[start : items[0].start()])
        start = items[-1].end()
    return "\n~\n".join([*kept, text[start:]]), {item[1] for items in lists for item in items}


def letter_of(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter of the choice whose text this is, with or without the letter before it; None where there is none."""
    for spelled in (str.strip, folded, _bare):  # case tells AA, Aa and aa apart
        wanted = spelled(text)
        for letter, choice in zip(LETTERS, choices, strict=False):
            if wanted and spelled(choice) == wanted:
                return letter
    if (headed := _HEADED.match(_plain(text))) and (place := LETTERS.index(headed[1].upper())) < len(choices):
        return LETTERS[place] if _bare(headed[2]) == _bare(choices[place]) else None
    return None


def folded(text: str) -> str:
    """The text without differences of case, white space and composed characters."""
    return " ".join(normalize("NFC", text).translate(_DASHES).split()).casefold()


def _plain(text: str) -> str:
    """The text without emphasis and mathematical delimiters."""
    return _SPACES.sub(" ", _MARKUP.sub("", plain_latex(normalize("NFC", text).translate(_DASHES)))).strip()


def _bare(text: str) -> str:
    return folded(_plain(text)).strip(_PUNCTUATION)


def _marked(text: str, choices: tuple[str, ...], patterns: _Patterns) -> str:
    """The text with a mark in place of the text of each choice, and with no text behind its own letter."""
    mark_of, pattern = _texts(choices)
    if pattern is None:
        return text
    text = pattern.sub(lambda match: mark_of.get(folded(match[0]), match[0]), text)
    return patterns.headed.sub(lambda head: head[1] + head[2] if _letter(head[3]) == head[1] else head[0], text)


@lru_cache(1024)
def _texts(choices: tuple[str, ...]) -> tuple[dict[str, str], re.Pattern[str] | None]:
    """Folded text of each choice -> its mark, and a pattern that finds them; not texts that may be another word."""
    written = [folded(_plain(choice)).rstrip(" .") for choice in choices]
    texts = {
        text: mark
        for text, mark in zip(written, _MARKS, strict=False)
        if (len(text) > 1 or text.isdigit()) and not _WORDS_OF_RULES.issuperset(text.split())
        if written.count(text) == 1
    }
    if not texts:
        return {}, None
    any_text = "|".join(map(_text_pattern, sorted(texts, key=len, reverse=True)))
    return texts, re.compile(rf"(?<!\w)(?<![0-9]\.)(?:{any_text})(?!\w|\.[0-9])", re.IGNORECASE)


def _text_pattern(text: str) -> str:
    """A pattern for a text; a number is not found in a longer number, a percentage or a calculation."""
    before = r"(?<![-+*/×÷^,])(?<![+*/×÷^] )(?<![0-9] - )(?<![0-9]:)" if text[0].isdigit() else ""
    behind = r"(?![,:][0-9]|\s?[%^]|\s?[-+*/×÷=]\s?[0-9(])" if text[-1].isdigit() else ""
    return before + re.escape(text).replace("\\ ", r"\s") + behind


def _without_denied(text: str, patterns: _Patterns) -> tuple[str, set[str]]:
    """The text with ~ in place of what it says of letters that are not the answer, and these letters."""
    denied: set[str] = set()

    def drop(match: re.Match[str]) -> str:
        denied.update(_letters(match[1] or match[2], patterns))
        return "~"

    return patterns.denied.sub(drop, text), denied


def _siblings(text: str, start: int, end: int, patterns: _Patterns) -> set[str]:
    """The letters of a list: those behind which, and before which, the same stands as at a place near the beginning."""
    if start > JOINT_CHARS or _REASON.match(text, end):
        return set()
    letters = "a-j" if text[start:end].islower() else "A-J"
    form = rf"{re.escape(text[:start])}([{letters}]){re.escape(text[end : end + 1])}"
    return _letters(" ".join(re.findall(rf"(?:\A|(?<=[\n/|])|(?<=[\w.;!?,]\s)){form}", text)), patterns)


def _joined(text: str, start: int, end: int, patterns: _Patterns) -> set[str]:
    """The letter at a place with those that are joined to it."""
    letters = {_letter(text[start:end])}
    if (behind := patterns.behind.match(text, end)) is not None:
        letters |= _letters(behind[0], patterns)
    if (before := patterns.before.search(text[max(0, start - JOINT_CHARS) : start])) is not None:
        letters |= _letters(before[0], patterns)
    return letters


def _letters(text: str, patterns: _Patterns) -> set[str]:
    return {_letter(name) for name in patterns.any_letter.findall(text)}


def _letter(name: str) -> str:
    return _LETTER_OF.get(name, name.upper())
