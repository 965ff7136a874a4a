"""A task with its options bound: rows, prompts, scores, identity."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from grpo_core.errors import DataError, InfrastructureError, UserError, near_match
from grpo_core.task.calling import call_by_name, where_raised
from grpo_core.task.composition import RewardSpec
from grpo_core.task.evaluation import EvaluationDefaults
from grpo_core.task.game import Move
from grpo_core.task.identity import hashed, meaning_of, sources_of_0_1
from grpo_core.task.opponent import Opponent
from grpo_core.task.row import Message, Prompt, Row, TaskConfig
from grpo_core.task.score import Invalid, Score
from grpo_core.task.spec import TaskSpec
from grpo_core.task.task import Task
from grpo_core.task.turns import Progress, progress

MAX_WHY_CHARS = 300
"""Bound on `Score.why`: a reason may quote a hostile completion."""


class BoundTask:
    """A task and its options.

    Attributes:
        task: The task.
        name: `plugin.task`.
        config: Its options, validated.
        spec: What `load_task` takes to make the same one in another process.
    """

    def __init__(self, task: Task, name: str, config: TaskConfig, spec: TaskSpec) -> None:
        self.task, self.name, self.config = task, name, config
        self._spec = spec
        self._reward_specs = task.specs()
        self._row_type = task.row_type()

    def __repr__(self) -> str:
        return f"BoundTask({self.spec!r})"

    @property
    def spec(self) -> str:
        """What `load_task` takes to make this task again."""
        return str(self._spec)

    @property
    def plugin(self) -> str | None:
        """The plugin that it comes from; None for a task of a file."""
        return None if ".py:" in self._spec.name else self.name.partition(".")[0]

    @property
    def rewards(self) -> tuple[RewardSpec, ...]:
        """The rewards with their marks, in order."""
        return self._reward_specs

    def with_options(self, **options: object) -> BoundTask:
        """The same task with some options changed; None returns an option to its default."""
        spec = self._spec.with_options(**options)
        return BoundTask(self.task, self.name, bind_config(self.task, self.name, spec), spec)

    def rows(self) -> list[Row]:
        """Every row of the configured split and size, loaded once.

        Raises:
            DataError: no row, a row of the wrong class, a repeated id, or a row that does not survive JSON.
        """
        return list(self._rows)

    @cached_property
    def _rows(self) -> tuple[Row, ...]:
        try:
            loaded = call_by_name(self.task.load, {"config": self.config}, positional=1)
            if not isinstance(loaded, Iterable):
                raise DataError(f"task {self.name!r}: load() gave {type(loaded).__name__}; it must give rows.")
            rows = tuple(self._checked(islice(loaded, self.config.size)))
        except ValidationError as error:
            raise DataError(f"task {self.name!r}: load() made a row that is refused: {first_problem(error)}") from None
        if not rows:
            raise DataError(
                f"task {self.spec!r} has no rows for split {self.config.split!r}"
                + (f" in {self.config.path}" if self.config.path else "")
                + "; try another split, or give a local file with ?path=."
            )
        return rows

    def _checked(self, rows: Iterable[Any]) -> Iterator[Row]:
        seen: set[str] = set()
        for row in rows:
            if not isinstance(row, self._row_type):
                raise DataError(
                    f"task {self.name!r}: load() gave a {type(row).__name__}, not a {self._row_type.__name__}."
                )
            if row.id in seen:
                raise DataError(f"task {self.name!r}: two rows have the id {row.id!r}; ids name prompts in every log.")
            seen.add(row.id)
            try:
                written = row.model_dump_json()
            except PydanticSerializationError as error:  # a lone surrogate, an object of a class without JSON
                raise DataError(f"task {self.name!r}: row {row.id!r} cannot be written as JSON: {error}") from None
            if self.row_from_json(written) != row:
                raise DataError(
                    f"task {self.name!r}: row {row.id!r} changes when written as JSON; use plain JSON types."
                )
            yield row

    def row_from_json(self, text: str | bytes) -> Row:
        """Read a row back.

        Raises:
            DataError: it does not fit the row class; names the field.
        """
        try:
            return self._row_type.model_validate_json(text)
        except ValidationError as error:
            raise DataError(
                f"task {self.name!r}: a row does not fit {self._row_type.__name__}: {first_problem(error)}"
            ) from None

    def prompt(self, row: Row) -> Prompt:
        """The prompt of a row: text, or a tuple of messages."""
        made = call_by_name(self.task.prompt, {"row": row, "config": self.config}, positional=1)
        return as_prompt(made, f"task {self.name!r}: prompt()")

    def demos(self) -> Iterator[tuple[Prompt, str]]:
        """(prompt, completion) pairs for a warm start: `size` of the task's own, else each row with its gold.

        Raises:
            DataError: rows have no gold and the task gives no demos.
        """
        if self.task.demos is not None:
            given = call_by_name(self.task.demos, {"config": self.config}, positional=1)
            yield from islice(given, self.config.size)
            return
        for row in self._rows:
            if row.gold is None:
                raise DataError(f"task {self.name!r}: row {row.id!r} has no gold, and the task gives no demos=.")
            yield self.prompt(row), row.gold

    @cached_property
    def opponent(self) -> Opponent | None:
        """Who answers a prompt made from each valid answer, as the options say.

        Raises:
            UserError: the task cannot say.
        """
        declared = self.task.opponent
        if declared is None or isinstance(declared, Opponent):
            return declared
        found = self._asked("opponent", None)
        if not isinstance(found, Opponent):
            raise UserError(f"task {self.name!r}: opponent() must give an Opponent, not {found!r:.80}.")
        return found

    def opponent_prompt(self, text: str, row: Row) -> Prompt | None:
        """The opponent's prompt for a completion, or None where the validator refuses it.

        A validator or prompt that crashes also gives None: `score` meets the same crash and attributes it.
        """
        assert self.opponent is not None
        try:
            return self._ask_opponent(self._answer(text, row), row)
        except (Exception, SystemExit):  # untrusted text met the task's code; `score` meets it too and reports it
            return None

    def _ask_opponent(self, answer: Any, row: Row) -> Prompt:
        assert self.opponent is not None
        available = {"answer": answer, "row": row, "config": self.config}
        return as_prompt(call_by_name(self.opponent.prompt, available, positional=1), "opponent prompt")

    def score(self, text: str, row: Row, predictions: Sequence[str] | None = None) -> Score:
        """Score one completion in this process; `Scorer` does it with a killable time limit.

        Never raises for what the text holds: a refusal is `valid=False`, a crash of the task's code abstains.

        Args:
            text: The completion, without the prompt and without special tokens.
            row: Its row.
            predictions: The opponent's answers, for a task that has one.
        """
        score = self._score(text, row, predictions)
        return self.out_of_time(row, score.why) if score.fault == "timeout" else score

    def out_of_time(self, row: Row, why: str) -> Score:
        """The score of a completion whose limit ran out, by the task's `on_timeout`.

        With `fail` it scores as an empty completion that the validator refused: the text took too long once, so no
        function of the task sees it again.

        Args:
            row: Its row.
            why: What ran out.
        """
        if self.task.on_timeout == "abstain":
            return Score(None, why=_one_line(why), fault="timeout")
        return self._composed(self._given("", row, ()), None, valid=False, why=_one_line(why))

    def _score(self, text: str, row: Row, predictions: Sequence[str] | None) -> Score:
        who = "validate()"
        try:
            answer = self._answer(text, row)
            if self.opponent is not None and not predictions:
                who = "opponent prompt"  # its crash may be why there are no predictions
                self._ask_opponent(answer, row)
        except Invalid as refusal:
            answer, valid, why = None, False, _one_line(f"invalid: {refusal}")
        except (Exception, SystemExit) as error:  # the task's code met untrusted text: its crash is data, not ours
            return _fault(who, error)
        else:
            valid, why = True, ""
        return self._composed(self._given(text, row, predictions or ()), answer, valid, why)

    def refuse(self, text: str, row: Row, why: str) -> Score:
        """Score a completion as `score` scores one that the validator refuses.

        Args:
            text: The completion.
            row: Its row.
            why: What is wrong with it that the validator cannot know, e.g. that it is too long for the opponent.
        """
        return self._composed(self._given(text, row, ()), None, valid=False, why=_one_line(f"invalid: {why}"))

    def _composed(self, given: Mapping[str, Any], answer: Any, valid: bool, why: str) -> Score:
        parts: dict[str, float] = {}
        for spec in self._reward_specs:
            try:
                parts[spec.name] = self._raw(spec, given, answer, valid, parts)
            except (Exception, SystemExit) as error:  # as above
                return _fault(f"reward {spec.name}()", error)
        try:
            value = _number(self.task.compose(self._reward_specs, parts, valid), "a composed reward is a number")
            if not math.isfinite(value):
                raise _Returned(f"{value}; a composed reward is a finite number")
            solved = valid and self._is_solved({**given, "answer": answer, "parts": parts}, parts)
        except (Exception, SystemExit) as error:  # as above
            return _fault("compose/solved", error)
        return Score(value, parts, valid, solved, why or _one_line(self._shortfall(parts)))

    def _answer(self, text: str, row: Row) -> Any:
        """What the validator makes of a completion; it raises `Invalid` where that is nothing."""
        answer = call_by_name(self.task.validate, self._given(text, row), positional=2)
        if isinstance(answer, Invalid) or answer is Invalid:
            raise _Returned("Invalid; what holds no answer is refused by raise Invalid(reason)")
        _refuse_coroutine(answer)
        return answer

    def _given(self, text: str, row: Row, predictions: Sequence[str] | None = None) -> dict[str, Any]:
        given = {"text": text, "row": row, "config": self.config}
        return given if predictions is None or self.opponent is None else {**given, "predictions": tuple(predictions)}

    def _raw(
        self, spec: RewardSpec, given: Mapping[str, Any], answer: Any, valid: bool, parts: Mapping[str, float]
    ) -> float:
        if spec.needs is not None:
            needed = next(earlier for earlier in self._reward_specs if earlier.name == spec.needs)
            if not needed.reached_by(parts[needed.name]):
                return 0.0
        if not valid and ("answer" in spec.arguments or "predictions" in spec.arguments):
            return 0.0
        raw = _number(
            spec.function(**{name: answer if name == "answer" else given[name] for name in spec.arguments}),
            "a reward is a number",
        )
        if not math.isfinite(raw):
            raise _Returned(f"{raw}; a reward is a finite number")
        if not spec.is_fact and raw > spec.maximum + 1e-6 * max(1.0, abs(spec.maximum)):
            raise _Returned(f"{raw}, above its maximum {spec.maximum}; state it: @reward(…, maximum={raw:g})")
        return raw

    def _is_solved(self, available: Mapping[str, Any], parts: Mapping[str, float]) -> bool:
        if self.task.solved is not None:
            customary = {name: available[name] for name in ("answer", "row", "text", "parts", "config")}
            solved = call_by_name(self.task.solved, customary, positional=2)
            _refuse_coroutine(solved)
            if isinstance(solved, str):
                raise _Returned(f"the text {solved[:40]!r}; solved is True or False")
            return bool(solved)
        earned = [spec for spec in self._reward_specs if spec.is_criterion]
        return bool(earned) and all(spec.reached_by(parts[spec.name]) for spec in earned)

    def _shortfall(self, parts: Mapping[str, float]) -> str:
        short = [s for s in self._reward_specs if not s.is_fact and not s.reached_by(parts[s.name])]
        return ", ".join(f"{spec.name} {parts[spec.name]:.3g} of {spec.maximum:g}" for spec in short)

    @cached_property
    def conditions(self) -> Mapping[str, str]:
        """What on this machine the scores depend on, by name; found out once, in this process.

        Raises:
            UserError: the task cannot say.
        """
        found = self._asked("conditions", {})
        if not isinstance(found, Mapping) or not all(isinstance(word, str) for pair in found.items() for word in pair):
            raise UserError(f"task {self.name!r}: conditions() must give text by name, not {found!r:.80}.")
        return {name: _one_line(text) for name, text in found.items()}

    @cached_property
    def evaluation(self) -> EvaluationDefaults:
        """How the task is evaluated unless the user says otherwise.

        Raises:
            UserError: the task cannot say, or says what is not allowed.
        """
        found = self._asked("evaluation", EvaluationDefaults())
        if not isinstance(found, EvaluationDefaults):
            raise UserError(f"task {self.name!r}: evaluation() must give EvaluationDefaults, not {found!r:.80}.")
        return found

    def _asked(self, contribution: str, absent: Any) -> Any:
        function = getattr(self.task, contribution)
        if function is None:
            return absent
        try:
            return call_by_name(function, {"config": self.config}, positional=1)
        except UserError as error:  # the task's own words to its user
            raise UserError(f"task {self.name!r}: {error}") from error
        except (Exception, SystemExit) as error:  # the task's code, asked before a run: it names itself
            raise UserError(
                f"task {self.name!r}: {contribution}() raised {type(error).__name__} ({where_raised(error)}): {error}"
            ) from error

    @property
    def has_turns(self) -> bool:
        """Whether a rollout may have several turns."""
        return self.task.game is not None or (self.task.respond is not None and self.task.max_turns > 1)

    def next_turn(self, row: Row, moves: Sequence[Move]) -> Progress:
        """What comes after some turns of a rollout; a crash of the task's code is the answer's `fault`."""
        try:
            made = progress(self.task, self.config, row, moves)
            if made.prompt is not None:
                made = replace(made, prompt=as_prompt(made.prompt, f"task {self.name!r}: respond()"))
        except (Exception, SystemExit) as error:  # untrusted text met the task's code
            fault = _fault(f"task {self.name}: the next turn", error)
            return Progress(tuple(moves), fault=fault.fault, why=fault.why)
        return made

    @cached_property
    def identity(self) -> str:
        """Hash of the spec, version, rows, prompts and the meaning of all that decides a score: 16 hex digits.

        What those functions call elsewhere is not seen; `Task.version` says that it changed.
        """
        task = self.task
        rewards = (spec.function for spec in self._reward_specs)
        parts = (task.prompt, task.validate, *rewards, task.compose, task.solved, self.opponent)
        meanings = [meaning_of(part) for part in parts]
        if task.respond is not None:
            meanings += [meaning_of(task.respond), str(task.max_turns)]
        return self._identity(b"".join(map(hashed, meanings)))

    def is_identified_by(self, identity: str) -> bool:
        """Whether an identity is this task's, now or in version 0.1, whose hash went by the text of the functions."""
        if identity == self.identity:
            return True
        sources = sources_of_0_1(self.name)
        return bool(sources) and identity == self._identity(sources)

    def _identity(self, functions: bytes) -> str:
        digest = hashlib.blake2b(digest_size=8)
        digest.update(b"".join(map(hashed, (self.name, self.task.version, self.config.model_dump_json()))))
        for spec in self._reward_specs:
            digest.update(hashed(f"{spec.name} {spec.weight} {spec.needs} {spec.maximum}"))
        digest.update(functions)
        for row in self._rows:
            digest.update(row.model_dump_json().encode())
            digest.update(orjson.dumps(self.prompt(row)))
        return digest.hexdigest()


