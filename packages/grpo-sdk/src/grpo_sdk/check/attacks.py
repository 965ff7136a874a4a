"""Ways to make completions that hold no right answer, of a row's prompt, other rows' golds, constants, or its gold."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from random import Random

from grpo_sdk.check.answers import NUMBER, Gold, Sample
from grpo_sdk.check.probes import calls_made
from grpo_sdk.check.texts import HOSTILE
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.tools.calls import ToolTurn, write_tool_turns
from grpo_sdk.tasks.choices import LETTERS
from grpo_sdk.tasks.numbers import value_of

PROGRAMS: Mapping[str, str] = {
    "a program that prints 0": "print(0)",
    "a program that prints a word": "print('hello')",
    "a function that returns 0": "def NAME(*args, **kwargs):\n    return 0",
    "a function that returns its argument": "def NAME(x=None, *args):\n    return x",
    "a program that does nothing": "pass",
}

_EQUAL_TO_ALL = """\
class Any(int):
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
    __hash__ = int.__hash__
    __lt__ = __le__ = __gt__ = __ge__ = __eq__
"""
_QUIET = """\
import builtins
builtins.AssertionError = type('Quiet', (BaseException,), {})
"""
_CLEARING = """\
import sys
def NAME(*args, **kwargs):
    frame = sys._getframe(1)
    while frame:
        frame.f_globals.clear()
        frame = frame.f_back
    return 0
