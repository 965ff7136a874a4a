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

from grpo_sdk.errors import UserError
from grpo_sdk.plugins.loading import resolve
from grpo_sdk.rewards import answer_block
from grpo_sdk.task.marks import outside_thinking
from grpo_sdk.task.score import Invalid
from grpo_sdk.tasks.answers import answer_of
from grpo_sdk.tasks.choices import LETTERS, choice_of, folded, letter_of
from grpo_sdk.tasks.numbers import read_number

REGEX_TIMEOUT_S = 1.0
"""Seconds of a match; a pattern that needs longer on a short answer backtracks without end."""

SCHEMA_TIMEOUT_S = 1.0
"""Seconds in which an answer is checked against a schema."""

MAX_PATTERN_CHARS = 10_000
MAX_JSON_CHARS = 1 << 18

REL_TOL = 1e-9
"""Relative difference up to which two numbers are equal, unless both are whole: what is lost in writing a double with
15 digits, and little more. Within it, 0.1 and 1e-1 are one number, and 0.333 is not 1/3."""

_QUOTED = re.compile(r"(\*{1,3}|[\"'`“‘])(.+)(?:\1|[”’])")

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
        package: Distribution that the verifier needs beside grpo-sdk; empty for none.
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


def _score_exact(text: str, gold: str, choices: tuple[str, ...], kind: str = "") -> float:
    answer = answer_of(text, kind)
    if not answer:
        raise Invalid("no answer")
    answer, expected = (folded(each).removesuffix(".") for each in (answer, answer_of(gold, is_strict=False)))
    for _ in range(3):  # emphasis in quotation marks
        if answer != expected and (quoted := _QUOTED.fullmatch(answer)):
            answer = quoted[2].strip().removesuffix(".")
    return float(answer == expected)


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
    allowed = LETTERS[: len(choices)] if choices else LETTERS
    if (letter := letter_of(gold, choices)) is not None:
        return letter
    offered = f"one of the choices, or a letter from A to {allowed[-1]}" if choices else "a letter from A to J"
    raise ValueError(f"the gold {gold!r:.80} must be {offered}")


def _check_choice(gold: str, choices: tuple[str, ...]) -> None:
    if len(choices) > len(LETTERS):
        raise ValueError(f"{len(choices)} choices; at most {len(LETTERS)} have a letter")
    if not all(choices) or len(set(choices)) < len(choices):
        raise ValueError(f"the choices {list(choices)!r:.80} must be different texts, none of them empty")
    _letter_of(gold, choices)
    if len(gold.strip()) == 1 and letter_of(gold.upper(), choices) != letter_of(gold.lower(), choices):
        raise ValueError(f"the gold {gold!r} is a letter, and the text of another choice: write both, as A) text")


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
    from jsonschema import FormatChecker, exceptions, validators  # type: ignore[import-untyped]  # it ships no types
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    try:
        schema = json.loads(gold, **_STRICT)
        if not isinstance(schema, dict):
            raise ValueError(f"a schema is an object, not a JSON {type(schema).__name__}")
        dialect = str(schema.pop("$schema", "https://json-schema.org/draft/2020-12/schema"))
        if (kind := validators.validator_for({"$schema": dialect}, default=None)) is None:
            raise ValueError(f"its $schema {dialect:.80} is none of JSON Schema's drafts")
        kind.check_schema(schema, format_checker=FormatChecker(()))
        resource = specification_with(dialect).create_resource(schema)
        registry: Any = Registry()  # an empty one: a $ref is never fetched
        _check_subschema(resource, registry.resolver_with_root(resource), kind.FORMAT_CHECKER.checkers)
    except (ValueError, RecursionError, Unresolvable, exceptions.SchemaError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else getattr(error, "message", str(error))
        why = f"{why} cannot be resolved, and no $ref is fetched" if isinstance(error, Unresolvable) else why
        raise ValueError(f"the gold {gold!r:.80} is not a JSON schema that can be checked: {why:.300}") from None
    timed = {name: _timed(keyword) for name, keyword in {**kind.VALIDATORS, **_KEYWORDS}.items()}
    return validators.extend(kind, timed)(schema, registry=registry, format_checker=kind.FORMAT_CHECKER)


_REFUSED = frozenset(("$schema", "$dynamicRef", "$recursiveRef", "unevaluatedItems", "unevaluatedProperties"))
"""Keywords of subschemas whose checks change with where they stand, and are not bounded in time."""


def _check_subschema(resource: Any, resolver: Any, formats: Mapping[str, Any]) -> None:
    """Refuse what cannot be checked in bounded time, and a `$ref` that leads nowhere (`Unresolvable`)."""
    keywords = resource.contents if isinstance(resource.contents, dict) else {}
    if refused := _REFUSED & keywords.keys():
        raise ValueError(f"the keyword {min(refused)} cannot be checked here")
    if "format" in keywords and keywords["format"] not in formats:
        known = f"one of {', '.join(sorted(formats))}, a pattern, or pip install 'jsonschema[format-nongpl]'"
        raise ValueError(f"the format {keywords['format']!r:.40} cannot be checked: take {known}")
    for pattern in (keywords.get("pattern", ""), *keywords.get("patternProperties", ())):
        _pattern(pattern)
    if "$ref" in keywords:
        resolver.lookup(keywords["$ref"])
    for inner in resource.subresources():
        _check_subschema(inner, resolver.in_subresource(inner), formats)


_deadline = ContextVar("deadline", default=math.inf)


def _seconds_left() -> float:
    if (left := _deadline.get() - time.monotonic()) <= 0:
        raise TimeoutError
    return left


def _timed(keyword: Callable[..., Iterator[Exception] | None]) -> Callable[..., Iterator[Exception]]:
    """A keyword of a schema that checks the time before its work."""

    def check(*arguments: Any) -> Iterator[Exception]:
        _seconds_left()
        return keyword(*arguments) or iter(())

    return check


def _matches(pattern: str, text: str) -> bool:
    return _pattern(pattern).search(text, timeout=_seconds_left()) is not None


def _pattern_errors(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Exception]:
    """The keyword `pattern`, within a second."""
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield from validator.descend(instance, False)


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[Exception]:
    """The keyword `patternProperties`, each match within a second."""
    for pattern, subschema in patterns.items() if isinstance(instance, dict) else ():
        for name, value in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, extra: Any, instance: Any, schema: Any) -> Iterator[Exception]:
    """The keyword `additionalProperties`, whose patterns are those of `patternProperties`."""
    for name in instance.keys() - schema.get("properties", {}).keys() if isinstance(instance, dict) else ():
        if not any(_matches(pattern, name) for pattern in schema.get("patternProperties", ())):
            yield from validator.descend(instance[name], extra, path=name)