def bind_config(task: Task, name: str, spec: TaskSpec) -> TaskConfig:
    """The options of a spec, validated.

    Raises:
        UserError: an option that the task does not have, or a value that does not fit.
    """
    fields = task.config.model_fields
    for option in spec.options:
        if option not in fields:
            raise UserError(
                f"task {name!r} has no option {option!r}.{near_match(option, fields)} "
                f"Options: {', '.join(sorted(fields))}"
            )
    try:
        config = task.config.model_validate_strings(spec.options)
    except ValidationError as error:
        raise UserError(f"task {name!r}: {first_problem(error)}") from None
    for option, value in config:
        if isinstance(value, int) and value.bit_length() >= 64:
            raise UserError(f"task {name!r}: option {option}: a whole number has at most 64 bits (given {value:.3e}).")
    return config


def first_problem(error: ValidationError) -> str:
    """The first problem of a pydantic error in one line: field, what is wrong, what was given."""
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"]) or "(the whole)"
    given = repr(problem.get("input"))
    return f"{where}: {problem['msg']} (given {given if len(given) <= 80 else given[:77] + '…'})"


def as_prompt(made: Any, who: str) -> Prompt:
    """Check what a prompt template made, and make lists of messages tuples.

    Raises:
        UserError: it is neither text nor a non-empty list of messages.
    """
    if isinstance(made, str):
        return made
    if (
        isinstance(made, Sequence)
        and made
        and all(
            isinstance(message, Mapping)
            and isinstance(message.get("role"), str)
            and isinstance(message.get("content"), str)
            for message in made
        )
    ):
        return tuple(Message(role=message["role"], content=message["content"]) for message in made)
    raise UserError(f"{who} must give text or a list of messages with role and content, not {made!r:.80}.")


