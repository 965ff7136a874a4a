"""A task with its options bound: rows, prompts, scores, identity."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

from pydantic import ValidationError

from grpo_sdk.errors import DataError, UserError, near_match
from grpo_sdk.paths import file_digest
from grpo_sdk.task.calling import asked_for, call_by_name, errors_named, raised
from grpo_sdk.task.composition import value_bounds
from grpo_sdk.task.evaluation import EvaluationDefaults
from grpo_sdk.task.fingerprint import Fingerprint
from grpo_sdk.task.game import GameConfig, Move
from grpo_sdk.task.grading import Grader, fault_of, with_parts
from grpo_sdk.task.opponent import Opponent
from grpo_sdk.task.remote import ask_now, read_moves
from grpo_sdk.task.row import Prompt, Row, TaskConfig, as_prompt, first_problem, prompt_json
from grpo_sdk.task.rows import RowLoader, data_files
from grpo_sdk.task.score import Score, one_line
from grpo_sdk.task.spec import NAME, TaskSpec
from grpo_sdk.task.task import Task
from grpo_sdk.task.tools.calls import ToolTurn, read_tool_turns
from grpo_sdk.task.turns import TurnState, partner_of, remote_of, write_turns
from grpo_sdk.task.watching import calling


class BoundTask:
    """A task and its options.

    Attributes:
        task: The task under its options.
        name: `plugin.task`.
        label: What logs and reports call it: the spec's option `name`, else `name`.
        config: Validated options.
        spec: Spec with which `load_task` makes the same task in another process.
        rewards: The rewards with their marks, in order.
        is_object: Whether the spec names a `Task` object of this process, which others do not have.
        source: Text of the Python file that it is from; empty for a plugin's task and for an object.
    """

    def __init__(
        self, task: Task, name: str, config: TaskConfig, spec: TaskSpec, *, is_object: bool = False, source: str = ""
    ) -> None:
        self.name, self.config, self.is_object, self.source = name, config, is_object, source
        self._unspecialized, self._spec = task, spec
        self.task = task
        self.task = task = self._specialized()
        self.label = spec.options.get(NAME, name)
        self.rewards, self._loader = task.specs(), RowLoader(task, name, config)

    def __repr__(self) -> str:
        return f"BoundTask({self.spec!r})"

    @property
    def spec(self) -> str:
        """The spec with which `load_task` makes this task again."""
        return str(self._spec)

    @property
    def plugin(self) -> str | None:
        """The plugin that it comes from; None for a task of a file and for an object."""
        return None if self.is_object or ".py:" in self._spec.name else self.name.partition(".")[0]

    def with_options(self, **options: object) -> BoundTask:
        """The same task with some options changed; None returns an option to its default."""
        task, spec = self._unspecialized, self._spec.with_options(**options)
        config = bind_config(task, self.name, spec)
        return BoundTask(task, self.name, config, spec, is_object=self.is_object, source=self.source)

    def rows(self) -> list[Row]:
        """Every row of the configured split and size, loaded once.

        Raises:
            DataError: no row, a row of the wrong class, a repeated id, or a row that does not survive JSON.
        """
        return list(self._rows)

    @cached_property
    def _rows(self) -> tuple[Row, ...]:
        return self._loader.load(self.spec)

    def row_from_json(self, text: str | bytes) -> Row:
        """Read a row back.

        Raises:
            DataError: it does not fit the row class; names the field.
        """
        return self._loader.from_json(text)

    def prompt(self, row: Row) -> Prompt:
        """The prompt of a row: text, or a tuple of messages; what `prompt` raises becomes a `DataError`."""
        where = f"task {self.name!r}: prompt() of row {row.id!r}"
        with calling(f"prompt() of row {row.id!r} of {self.name}"), errors_named(where):
            prompt = call_by_name(self.task.prompt, {"row": row, "config": self.config}, positional=1)
        return as_prompt(prompt, where)

    def demos(self) -> Iterator[tuple[Prompt, str]]:
        """(prompt, completion) pairs for a warm start: `size` of the task's own, else each row with its gold.

        Raises:
            DataError: the task gives no demos, and rows have no gold, or one that is an episode with tools.
        """
        if self.task.demos is not None:
            demos = call_by_name(self.task.demos, {"config": self.config}, positional=1)
            yield from islice(demos, self.config.size)
            return
        for row in self._rows:
            if row.gold is None:
                raise DataError(f"task {self.name!r}: row {row.id!r} has no gold, and the task gives no demos=.")
            if self.task.has_tools and read_tool_turns(row.gold)[0] != (ToolTurn(row.gold),):
                raise DataError(
                    f"task {self.name!r}: the gold of row {row.id!r} is an episode, not what a policy writes. Give "
                    "demos= of prompts and turns, e.g. '<tool_call>{…}</tool_call>'."
                )
            yield self.prompt(row), row.gold

    @cached_property
    def opponent(self) -> Opponent | None:
        """The opponent under these options, which answers a prompt made from each valid answer.

        Raises:
            UserError: the task's function failed.
        """
        declared = self.task.opponent
        return declared if isinstance(declared, Opponent) else self._declared("opponent", Opponent, "an Opponent", None)

    @cached_property
    def grader(self) -> Grader:
        """What scores completions in this process."""
        return Grader(self.task, self.config, self.rewards, self.opponent, self.max_turns)

    def score(self, text: str, row: Row, predictions: Sequence[str] | None = None) -> Score:
        """Score one completion in this process; `Scorer` does it with a killable time limit.

        Never raises for what the text holds: a refusal is `valid=False`, a crash of the task's code abstains.

        Args:
            text: The completion, without the prompt and without special tokens.
            row: Row of the completion.
            predictions: The opponent's answers, for a task that has one.
        """
        parts: Mapping[str, float] = {}
        if self.task.remote is not None:
            moves = read_moves(text) if self.has_turns else (text,)
            try:
                reply = ask_now(lambda: remote_of(self.task, self.config), lambda remote: remote.reply(moves, row))
            except UserError:
                raise
            except Exception as error:  # whatever the server has made of untrusted text
                return fault_of("remote", error)
            text, parts = reply.text, reply.parts
        score = self.grader.grade(text, row, predictions)
        assert isinstance(score, Score)  # nothing waits for a judge where none can be asked
        return with_parts(score, parts) if parts else score

    def refuse(self, text: str, row: Row, why: str) -> Score:
        """Score a completion as `score` scores one that the validator refuses.

        Args:
            text: The completion.
            row: Row of the completion.
            why: Reason that the validator cannot know, e.g. that the completion is too long for the opponent.
        """
        return self.grader.refuse(text, row, f"invalid: {why}")

    def out_of_time(self, row: Row, why: str) -> Score:
        """Score a completion whose limit ran out, for the reason `why`, by the task's `on_timeout`.

        With `fail` it scores as an empty completion that the validator refused: the text took too long once, so no
        function of the task sees it again.
        """
        return self.grader.out_of_time(row, why)

    def answer(self, text: str, row: Row) -> str | None:
        """The validator's answer for a completion as Python writes it, shortened; None where it gives none."""
        try:
            return one_line(repr(self.grader.validated(text, row)))
        except (Exception, SystemExit):  # a refusal, or a crash that `score` meets too and reports
            return None

    def opponent_prompt(self, text: str, row: Row) -> Prompt | None:
        """The opponent's prompt for a completion, or None where the validator refuses it.

        A validator or prompt that crashes also gives None: `score` meets the same crash and attributes it.
        """
        return self.grader.opponent_prompt(text, row)

    @property
    def reward_bounds(self) -> tuple[float, float]:
        """The least and the greatest value of a completion; infinite where the task declares none.

        A part earns 0 to its maximum; the return of a game is between minus its maximum and its maximum, or that of an
        illegal move. A reward that returns less contradicts it, since only `maximum` is checked.
        """
        if self.task.game is None:
            return value_bounds(self.task.compose, self.rewards)
        assert isinstance(self.config, GameConfig)
        most = self.task.game.maximum
        return min(-most, self.config.illegal_reward, self.config.illegal_other), most

    @property
    def part_bounds(self) -> Mapping[str, tuple[float, float]]:
        """The same of the raw value of each reward that can be earned; of a game's, that is its return."""
        if self.task.game is not None:
            return {self.rewards[0].name: self.reward_bounds}
        counted = {"n_calls": (0.0, math.inf)} if self.task.has_tools else {}
        return counted | {spec.name: (0.0, spec.maximum) for spec in self.rewards if spec.is_criterion}

    @cached_property
    def conditions(self) -> Mapping[str, str]:
        """Properties of this machine that the scores depend on, by name; determined once in this process.

        Raises:
            UserError: the task's function failed.
        """
        texts: Mapping[str, str] = self._declared("conditions", Mapping, "text by name", {})
        if not all(isinstance(text, str) for pair in texts.items() for text in pair):
            raise self._misdeclared("conditions", "text by name", texts)
        return {name: one_line(text) for name, text in texts.items()}

    @cached_property
    def evaluation(self) -> EvaluationDefaults:
        """Settings of the task's evaluation where the user gives none.

        Raises:
            UserError: the task's function failed, or returned what is not allowed.
        """
        defaults: EvaluationDefaults = self._declared(
            "evaluation", EvaluationDefaults, "EvaluationDefaults", EvaluationDefaults()
        )
        return defaults

    @cached_property
    def max_turns(self) -> int:
        """Bound on the turns of a rollout under these options; raises `UserError` where the task's function fails."""
        declared = self.task.max_turns
        turns: int = (
            declared if isinstance(declared, int) else self._declared("max_turns", int, "a whole number from 1", 1)
        )
        if turns < 1:
            raise self._misdeclared("max_turns", "a whole number from 1", turns)
        return turns

    def scored_text(self, texts: Sequence[str]) -> str:
        """The text that is scored for a conversation: its last completion, or all where the validator takes them."""
        return write_turns(texts) if self.has_turns and self.task.validates_all_turns else texts[-1]

    @property
    def has_turns(self) -> bool:
        """Whether a rollout may have several turns."""
        follows = self.task.respond or self.task.remote
        return bool(self.task.game or self.task.has_tools) or (follows is not None and self.max_turns > 1)

    def next_turn(self, row: Row, moves: Sequence[Move]) -> TurnState:
        """The state of a rollout after some turns; a crash of the task's code is its `fault`."""
        try:
            state = partner_of(self.task, self.config, self.max_turns).follow(moves, row)
            if state.prompt is not None:
                state = replace(state, prompt=as_prompt(state.prompt, f"task {self.name!r}: respond()"))
        except (Exception, SystemExit) as error:  # untrusted text met the task's code
            fault = fault_of(f"task {self.name}: the next turn", error)
            return TurnState(tuple(moves), fault=fault.fault, why=fault.why)
        return state

    @cached_property
    def identity(self) -> str:
        """Hash of the spec, version, data and the meaning of all that decides a score: 16 hex digits.

        The data are the rows in use with their prompts, and the size and hash of the file that holds them. What those
        functions call elsewhere is not seen; `Task.version` says that it changed.
        """
        return self._fingerprint.identity

    @property
    def ingredients(self) -> Mapping[str, str]:
        """Hash of each part of the identity: `code`, `config` and `data`."""
        return self._fingerprint.ingredients

    def _specialized(self) -> Task:
        """The task under the options; see `Task.specialize`."""
        given = self.task
        task: Task = self._declared("specialize", Task, "a Task", given)
        if (task.name, task.config, task.specialize) != (given.name, given.config, None):
            raise UserError(
                f"task {self.name!r}: specialize() gave another task: name and config must be those of "
                "this one, and specialize None."
            )
        return task

    def _declared(self, declaration: str, kind: type, what: str, absent: Any) -> Any:
        """What a function gives by which the task declares something.

        Args:
            declaration: Name of the function.
            kind: Class of what it gives.
            what: The class, for messages.
            absent: What there is where the task has no such function.

        Raises:
            UserError: the function raises, or gives something else.
        """
        function = getattr(self.task, declaration)
        if function is None:
            return absent
        try:
            given = call_by_name(function, {"config": self.config, "task": self.task}, positional=1)
        except UserError as error:  # the task's own message to its user
            raise UserError(f"task {self.name!r}: {error}") from error
        except (Exception, SystemExit) as error:  # the task's code, called before a run: it names itself
            raise UserError(f"task {self.name!r}: {declaration}() {raised(error)}") from error
        if not isinstance(given, kind):
            raise self._misdeclared(declaration, what, given)
        return given

    def _misdeclared(self, declaration: str, what: str, given: Any) -> UserError:
        return UserError(f"task {self.name!r}: {declaration}() must give {what}, not {given!r:.80}.")

    @cached_property
    def _fingerprint(self) -> Fingerprint:
        return Fingerprint(self.task, self.name, self.config, self.rewards, self.opponent, lambda: _data(self))