def _repetitions(validator: Any, is_unique: bool, instance: Any, schema: Any) -> Iterator[Exception]:
    """The keyword `uniqueItems` in linear time; nobody makes hashes of texts collide, as those of numbers."""
    texts = [json.dumps(item, sort_keys=True) for item in instance] if isinstance(instance, list) else []
    if is_unique and len({*texts}) < len(texts):
        yield from validator.descend(instance, False)


_KEYWORDS: Mapping[str, Callable[..., Iterator[Exception]]] = {
    "pattern": _pattern_errors,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _repetitions,
}
"""Keywords whose checks in jsonschema are not bounded in time."""


def _is_valid(gold: str, value: Any) -> bool:
    schema = _schema(gold)
    token = _deadline.set(time.monotonic() + SCHEMA_TIMEOUT_S)
    try:
        return bool(schema.is_valid(value))
    except TimeoutError:
        raise TimeoutError(f"the schema needs more than {SCHEMA_TIMEOUT_S:g} s on this answer") from None
    finally:
        _deadline.reset(token)


def _check_schema(gold: str, choices: tuple[str, ...]) -> None:
    try:
        _is_valid(gold, {})
    except (RecursionError, TimeoutError):  # its $ref leads back to itself, or again and again to others
        raise ValueError(f"the gold is a JSON schema that never ends, or not within {SCHEMA_TIMEOUT_S:g} s") from None


def _score_schema(text: str, gold: str, choices: tuple[str, ...], kind: str = "") -> float:
    try:
        return float(_is_valid(gold, _parsed_json(text)))
    except RecursionError:  # a recursive schema goes as deep as the completion does
        raise Invalid("JSON that is nested too deeply") from None


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


def _number(text: str) -> float:
    """A number of JSON, whole where its value is: 1 and 1.0 are one."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text:.40} is no number of JSON, or larger than any that its readers hold")
    return int(text if text.lstrip("-").isdecimal() else value) if value.is_integer() else value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(names := dict(pairs)) < len(pairs):
        raise ValueError("a name is repeated")
    return names


_STRICT: Any = dict.fromkeys(("parse_constant", "parse_float", "parse_int"), _number) | {"object_pairs_hook": _distinct}


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