def _one_line(text: str) -> str:
    return " ".join(text[: 4 * MAX_WHY_CHARS].split())[:MAX_WHY_CHARS]


class _Returned(Exception):
    """A function of the task returned what it must not; the message goes on after `returned`."""


def _number(value: Any, rule: str) -> float:
    """What a function returned, which may also be a number of numpy or torch; text is none, whatever it says."""
    _refuse_coroutine(value)
    if isinstance(value, str | bytes | bytearray):
        raise _Returned(f"the text {value[:40]!r}; {rule}")
    try:
        return float(value)
    except (TypeError, ValueError):  # ValueError: an array of several
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise _Returned(f"{kind}; {rule}") from None


def _refuse_coroutine(value: Any) -> None:
    if inspect.iscoroutine(value):
        value.close()  # nobody will await it
        raise _Returned("a coroutine; it is called without await: write def in place of async def")


def _fault(where: str, error: BaseException) -> Score:
    if isinstance(error, TimeoutError):
        return Score(None, why=_one_line(f"{where} ran out of time: {error}"), fault="timeout")
    if isinstance(error, InfrastructureError):
        return Score(None, why=_one_line(f"{where}: {error}"), fault="infrastructure")
    if isinstance(error, _Returned):
        return Score(None, why=_one_line(f"the task's {where} returned {error}"), fault="reward")
    return Score(
        None, why=_one_line(f"{where} raised {type(error).__name__} ({where_raised(error)}): {error}"), fault="reward"
    )