def _data(bound: BoundTask) -> Iterator[bytes]:
    for file in data_files(bound.config):
        yield repr(file_digest(file)).encode()
    for row in bound.rows():
        yield row.model_dump_json().encode()
        yield prompt_json(bound.prompt(row), f"task {bound.name!r}: prompt() of row {row.id!r}")


def first_rows(bound: BoundTask, limit: int) -> tuple[Row, ...]:
    """The first of the rows that `BoundTask.rows` gives, at most `limit`; raises what it raises."""
    return bound._loader.load(bound.spec, limit)


def scores_by_config(bound: BoundTask) -> bool:
    """Whether scoring may depend on the task's options, the split and the size among them."""
    task = bound.task
    if bound._unspecialized.specialize or task.game or task.remote:
        return True
    functions = (function for function in (task.validate, task.solved, task.respond) if function is not None)
    arguments = [asked_for(function, ("config",)) for function in functions]
    arguments += [spec.arguments for spec in (*bound.rewards, *task.group_specs())]
    return any("config" in names for names in arguments)


def bind_config(task: Task, name: str, spec: TaskSpec) -> TaskConfig:
    """The options of a spec, validated.

    Raises:
        UserError: an option that the task does not have, or a value that does not fit.
    """
    fields = task.config.model_fields
    known = {*fields, NAME}
    for option in spec.options:
        if option not in known:
            raise UserError(
                f"task {name!r} has no option {option!r}.{near_match(option, known)} "
                f"Options: {', '.join(sorted(known))}"
            )
    if NAME not in fields and not re.fullmatch(r"[\w.-]+", spec.options.get(NAME, "_"), re.ASCII):
        raise UserError(
            f"task {name!r}: name={spec.options[NAME]!r:.80}: a name has letters, digits and any of _ . - only, as in "
            "name=capitals."
        )
    try:
        config = task.config.model_validate_strings({key: spec.options[key] for key in spec.options if key in fields})
    except ValidationError as error:
        raise UserError(f"task {name!r}: {first_problem(error)}{_hint(name, spec, error)}") from None
    for option, value in config:
        if isinstance(value, int) and value.bit_length() >= 64:
            raise UserError(f"task {name!r}: option {option}: a whole number has at most 64 bits (given {value:.3e}).")
    return config


def _hint(name: str, spec: TaskSpec, error: ValidationError) -> str:
    """What an option that does not fit may have been meant as."""
    if error.errors()[0]["type"] in ("list_type", "tuple_type", "set_type"):
        return ". A task that takes several values here declares the option as grpo_sdk.data.CommaSeparated[…]"
    _, colon, weight = next(reversed(spec.options.values()), "").rpartition(":")
    is_weight = colon and re.fullmatch(r"[0-9.]+", weight)
    return f". A weight stands before the options: {name}:{weight}?…" if is_weight else ""