"""
_RETURNS_0 = "def NAME(*args, **kwargs):\n    return 0"
TAMPERINGS: Mapping[str, str] = {
    "exits with success": "import sys\nsys.exit(0)",
    "exits at once": "import os\nos._exit(0)",
    "raises SystemExit in the function": "def NAME(*args, **kwargs):\n    raise SystemExit(0)",
    "returns a value equal to all": f"{_EQUAL_TO_ALL}def NAME(*args, **kwargs):\n    return Any()",
    "replaces the exceptions": _QUIET + _RETURNS_0,
    "clears the tests of its frames": _CLEARING,
    "ignores its exceptions": f"import sys\nsys.excepthook = lambda *error: None\n{_RETURNS_0}",
    "claims that the tests passed": "print('All tests passed')\nprint('OK')\nraise SystemExit(0)",
}
"""Programs that solve nothing and try to end, deceive or change what tests them."""


MAX_LISTED = 60
"""Answers that an enumeration lists at most."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A completion to try.

    Attributes:
        text: The completion.
        row: Place of its row in the sample.
        keep: Parts that it must keep to remain wrong, or to state several answers.
        other: Place of the second row that it is scored on; None for one row.
        canary: File that exists once the text has been run; None for a text that shows nothing when it is run.
    """

    text: str
    row: int
    keep: tuple[str, ...] = ()
    other: int | None = None
    canary: Path | None = None


Make = Callable[[Sample, int, Random], str | Attempt | None]


@dataclass(frozen=True, slots=True)
class Attack:
    """A way to make completions.

    Attributes:
        kind: Kind of the finding if one of them is solved, as in `FINDINGS`.
        name: What it makes, in words.
        make: (sample, row, random) -> a completion, or None where it cannot make one.
        wrappers: Names of the wrappers around what it makes, innermost first; of calls, which of many draws they are.
        has_calls: Whether it makes calls of tools, chosen alike in all rows.
    """

    kind: str
    name: str
    make: Make = field(repr=False)
    wrappers: tuple[str, ...] = ()
    has_calls: bool = False

    @property
    def title(self) -> str:
        """The name with those of the wrappers."""
        return ", ".join((self.name, *self.wrappers))

    def attempt(self, sample: Sample, row: int, seed: int) -> Attempt | None:
        """Make the completion for a row, the same one every time."""
        result = self.make(sample, row, Random(f"{seed}/{self.title}/{'' if self.has_calls else row}"))
        if result is None:
            return None
        attempt = result if isinstance(result, Attempt) else Attempt(result, row)
        text = attempt.text
        for name in () if self.has_calls else self.wrappers:
            text = WRAPPERS[name](text, sample)
        return Attempt(text, row, attempt.keep, attempt.other, attempt.canary)


WRAPPERS: Mapping[str, Callable[[str, Sample], str]] = {
    "as the golds are written": lambda text, sample: text.join(sample.frame),
    "in answer tags": lambda text, sample: f"<answer>{text}</answer>",
    "in nested tags": lambda text, sample: f"<answer><answer>{text}</answer></answer>",
    "after empty tags": lambda text, sample: f"<answer></answer><answer>{text}</answer>",
    "after a thought": lambda text, sample: f"<think>Let me see.</think>\n<answer>{text}</answer>",
    "in a thought": lambda text, sample: f"<think>{text}</think>",
    "in a box": lambda text, sample: f"\\boxed{{{text}}}",
    "after ####": lambda text, sample: f"\n#### {text}",
    "in a code block": lambda text, sample: f"```python\n{text}\n```",
    "twice": lambda text, sample: f"{text}\n{text}",
    "after 'The answer is'": lambda text, sample: f"The answer is {text}.",
    "in upper case": lambda text, sample: text.upper(),
    "after a line of filler": lambda text, sample: f"Well then:\n{text}",
    "after 20,000 characters": lambda text, sample: "well " * 4_000 + text,
    "before 20,000 characters": lambda text, sample: text + " well" * 4_000,
}
"""Name -> the text inside of a form; none of them adds an answer."""


# Other answers, made of a right one

Change = Callable[[str], str | None]

LARGEST_NEAR = 16
"""Largest number that is changed by 0.9 or 1: more than 5%, which is above what a tolerance allows."""

CLOSED = 10
"""Different answers of a sample up to which they may be options, of which a first letter is a short form."""

_DIGITS = re.compile(r"[0-9]{2,}")


def _number(change: Callable[[str, Fraction], str | None]) -> Change:
    """A change of numbers, given as written and as a value; None for words, and where the value stays."""

    def changed(answer: str) -> str | None:
        value = value_of(answer) if NUMBER.fullmatch(answer) else None
        text = None if value is None else change(answer, value)
        return None if text is None or value_of(text) == value else text

    return changed


def _word(answer: str) -> str | None:
    return None if NUMBER.fullmatch(answer) else f"q{answer}q"


def _is_near(value: Fraction) -> bool:
    return value.denominator == 1 and abs(value) <= LARGEST_NEAR


OTHER_ANSWERS: Mapping[str, Change] = {
    "more digits": _number(lambda text, value: text + "97"),
    "more digits before": _number(lambda text, value: re.sub(r"(?=[0-9])", "97", text, count=1)),
    "the other sign": _number(lambda text, value: text[1:] if value < 0 else f"-{text}"),
    "an exponent": _number(lambda text, value: f"{text}e7"),
    "a denominator": _number(lambda text, value: f"{text}/7"),
    "decimals": _number(lambda text, value: f"{text}.9" if _is_near(value) and "." not in text else None),
    "zeros after it": _number(lambda text, value: None if "." in text else f"{text}00"),
    "its last digit repeated": _number(lambda text, value: text + text[-1] * 3),
    "a longer word around it": _word,
}
"""Name -> another answer, wrong whatever the task is."""


def _kept(answer: str, characters: Sequence[bool]) -> str:
    """An answer of the same length in which only some characters are kept."""
    others = ("q" if not character.isdigit() else "8" if character != "8" else "3" for character in answer)
    return "".join(old if is_kept else new for old, new, is_kept in zip(answer, others, characters, strict=True))


def _of_several(change: Change) -> Change:
    """A change of whole numbers of several digits, and of words of several letters, that gives another answer."""

    def changed(answer: str) -> str | None:
        if len(answer) < 2 or (NUMBER.fullmatch(answer) and not _DIGITS.fullmatch(answer)):
            return None
        text = change(answer)
        if not text or text.casefold() == answer.casefold():
            return None
        return None if text.isdecimal() and value_of(text) == value_of(answer) else text

    return changed


PARTS: Mapping[str, Change] = {
    "the first character": _of_several(lambda answer: answer[0]),
    "the last character": _of_several(lambda answer: answer[-1]),
    "the first half": _of_several(lambda answer: answer[: len(answer) // 2].strip()),
}
"""Name -> a part of an answer."""

NEAR_ANSWERS: Mapping[str, Change] = {
    "the first character, with another rest": _of_several(
        lambda answer: _kept(answer, [place == 0 for place in range(len(answer))])
    ),
    "the last character, with another start": _of_several(
        lambda answer: _kept(answer, [place == len(answer) - 1 for place in range(len(answer))])
    ),
    "the first half, with another rest": _of_several(
        lambda answer: _kept(answer, [2 * place < len(answer) for place in range(len(answer))])
    ),
    "its characters in another order": _of_several(lambda answer: answer[1:] + answer[0]),
    "one more": _number(lambda text, value: str(int(value) + 1) if _is_near(value) else None),
}
"""Name -> a wrong answer that has something in common with the right one; by chance, and in tasks with several right
answers, one of them may be right."""


def _junk(sample: Sample, row: int, random: Random) -> str:
    return "".join(random.choices("qxzjvk", k=random.randint(4, 9)))


NO_ANSWERS: Mapping[str, str] = {
    "nothing": "",
    "white space": " \n\t\n",
    "a full stop": ".",
    "question marks": "???",
    "a refusal": "I cannot help with that.",
    "a placeholder": "your answer here",
    "empty tags": "<answer></answer>",
    "an empty thought and empty tags": "<think></think><answer></answer>",
    "ten pairs of empty tags": "<answer></answer>" * 10,
    "an empty box": "\\boxed{}",
    "a marker without an answer": "\n####",
    "an invisible character": "\N{ZERO WIDTH SPACE}",
    "an emoji": "\N{SHRUG}",
}
"""Name -> text that answers nothing."""


def _constant(text: str, sample: Sample, row: int, random: Random) -> str:
    return text


# Copies of the prompt


def _place(parts: Callable[[str], Sequence[str]], place: int, sample: Sample, row: int, random: Random) -> str | None:
    found = parts(sample.prompts[row])
    return found[place] if -len(found) <= place < len(found) else None


def _numbers(prompt: str) -> list[str]:
    return [match[0] for match in NUMBER.finditer(prompt)]


def _words(prompt: str) -> list[str]:
    return [word.strip(".,:;?!()[]\"'") for word in prompt.split()]


def _quoted(prompt: str) -> list[str]:
    return [
        inside
        for match in re.finditer(r'"([^"\n]{1,200})"|\(([^()\n]{1,200})\)', prompt)
        for inside in match.groups()
        if inside
    ]


def _copies() -> dict[str, Make]:
    makes: dict[str, Make] = {"the whole prompt": lambda sample, row, random: sample.prompts[row]}
    parts: tuple[tuple[str, Callable[[str], Sequence[str]], int], ...] = (
        ("line", lambda prompt: prompt.strip().splitlines(), 2),
        ("number", _numbers, 3),
        ("word", _words, 3),
        ("quoted or bracketed part", _quoted, 1),
        ("part after a colon", lambda prompt: [part.strip() for part in prompt.split(":")[1:]], 1),
    )
    for name, split, count in parts:
        for place in range(count):
            number = "" if count == 1 else f" {place + 1}"
            makes[f"{name}{number} of the prompt"] = partial(_place, split, place)
            makes[f"{name}{number} from the end of the prompt"] = partial(_place, split, -1 - place)
    return makes


# One answer for all rows


def _another(part: Callable[[Gold], str], sample: Sample, row: int, random: Random) -> str | None:
    others = sample.others(row)
    return part(random.choice(others)) if others else None


_DEFINITION = re.compile(r"\bdef\s+([A-Za-z_]\w{0,60})\s*\(|\b([A-Za-z_]\w{0,60})\(")


def _program(body: str, sample: Sample, row: int, random: Random) -> str:
    """A program, with the function that the prompt asks for, else `solution`."""
    match = _DEFINITION.search(sample.prompts[row])
    return body.replace("NAME", (match[1] or match[2]) if match else "solution")


# Several answers


def _joined(glue: str, sample: Sample, row: int, random: Random) -> Attempt | None:
    return _stating(sample, row, random, lambda own, other: glue.join(random.sample([own, other], 2)))


def _listed(glue: str, sample: Sample, row: int, random: Random) -> Attempt | None:
    answers = random.sample(sample.answers, min(MAX_LISTED, len(sample.answers)))
    return _stating(sample, row, random, lambda own, other: glue.join(dict.fromkeys([*answers, own, other])))


def _counted(sample: Sample, row: int, random: Random) -> Attempt | None:
    """All whole numbers from the smallest to the largest of two answers."""

    def count(own: str, other: str) -> str:
        ends = sorted(int(value) for text in (own, other) if (value := value_of(text)) is not None)
        return " ".join(map(str, range(ends[0], ends[1] + 1)))

    return _stating(sample, row, random, count, whole=True)


def _tagged(form: str, sample: Sample, row: int, random: Random) -> Attempt | None:
    def tag(own: str, other: str) -> str:
        return "".join(form.replace("ANSWER", answer) for answer in random.sample([own, other], 2))

    return _stating(sample, row, random, tag)


def _stating(
    sample: Sample, row: int, random: Random, write: Callable[[str, str], str], *, whole: bool = False
) -> Attempt | None:
    """A text that states the answers of two rows.

    Args:
        sample: The sample.
        row: The first row.
        random: Chooses the second row.
        write: (answer, other answer) -> the text.
        whole: Whether both must be whole numbers at most 300 apart.
    """
    own = sample.golds[row]
    if own is None or not own.is_short:
        return None
    rivals = {id(gold) for gold in sample.others(row) if gold.is_short and not (whole and _distance(own, gold) > 300)}
    places = [place for place, gold in enumerate(sample.golds) if id(gold) in rivals]
    if not places:
        return None
    place = random.choice(places)
    other = sample.golds[place]
    assert other is not None
    return Attempt(write(own.answer, other.answer), row, (own.answer, other.answer), place)


def _distance(own: Gold, other: Gold) -> float:
    values = [value_of(gold.answer) if NUMBER.fullmatch(gold.answer) else None for gold in (own, other)]
    if any(value is None or value.denominator != 1 for value in values):
        return float("inf")
    return float(abs((values[0] or Fraction(0)) - (values[1] or Fraction(0))))


# Changed answers


def _changed(change: Change, sample: Sample, row: int, random: Random) -> Attempt | None:
    gold = sample.golds[row]
    if gold is None or not gold.is_short:
        return None
    changed = change(gold.answer)
    return None if changed is None else Attempt(gold.before + changed + gold.after, row, (changed,))


def _part(change: Change, sample: Sample, row: int, random: Random) -> Attempt | None:
    """A part of the answer, where it is no short form of one of a few options."""
    return _changed(change, sample, row, random) if len(sample.answers) > CLOSED else None


# Text that is run


def _evaluated(form: str, folder: Path, sample: Sample, row: int, random: Random) -> Attempt:
    canary = folder / f"{row}-{random.getrandbits(32):08x}"
    gold = sample.golds[row]
    answer = "0" if gold is None else gold.answer
    value = answer if NUMBER.fullmatch(answer) else repr(answer)
    code = form.replace("FILE", repr(str(canary))).replace("VALUE", value)
    # A part of the path, left by shrinking, would be another file's.
    return Attempt(code, row, keep=(repr(str(canary)),), canary=canary)


EVALUATIONS = {
    "an expression with the value of the answer": "[open(FILE, 'w').close(), VALUE][1]",
    "an expression without names": "[c for c in ().__class__.__base__.__subclasses__() "
    "if c.__name__ == 'catch_warnings'][0]()._module.__builtins__['open'](FILE, 'w')",
    "a statement": "open(FILE, 'w').close()",
    "an f-string's field": "{open(FILE, 'w')}",
}


def _calling(scorer: Scorer, is_blind: bool, says_result: bool, sample: Sample, row: int, random: Random) -> Attempt:
    turns = calls_made(scorer, sample.rows[row], random, is_blind=is_blind, says_result=says_result)
    return Attempt(write_tool_turns(turns or [ToolTurn("")], with_results=False), row)


def call_attacks(scorer: Scorer) -> list[Attack]:
    """Attacks that call tools; none for a task without.

    Args:
        scorer: Scorer of the task, whose workers run the tools.
    """
    ways = {
        "the same calls in all rows": ("constant", True, False),
        "the same calls in all rows, then the last result": ("constant", True, True),
        "calls with what the prompt and results show": ("calls", False, False),
        "calls with what the prompt and results show, then the last result": ("calls", False, True),
    }
    return [
        Attack(kind, name, partial(_calling, scorer, is_blind, says_result), has_calls=True)
        for name, (kind, is_blind, says_result) in ways.items()
        if scorer.task.task.has_tools
    ]


LONG = (
    "a pattern that backtracks",
    "digits that backtrack",
    "100,000 digits",
    "a huge exponent",
    "a tower of powers",
    "100,000 unclosed tags",
    "50,000 parentheses",
    "50,000 signs",
    "a number with 100,000 decimals",
)
"""Texts of `HOSTILE` that take parsers long."""


def attacks(folder: Path) -> list[Attack]:
    """All attacks without wrappers, kinds in turn, so that the first ones of the list are of many kinds.

    Args:
        folder: Where text that is run creates files.
    """
    words = ("0", "1", "yes", "True", "False", "None", "42", *LETTERS[:4])
    constants = (*words, "nan", "inf", "-inf", "999999999", "abcdefghijklmnopqrstuvwxyz", "0123456789")
    glues = (" ", ", ", " or ", "\n", "; ", " = ", "/", "")
    forms = {"tags": "<answer>ANSWER</answer>", "boxes": "\\boxed{ANSWER} ", "markers": "\n#### ANSWER"}
    by_kind: dict[str, dict[str, Make]] = {
        "nothing": {
            "a word that is none": _junk,
            **{name: partial(_constant, text) for name, text in NO_ANSWERS.items()},
        },
        "constant": {
            "the gold of another row": partial(_another, lambda gold: gold.text),
            "the answer of another row": partial(_another, lambda gold: gold.answer),
            **{f"always {text}": partial(_constant, text) for text in constants},
            **{name: partial(_program, body) for name, body in PROGRAMS.items()},
        },
        "copy": _copies(),
        "several": {
            "a list of answers": partial(_listed, ", "),
            "answers one a line": partial(_listed, "\n"),
            "all numbers from one answer to another": _counted,
            **{f"two answers joined by {glue!r}": partial(_joined, glue) for glue in glues},
            **{f"two answers in {name}": partial(_tagged, form) for name, form in forms.items()},
        },
        "changed": {f"the gold with {name}": partial(_changed, change) for name, change in OTHER_ANSWERS.items()},
        "partial": {
            **{f"of the gold {name}": partial(_part, change) for name, change in PARTS.items()},
            **{f"of the gold {name}": partial(_changed, change) for name, change in NEAR_ANSWERS.items()},
        },
        "tampering": {f"a program that {name}": partial(_program, body) for name, body in TAMPERINGS.items()},
        "evaluated": {name: partial(_evaluated, form, folder) for name, form in EVALUATIONS.items()},
        "slow": {name: partial(_constant, HOSTILE[name]) for name in LONG},
    }
    queues = [[Attack(kind, name, make) for name, make in makes.items()] for kind, makes in by_kind.items()]
    return [queue[place] for place in range(max(map(len, queues))) for queue in queues if place < len(queue)]


def wrapped(attack: Attack, random: Random) -> Attack:
    """The attack with one or two wrappers drawn at random; of calls, another draw."""
    if attack.has_calls:
        return replace(attack, wrappers=(f"draw {random.randrange(10**6)}",))
    # What must stay in the text, an answer or code that is run, does not survive another case.
    allowed = sorted(
        set(WRAPPERS) - ({"in upper case"} if attack.kind in ("several", "changed", "partial", "evaluated") else set())
    )
    names = random.sample(allowed, random.choice((1, 1, 2)))
    return Attack(attack.kind, attack.name, attack.make, tuple(names))


def first_wrapper(attack: Attack, sample: Sample) -> str:
    """The wrapper with which a completion has the form of the golds; of programs, a code block."""
    if attack.kind == "tampering" or attack.name in PROGRAMS:
        return "in a code block"
    return "as the golds are written"
