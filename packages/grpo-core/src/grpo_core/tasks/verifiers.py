"""Verifiers of `core.qa`: what a gold must be, and what a completion is worth against it."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any
from unicodedata import normalize

from grpo_core.errors import UserError
from grpo_core.plugins.loading import resolve
from grpo_core.rewards import answer_block
from grpo_core.task.marks import outside_thinking
from grpo_core.task.score import Invalid
from grpo_core.tasks.answers import answer_of
from grpo_core.tasks.choices import LETTERS, choice_of, letter_of
from grpo_core.tasks.numbers import read_number

REGEX_TIMEOUT_S = 1.0
"""Seconds of a match; a pattern that needs longer on a short answer backtracks without end."""

SCHEMA_TIMEOUT_S = 1.0
"""Seconds in which an answer is checked against a schema."""

MAX_PATTERN_CHARS = 10_000
MAX_JSON_CHARS = 1 << 18

REL_TOL = 1e-9
"""Relative difference up to which two numbers are equal, unless both are whole: what is lost in writing a double with
15 digits, and little more. Within it, 0.1 and 1e-1 are one number, and 0.333 is not 1/3."""

_FENCE = re.compile(r"^[^\S\n]{0,8}```(?:[^\S\n]{0,4}json[5cl]?(?!\w))?|```[^\S\n]{0,8}$", re.IGNORECASE | re.MULTILINE)
"""Beginning or ending a line, so never in a text inside JSON, which holds no line break."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """A way to score completions.

    Attributes:
        check: Raises ValueError if a gold cannot be used; takes the gold and the choices.
        score: (completion, gold, choices, kind of mark that the prompt asks for, by default any) -> value in [0, 1];
            raises `Invalid` where there is no answer, and TimeoutError where the check takes too long.
        gold: What a gold is, in words.
        package: Distribution that the verifier needs beside grpo-core; empty for none.
        is_answer: Whether the gold is an answer that a model could write, so that a warm start can use it.
    """

    check: Callable[[str, tuple[str, ...]], None]
    score: Callable[..., float]
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


def _plain(text: str) -> str:
    return " ".join(normalize("NFC", text).split()).casefold()


def _score_exact(text: str, gold: str, choices: tuple[str, ...], kind: str = "") -> float:
    answer = answer_of(text, kind)
    if not answer:
        raise Invalid("no answer")
    return float(_plain(answer) == _plain(answer_of(gold, is_strict=False)))


def _check_text(gold: str, choices: tuple[str, ...]) -> None:
    if not gold.strip():
        raise ValueError("the gold is empty")


def _check_exact(gold: str, choices: tuple[str, ...]) -> None:
    _check_text(gold, choices)
    if not answer_of(gold, is_strict=False):
        raise ValueError(f"the gold {gold!r:.80} marks an empty answer")


def _check_number(gold: str, choices: tuple[str, ...]) -> None:
    if read_number(answer_of(gold, is_strict=False), has_unit=False) is None:
        raise ValueError(
            f"the gold {gold!r:.80} is not one number alone (1,234.5, 3/4, 2e-3, $12): mark the answer (#### 5), "
            "or use verifier=math or exact"
        )


def _score_number(text: str, gold: str, choices: tuple[str, ...], kind: str = "") -> float:
    answer, expected = read_number(answer_of(text, kind)), read_number(answer_of(gold, is_strict=False))
    if answer is None or expected is None:
        raise Invalid("the answer is not one number")
    difference = answer[1] - expected[1]
    # Where only one of them says percent, it may be a unit that the question gives: 60% is 0.6, and 60 too.
    return float(
        any(_are_equal(answer[0] * scale, expected[0]) for scale in {Fraction(1), Fraction(100) ** difference})
    )


def _are_equal(value: Fraction, expected: Fraction) -> bool:
    if value.denominator == expected.denominator == 1:
        return value == expected
    return abs(value - expected) <= Fraction(REL_TOL) * abs(expected)


def _check_math(gold: str, choices: tuple[str, ...]) -> None:
    _check_text(gold, choices)
    if resolve("grpo_tasks_math.verify.extract:read_gold")(gold) is None:
        raise ValueError(f"the gold {gold!r:.80} cannot be read as an answer")


def _score_math(text: str, gold: str, choices: tuple[str, ...], kind: str = "") -> float:
    verdict, why = resolve("grpo_tasks_math.verify:judge")(gold, text, reading=kind or "marked")
    if verdict == "unparsable":
        raise Invalid(why)
    if verdict == "timeout":
        raise TimeoutError("the symbolic check ran out of time")
    return float(verdict == "correct")


def _letter_of(gold: str, choices: tuple[str, ...]) -> str:
    bare = gold.strip().strip("().").upper()
    allowed = LETTERS[: len(choices)] if choices else LETTERS
    if (letter := letter_of(gold, choices)) is not None:
        return letter
    if len(bare) == 1 and bare in allowed:
        return bare
    offered = f"one of the choices, or a letter from A to {allowed[-1]}" if choices else "a letter from A to J"
    raise ValueError(f"the gold {gold!r:.80} must be {offered}")


def _check_choice(gold: str, choices: tuple[str, ...]) -> None:
    if len(choices) > len(LETTERS):
        raise ValueError(f"{len(choices)} choices; at most {len(LETTERS)} have a letter")
    if not all(choices) or len(set(choices)) < len(choices):
        raise ValueError(f"the choices {list(choices)!r:.80} must be different texts, none of them empty")
    _letter_of(gold, choices)


def _score_choice(text: str, gold: str, choices: tuple[str, ...], kind: str = "") -> float:
    letter = choice_of(answer_of(text, kind), choices)
    if letter is None:
        raise Invalid("the answer is no letter or text of one choice")
    return float(letter == _letter_of(gold, choices))


@lru_cache(1024)
def _pattern(gold: str) -> Any:
    # Its matches take a time limit, unlike those of re.
    import regex  # type: ignore[import-untyped]  # it ships no types

    if len(gold) > MAX_PATTERN_CHARS:
        raise ValueError(f"the gold is a pattern of more than {MAX_PATTERN_CHARS} characters")
    try:
        return regex.compile(gold)
    except (regex.error, RecursionError) as error:
        raise ValueError(f"the gold {gold!r:.80} is not a regular expression: {error}") from None


def _check_regex(gold: str, choices: tuple[str, ...]) -> None:
    _check_text(gold, choices)
    _pattern(gold)


def _score_regex(text: str, gold: str, choices: tuple[str, ...], kind: str = "") -> float:
    try:
        return float(_pattern(gold).fullmatch(answer_of(text, kind), timeout=REGEX_TIMEOUT_S) is not None)
    except TimeoutError:
        raise TimeoutError(f"the pattern needs more than {REGEX_TIMEOUT_S:g} s on this answer") from None


@lru_cache(1024)
def _schema(gold: str) -> Any:
    from jsonschema import exceptions, validators  # type: ignore[import-untyped]  # it ships no types
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    try:
        schema = json.loads(gold)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the gold {gold!r:.80} is not JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise ValueError(f"the gold is a JSON {type(schema).__name__}; a schema is an object")
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    registry: Any = Registry()  # an empty one: a $ref is never fetched
    try:
        kind.check_schema(schema)
        resource = specification_with(kind.META_SCHEMA["$schema"]).create_resource(schema)
        _check_references(resource, registry.resolver_with_root(resource))
    except exceptions.SchemaError as error:
        raise ValueError(f"the gold is not a JSON schema: {error.message:.200}") from None
    except (Unresolvable, RecursionError) as error:
        raise ValueError(f"the gold's schema cannot be resolved (no $ref is fetched): {error!s:.200}") from None
    ours = {"pattern": _pattern_errors, "patternProperties": _pattern_properties, "uniqueItems": _repetitions}
    timed = {name: _timed(keyword) for name, keyword in {**kind.VALIDATORS, **ours}.items()}
    return validators.extend(kind, timed)(schema, registry=registry, format_checker=kind.FORMAT_CHECKER)


def _check_references(resource: Any, resolver: Any) -> None:
    """Look up every `$ref` of a schema, which raises `Unresolvable` where it leads nowhere."""
    if isinstance(resource.contents, dict) and "$ref" in resource.contents:
        resolver.lookup(resource.contents["$ref"])
    for inner in resource.subresources():
        _check_references(inner, resolver.in_subresource(inner))


_deadline = ContextVar("deadline", default=math.inf)


def _timed(keyword: Callable[..., Iterator[Exception] | None]) -> Callable[..., Iterator[Exception]]:
    """A keyword of a schema that checks the time before its work."""

    def check(*arguments: Any) -> Iterator[Exception]:
        if time.monotonic() > _deadline.get():
            raise TimeoutError(f"the schema needs more than {SCHEMA_TIMEOUT_S:g} s on this answer")
        return keyword(*arguments) or iter(())

    return check


def _matches(pattern: str, text: str) -> bool:
    return _pattern(pattern).search(text, timeout=REGEX_TIMEOUT_S) is not None


def _pattern_errors(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Exception]:
    """The keyword `pattern`, within a second."""
    from jsonschema import ValidationError

    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError(f"{instance!r:.80} does not match {pattern!r:.80}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[Exception]:
    """The keyword `patternProperties`, each match within a second."""
    for pattern, subschema in patterns.items() if isinstance(instance, dict) else ():
        for name, value in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _repetitions(validator: Any, is_unique: bool, instance: Any, schema: Any) -> Iterator[Exception]:
    """The keyword `uniqueItems` in linear time: 1 and 1.0 are one value, true and 1 are two."""
    from jsonschema import ValidationError

    if is_unique and isinstance(instance, list) and len({*map(_hashable, instance)}) < len(instance):
        yield ValidationError("items are repeated")


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((name, _hashable(inner)) for name, inner in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else (type(value) is bool, value)


def _check_schema(gold: str, choices: tuple[str, ...]) -> None:
    try:
        _schema(gold).is_valid({})
    except RecursionError:  # its $ref leads back to itself, whatever the completion
        raise ValueError("the gold is a JSON schema that never ends") from None


def _score_schema(text: str, gold: str, choices: tuple[str, ...], kind: str = "") -> float:
    parsed = _parsed_json(text)
    token = _deadline.set(time.monotonic() + SCHEMA_TIMEOUT_S)
    try:
        return float(_schema(gold).is_valid(parsed))
    except RecursionError:  # a recursive schema goes as deep as the completion does
        raise Invalid("JSON that is nested too deeply") from None
    finally:
        _deadline.reset(token)


def _parsed_json(text: str) -> Any:
    """The JSON of a completion: all of it, all behind the thinking, the answer that it marks, or its last block."""
    rest = outside_thinking(text)
    texts = [text, rest]
    with suppress(Invalid):
        texts.append(_last_block(answer_of(text)))
    for written in (*texts, _last_block(rest)):
        if len(written) <= MAX_JSON_CHARS:
            with suppress(ValueError, RecursionError):
                return json.loads(written, **_STRICT)
    raise Invalid(f"no JSON of at most {MAX_JSON_CHARS} characters")


def _last_block(text: str) -> str:
    """The last fenced block of a text, which may be cut off; all of it without one."""
    parts = _FENCE.split(text)
    return parts[-1 if len(parts) % 2 == 0 else -2] if len(parts) > 1 else text


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is no number of JSON, or larger than any that its readers hold")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(names := dict(pairs)) < len(pairs):
        raise ValueError("a name is repeated")
    return names


_STRICT: Mapping[str, Any] = {"parse_constant": _finite, "parse_float": _finite, "object_pairs_hook": _distinct}


_SETUP = (
    *(ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
)
"""Statements that prepare a test and are none."""


def tests_of(gold: str) -> list[str]:
    """The tests of a gold: a JSON list of texts, or Python whose statements are tests.

    Imports, assignments and definitions of that Python are part of every test below them, but a function `test…` that
    nothing calls is a test: as pytest does, the sandbox calls it.
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
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for statement in tree.body:
        name = statement.name if isinstance(statement, ast.FunctionDef) else ""
        if isinstance(statement, _SETUP) and (name in used or not name.startswith("test")):
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


