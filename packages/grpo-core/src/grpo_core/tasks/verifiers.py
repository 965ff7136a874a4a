"""Verifiers of `core.qa`: what a gold must be, and what a completion is worth against it."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any
from unicodedata import normalize

from grpo_core.errors import UserError
from grpo_core.plugins.loading import resolve
from grpo_core.task.score import Invalid

REGEX_TIMEOUT_S = 1.0
"""Seconds of a match; a pattern that needs longer on a short answer backtracks without end."""

MAX_PATTERN_CHARS = 10_000
MAX_JSON_CHARS = 1 << 18
MAX_NUMBER_CHARS = 400

REL_TOL = 1e-9
"""Relative difference up to which two numbers are equal: what is lost in writing a double with 15 digits, and little
more. Within it, 0.1 and 1e-1 are one number, and 0.333 is not 1/3."""

LETTERS = "ABCDEFGHIJ"

_NUMBER = re.compile(
    r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]{1,300}+)?(?:\.[0-9]{1,300}+)?(?:[eE][-+]?[0-9]{1,3}+)?"
)
_STARTS_NUMBER = re.compile(r"(?<![\w.])[-+]?\.?[0-9]")
_LETTER = re.compile(r"(?<![A-Za-z])\(?([A-J])\)?(?![A-Za-z'\u2019])")
_SAYS_OF_CHOICE = (
    r"(?:is|was|because|since|as|and|or|but|not|seems|looks|would|fits|makes|must|can|cannot|has|should|does)\b"
)
_ARTICLE = re.compile(rf"(?:^|(?<=[.!?:;\n])|(?<=[.!?:;] ))A (?!{_SAYS_OF_CHOICE})(?=[a-z])")
"""An `A` that begins a sentence, before a word that says nothing of a choice; elsewhere the article is no capital."""
_PRONOUN = re.compile(r"(?<![A-Za-z])I (?!(?:is|because|since|as)\b)(?=[a-z])")
_DENOMINATOR = re.compile(r" ?/ ?([0-9]{1,300}+)(?![0-9])")
_FRACTION_PART = re.compile(r" ([0-9]{1,300}+) ?/ ?([0-9]{1,300}+)(?![0-9.])")
_BOX_TOKEN = re.compile(r"\\boxed\s?\{|\\.|[{}]", re.DOTALL)
_BOXED_TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|mbox|mathrm)\s?\{([^{}]{0,1000})\}")

_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-"))
_FRACTION = re.compile(r"([0-9]\s?)?\\[dtc]?frac\s?\{\s?(-?[0-9]{1,300})\s?\}\s?\{\s?([0-9]{1,300})\s?\}")
_VULGAR_FRACTION = re.compile(r"([0-9]\s?)?([¼½¾⅐-⅞])")
_WORDED_SIGN = re.compile(
    # Behind another word, such as a unit, "minus" subtracts.
    r"(?:(?<!\w)(?<![0-9)]\s)negative|(?P<before>^|[\n=:#>(]|\b(?:is|are|was|were|be|equals?|to|of|at|or|and)\s)"
    r"(?P<space>[\s$*]{0,4})minus)\s{1,4}(?=\\?[$€£¥₹]?\.?[0-9])",
    re.IGNORECASE,
)
_SIGNED_CURRENCY = re.compile(r"(?<![\w.])([-+])\\?[$€£¥₹]\s?(?=\.?[0-9])")


@dataclass(frozen=True, slots=True)
class Verifier:
    """A way to score completions.

    Attributes:
        check: Raises ValueError if a gold cannot be used; takes the gold and the choices.
        score: (completion, gold, choices) -> value in [0, 1]; raises `Invalid` where there is no answer, and
            TimeoutError where the check takes too long.
        gold: What a gold is, in words.
        package: Distribution that the verifier needs beside grpo-core; empty for none.
        is_answer: Whether the gold is an answer that a model could write, so that a warm start can use it.
    """

    check: Callable[[str, tuple[str, ...]], None]
    score: Callable[[str, str, tuple[str, ...]], float]
    gold: str
    package: str = ""
    is_answer: bool = True

    def require(self, name: str) -> None:
        """Check that the verifier's package is installed.

        Raises:
            UserError: it is not; names it.
        """
        if self.package and importlib.util.find_spec(self.package.replace("-", "_")) is None:
            raise UserError(f"verifier={name} needs {self.package}, which is not installed: pip install {self.package}")


def answer_of(text: str) -> str:
    r"""The answer that a completion marks, without white space around it.

    It is the last `<answer>…</answer>`, else the last `\boxed{…}`, else what follows the last `####`, else all of it.
    """
    before, closed, _ = text.rpartition("</answer>")
    _, opened, tagged = before.rpartition("<answer>")
    if closed and opened:
        return tagged.strip()
    if (boxed := _last_box(text)) is not None:
        return _BOXED_TEXT.sub(r"\1", boxed).strip()
    return text.rpartition("####")[2].strip()


def _last_box(text: str) -> str | None:
    """The inside of the last box whose braces are balanced; of nested ones the inner. One pass."""
    if "\\boxed" not in text:
        return None
    opened: list[int | None] = []  # where the inside of each open brace starts; None for a brace that is no box
    last: tuple[int, int] | None = None
    for token in _BOX_TOKEN.finditer(text):
        if token[0] == "{":
            opened.append(None)
        elif token[0].startswith("\\boxed"):
            opened.append(token.end())
        elif token[0] == "}" and opened:
            start = opened.pop()
            if start is not None and (last is None or start > last[0]):
                last = start, token.start()
    return None if last is None else text[slice(*last)]


def read_number(text: str) -> Fraction | None:
    r"""The last number of a text: 1,234.5, -3, 2e-3, 3/4, \frac{3}{4}, 2 3/4 or 12%; None where there is none."""
    text = _plain_numbers(text)
    numbers: list[tuple[str, Fraction, int, bool]] = []  # as written, what is added, a denominator, if it is in percent
    position = 0
    while (start := _STARTS_NUMBER.search(text, position)) is not None:
        match = _NUMBER.match(text, start.start())
        if match is None or match.end() == start.start() or text[match.end() : match.end() + 1].isdigit():
            position = start.end()  # more digits than are read
            continue
        part, below, position = Fraction(0), 1, match.end()
        if (denominator := _DENOMINATOR.match(text, position)) is not None:
            below, position = int(denominator[1]), denominator.end()
        elif set(match[0]).isdisjoint(".eE") and (mixed := _proper_fraction(text, position)) is not None:
            part, position = mixed
        if below:
            numbers.append((match[0], part, below, text.startswith("%", position)))
    for written, part, below, is_percent in reversed(numbers):  # only the last is computed, unless it is too long
        if (value := _fraction(written)) is not None:
            value += -part if written.startswith("-") else part
            return value / below / (100 if is_percent else 1)
    return None


def _proper_fraction(text: str, position: int) -> tuple[Fraction, int] | None:
    """What makes a mixed number of the whole number that ends here, and where it ends."""
    match = _FRACTION_PART.match(text, position)
    if match is None or int(match[1]) >= int(match[2]):
        return None
    return Fraction(int(match[1]), int(match[2])), match.end()


def _plain_numbers(text: str) -> str:
    """Spell signs, fractions, grouped digits and percent signs in one way, and put a sign before its digits."""
    text = text.translate(_DASHES)
    if "\\" in text or "{" in text:
        text = _FRACTION.sub(_spelled_fraction, text.replace("{,}", ",").replace("\\%", "%"))
    if not text.isascii():
        text = _VULGAR_FRACTION.sub(_spelled_fraction, text)
    lowered = text.lower()
    if "minus" in lowered or "negative" in lowered:
        text = _WORDED_SIGN.sub(lambda sign: f"{sign['before'] or ''}{sign['space'] or ''}-", text)
    return _SIGNED_CURRENCY.sub(r"\1", text)


def _spelled_fraction(match: re.Match[str]) -> str:
    whole, *parts = match.groups()
    part = "/".join(parts) if len(parts) > 1 else normalize("NFKC", parts[0]).replace("\u2044", "/")
    return f"{whole.strip()} {part}" if whole else part


def _fraction(text: str) -> Fraction | None:
    if len(text) > MAX_NUMBER_CHARS:
        return None
    try:
        return Fraction(text.replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return None


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _score_exact(text: str, gold: str, choices: tuple[str, ...]) -> float:
    answer = answer_of(text)
    if not answer:
        raise Invalid("no answer")
    return float(_plain(answer) == _plain(gold))


def _check_text(gold: str, choices: tuple[str, ...]) -> None:
    if not gold.strip():
        raise ValueError("the gold is empty")


def _check_number(gold: str, choices: tuple[str, ...]) -> None:
    if read_number(answer_of(gold)) is None:
        raise ValueError(f"the gold {gold!r:.80} holds no number")


def _score_number(text: str, gold: str, choices: tuple[str, ...]) -> float:
    value, expected = read_number(answer_of(text)), read_number(answer_of(gold))
    if value is None or expected is None:
        raise Invalid("no number")
    return float(abs(value - expected) <= Fraction(REL_TOL) * abs(expected))


def _check_math(gold: str, choices: tuple[str, ...]) -> None:
    _check_text(gold, choices)
    if resolve("grpo_tasks_math.verify.extract:read_gold")(gold) is None:
        raise ValueError(f"the gold {gold!r:.80} cannot be read as an answer")


def _score_math(text: str, gold: str, choices: tuple[str, ...]) -> float:
    verdict = resolve("grpo_tasks_math.verify:verify")(gold, text)
    if verdict == "unparsable":
        raise Invalid("no final answer")
    if verdict == "timeout":
        raise TimeoutError("the symbolic check ran out of time")
    return float(verdict == "correct")


def _letter_of(gold: str, choices: tuple[str, ...]) -> str:
    by_text = [letter for letter, choice in zip(LETTERS, choices, strict=False) if _plain(choice) == _plain(gold)]
    bare = gold.strip().strip("().").upper()
    allowed = LETTERS[: len(choices)] if choices else LETTERS
    if by_text:
        return by_text[0]
    if len(bare) == 1 and bare in allowed:
        return bare
    offered = f"one of the choices, or a letter from A to {allowed[-1]}" if choices else "a letter from A to J"
    raise ValueError(f"the gold {gold!r:.80} must be {offered}")


def _check_choice(gold: str, choices: tuple[str, ...]) -> None:
    if len(choices) > len(LETTERS):
        raise ValueError(f"{len(choices)} choices; at most {len(LETTERS)} have a letter")
    _letter_of(gold, choices)


def _score_choice(text: str, gold: str, choices: tuple[str, ...]) -> float:
    answer, expected = answer_of(text), _letter_of(gold, choices)
    if any(_plain(choice) == _plain(answer) for choice in choices):
        return float(_letter_of(answer, choices) == expected)
    offered = LETTERS[: len(choices)] if choices else LETTERS
    letters = [letter for letter in _LETTER.findall(_PRONOUN.sub("", _ARTICLE.sub("", answer))) if letter in offered]
    if not letters:
        raise Invalid("no letter of a choice")
    return float(letters[-1] == expected)


@lru_cache(1024)
def _pattern(gold: str) -> Any:
    # Its matches take a time limit, unlike those of re.
    import regex  # type: ignore[import-untyped]  # it ships no types

    if len(gold) > MAX_PATTERN_CHARS:
        raise ValueError(f"the gold is a pattern of more than {MAX_PATTERN_CHARS} characters")
    try:
        return regex.compile(gold)
    except regex.error as error:
        raise ValueError(f"the gold {gold!r:.80} is not a regular expression: {error}") from None


def _check_regex(gold: str, choices: tuple[str, ...]) -> None:
    _check_text(gold, choices)
    _pattern(gold)


def _score_regex(text: str, gold: str, choices: tuple[str, ...]) -> float:
    try:
        return float(_pattern(gold).fullmatch(answer_of(text), timeout=REGEX_TIMEOUT_S) is not None)
    except TimeoutError:
        raise TimeoutError(f"the pattern needs more than {REGEX_TIMEOUT_S:g} s on this answer") from None


@lru_cache(1024)
def _schema(gold: str) -> Any:
    from jsonschema import exceptions, validators  # type: ignore[import-untyped]  # it ships no types
    from referencing import Registry

    try:
        schema = json.loads(gold)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the gold {gold!r:.80} is not JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise ValueError(f"the gold is a JSON {type(schema).__name__}; a schema is an object")
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except exceptions.SchemaError as error:
        raise ValueError(f"the gold is not a JSON schema: {error.message:.200}") from None
    return kind(schema, registry=Registry())  # an empty registry: a $ref is never fetched


def _check_schema(gold: str, choices: tuple[str, ...]) -> None:
    _schema(gold)


def _score_schema(text: str, gold: str, choices: tuple[str, ...]) -> float:
    written = answer_of(text)
    before, closed, _ = written.rpartition("```")
    if closed and "```" in before:  # the last fenced block
        written = before.rpartition("```")[2].removeprefix("json")
    if len(written) > MAX_JSON_CHARS:
        raise Invalid(f"JSON of more than {MAX_JSON_CHARS} characters")
    try:
        value = json.loads(written, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Invalid("not JSON") from None
    return float(_schema(gold).is_valid(value))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_SETUP = (
    *(ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
)
"""Statements that prepare a test and are none."""


def tests_of(gold: str) -> list[str]:
    """The tests of a gold: a JSON list of texts, or Python whose statements are tests.

    Imports, assignments and definitions of that Python are part of every test below them.
    """
    if gold.lstrip().startswith("["):
        try:
            tests = json.loads(gold)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the gold is not a JSON list of tests: {error}") from None
        if not tests or not all(isinstance(test, str) for test in tests):
            raise ValueError("the gold is a list of tests: give one text or more, each with an assert")
        return list(tests)
    try:
        tree = ast.parse(gold)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the gold is not Python: {error}") from None
    tests, setup = [], list[ast.stmt]()
    for statement in tree.body:
        if isinstance(statement, _SETUP):
            setup.append(statement)
        else:
            tests.append(ast.unparse(ast.Module([*setup, statement], [])))
    return tests or ([ast.unparse(tree)] if setup else [])


def _check_code(gold: str, choices: tuple[str, ...]) -> None:
    tests = tests_of(gold)
    try:
        resolve("grpo_tasks_code.sandbox:check_tests")(tests)
    except UserError as error:
        raise ValueError(f"the gold's tests cannot be used: {error}") from None


def _score_code(text: str, gold: str, choices: tuple[str, ...]) -> float:
    share = float(resolve("grpo_tasks_code.rewards:passed_tests")(text, tests_of(gold)))
    return share if math.isfinite(share) else 0.0


VERIFIERS: Mapping[str, Verifier] = {
    "exact": Verifier(_check_text, _score_exact, "the answer; white space and upper case do not matter"),
    "number": Verifier(_check_number, _score_number, "a number: 1,234.5, -3, 2e-3, 3/4, 2 3/4 or 12%"),
    "math": Verifier(_check_math, _score_math, "a number, a formula or a list, plain or LaTeX", "grpo-tasks-math"),
    "choice": Verifier(_check_choice, _score_choice, "a letter, or the text of one of the field `choices`"),
    "regex": Verifier(_check_regex, _score_regex, "a pattern that the whole answer must match", is_answer=False),
    "json": Verifier(_check_schema, _score_schema, "a JSON schema that the answer must satisfy", is_answer=False),
    "code": Verifier(_check_code, _score_code, "Python tests with assert", "grpo-tasks-code", is_answer=False),
}
"""Every verifier, by the name that the option `verifier` takes."""