def _score_code(text: str, gold: str, choices: tuple[str, ...], kind: str = "") -> float:
    answer = outside_thinking(text)
    tagged = answer_block(answer)  # no ####, which is a comment in Python
    program = answer if tagged is None else tagged
    share = float(resolve("grpo_tasks_code.rewards:passed_tests")(program, tests_of(gold)))
    return share if math.isfinite(share) else 0.0


VERIFIERS: Mapping[str, Verifier] = {
    "exact": Verifier(_check_exact, _score_exact, "the answer; white space and upper case do not matter"),
    "number": Verifier(_check_number, _score_number, "a number: 1,234.5, -3, 2e-3, 3/4, 2 3/4 or 12%"),
    "math": Verifier(_check_math, _score_math, "a number, a formula or a list, plain or LaTeX", "grpo-tasks-math"),
    "choice": Verifier(_check_choice, _score_choice, "a letter, or the text of one of the field `choices`"),
    "regex": Verifier(_check_regex, _score_regex, "a pattern that the whole answer must match", is_answer=False),
    "json": Verifier(_check_schema, _score_schema, "a JSON schema that the answer must satisfy", is_answer=False),
    "code": Verifier(_check_code, _score_code, "Python tests with assert", "grpo-tasks-code", is_answer=False),
}
"""Every verifier, by the name that the option `verifier` takes."""
