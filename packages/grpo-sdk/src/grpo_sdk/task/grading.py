"""From a completion to its score: validator, opponent, rewards, composition, and whose fault it is where that fails."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from grpo_sdk.distributions import missing
from grpo_sdk.errors import InfrastructureError
from grpo_sdk.task.calling import BOUNDS, LARGEST_REWARD, call_by_name, raised
from grpo_sdk.task.composition import RewardSpec
from grpo_sdk.task.judging import Graded, JudgedReward, JudgeQuestion, Pending, TooLong, question_of, told
from grpo_sdk.task.opponent import Opponent
from grpo_sdk.task.row import Prompt, Row, TaskConfig, as_prompt
from grpo_sdk.task.score import TOOLS, Fault, Invalid, Score, one_line
from grpo_sdk.task.task import Task
from grpo_sdk.task.tools.calls import call_facts, read_tool_turns
from grpo_sdk.task.tools.session import Session, where_of
from grpo_sdk.task.tools.tool import ToolFault
from grpo_sdk.task.turns import Toolbox, read_turns


class Grader:
    """Applies a task's functions to completions. What the functions raise is caught and attributed.

    Args:
        task: The task.
        config: Its options.
        specs: Its rewards, in order.
        opponent: The opponent, for a task that has one.
        max_turns: Bound on the turns of a rollout.
    """

    def __init__(
        self, task: Task, config: TaskConfig, specs: Sequence[RewardSpec], opponent: Opponent | None, max_turns: int
    ) -> None:
        self._max_turns, self._reads_turns = max_turns, max_turns > 1 and task.validates_all_turns
        self._task, self._config, self._specs, self._opponent = task, config, specs, opponent
        by_name = {spec.name: spec for spec in specs}
        self._needed = {spec.name: by_name[spec.needs] for spec in specs if spec.needs is not None}

    def grade(
        self,
        text: str,
        row: Row,
        predictions: Sequence[str] | None = None,
        known: Mapping[str, float] | None = None,
        *,
        refused: str = "",
        session: Session | None = None,
    ) -> Graded:
        """Score one completion, or say what judges must be asked before it has a score.

        Args:
            text: The completion.
            row: Row of the completion.
            predictions: The opponent's answers, for a task that has one.
            known: Raw values of rewards that are known already, e.g. verdicts; None where no judge can be asked.
            refused: Why the completion is invalid, in place of asking the validator.
            session: The episode's tools, in the state at its end; None makes them anew and repeats the calls.
        """
        try:
            with self._given(text, row, predictions, session) as (given, shown, problem):
                if problem:
                    refused = refused or f"invalid: {problem}"
                graded = self._graded(given, shown, row, known, refused)
        except (Exception, SystemExit) as error:  # the task's tools met what the policy wrote
            return fault_of(f"repeating the calls: {where_of(error, '')}".rstrip(), error)
        if session is not None and isinstance(graded, Score):
            graded.seconds[TOOLS] = sum(session.times)
        return graded

    def _graded(
        self, given: Mapping[str, Any], shown: str, row: Row, known: Mapping[str, float] | None, refused: str
    ) -> Graded:
        """The score of what the task's functions may ask for, and judges are shown."""
        answer, valid, why = None, not refused, refused
        parts: dict[str, float] = {}
        seconds: dict[str, float] = {}
        questions: dict[str, JudgeQuestion] = {}
        waiting: set[str] = set()
        where = "validate()"
        try:
            if valid:
                started = time.perf_counter()
                try:
                    answer = self._validated(given)
                    if self._opponent is not None and not given["predictions"]:
                        where = "opponent prompt"  # its crash may be why there are no predictions
                        self._ask_opponent(answer, row)
                except Invalid as refusal:
                    valid, why = False, f"invalid: {refusal}"
                seconds["validate"] = time.perf_counter() - started
            for spec in self._specs:
                where = f"reward {spec.name}()"
                started = time.perf_counter()
                if known and spec.name in known:
                    parts[spec.name] = known[spec.name]
                    continue
                if spec.needs in waiting:
                    waiting.add(spec.name)
                elif not self._is_asked(spec, parts, valid):
                    parts[spec.name] = 0.0
                elif known is not None and isinstance(spec.function, JudgedReward):
                    of = {"row": row, "config": self._config}
                    questions[spec.name] = question_of(spec.function, self._task.prompt, [shown], [answer], of)
                    waiting.add(spec.name)
                else:
                    arguments = {name: answer if name == "answer" else given[name] for name in spec.arguments}
                    parts[spec.name] = raw_of(spec, spec.function(**arguments))
                seconds[spec.name] = time.perf_counter() - started
            if questions:
                return Pending(parts, questions)
            where = "compose/solved"
            value = reward_of(self._task.compose(self._specs, parts, valid), "a composed reward")
            solved = valid and self._is_solved({**given, "answer": answer, "parts": parts})
        except (Exception, SystemExit) as error:  # the task's code met untrusted text: its crash is data, not ours
            fault = fault_of(where, error)
            return self.out_of_time(row, fault.why) if fault.fault == "timeout" and not refused else fault
        if self._task.has_tools:
            parts = {**parts, **call_facts(given["calls"]), **parts}
        return Score(value, parts, valid, solved, one_line(why or _shortfall(self._specs, parts)), seconds=seconds)

    def refuse(self, text: str, row: Row, why: str) -> Score:
        """See `BoundTask.refuse`."""
        score = self.grade(text, row, (), refused=why)
        assert isinstance(score, Score)  # judges are not asked about what is invalid
        return score

    def out_of_time(self, row: Row, why: str) -> Score:
        """See `BoundTask.out_of_time`."""
        if self._task.on_timeout == "abstain":
            return Score(None, why=one_line(why), fault="timeout")
        return self.refuse("", row, why)

    def opponent_prompt(self, text: str, row: Row) -> Prompt | None:
        """See `BoundTask.opponent_prompt`."""
        try:
            return self._ask_opponent(self.validated(text, row), row)
        except (Exception, SystemExit):  # untrusted text met the task's code; `score` meets it too and reports it
            return None

    def validated(self, text: str, row: Row) -> Any:
        """Return what the validator makes of a completion; raises `Invalid` where it refuses it."""
        with self._given(text, row) as (given, _, problem):
            if problem:
                raise Invalid(problem)
            return self._validated(given)

    @contextmanager
    def _given(
        self, text: str, row: Row, predictions: Sequence[str] | None = None, live: Session | None = None
    ) -> Iterator[tuple[dict[str, Any], str, str]]:
        """What the task's functions may ask for about a completion, what judges are shown, and the turn's problem.

        The tools of a task that has any are those of the episode that are still there, or new ones for the block.
        """
        if not self._task.has_tools:
            texts = read_turns(text) if self._reads_turns else (text,)
            given = {"text": texts[-1], "row": row, "config": self._config, "texts": texts}
            if self._opponent is not None:
                given["predictions"] = tuple(predictions or ())
            yield given, texts[-1], ""
            return
        session = live or Session(self._task, self._config, row)
        try:
            turns, has_results = read_tool_turns(text)
            if live is None:
                played = Toolbox(self._task, self._config, self._max_turns).played(turns)
                turns = tuple(session.repeat(played, compares=has_results))
            times = iter(session.times)  # which no text holds
            calls = (call for turn in turns for call in turn.calls)
            given = {
                "text": turns[-1].text,
                "row": row,
                "config": self._config,
                "texts": tuple(turn.text for turn in turns),
                "calls": tuple(replace(call, seconds=next(times, 0.0)) if call.ran else call for call in calls),
                "environment": session.environment,
                "turns": turns,
            }
            yield given, told(turns, session.opening), turns[-1].problem
        finally:
            if live is None:
                session.close_safely()

    def _validated(self, given: Mapping[str, Any]) -> Any:
        answer = call_by_name(self._task.validate, given, positional=2)
        if isinstance(answer, Invalid) or answer is Invalid:
            raise Returned("Invalid; what holds no answer is refused by raise Invalid(reason)")
        if inspect.iscoroutine(answer):
            raise _unawaited(answer)
        return answer

    def _is_asked(self, spec: RewardSpec, parts: Mapping[str, float], valid: bool) -> bool:
        """Whether a reward may be more than 0: the one that it needs is at its maximum, and what it takes is there."""
        needed = self._needed.get(spec.name)
        if needed is not None and not needed.reached_by(parts[needed.name]):
            return False
        return valid or not {"answer", "predictions"}.intersection(spec.arguments)

    def _is_solved(self, available: Mapping[str, Any]) -> bool:
        if self._task.solved is not None:
            names = ("answer", "row", "text", "parts", "config", "calls", "environment")
            customary = {name: available[name] for name in names if name in available}
            solved = call_by_name(self._task.solved, customary, positional=2)
            if inspect.iscoroutine(solved):
                raise _unawaited(solved)
            if isinstance(solved, str):
                raise Returned(f"the text {solved[:40]!r}; solved is True or False")
            return bool(solved)
        earned = [spec for spec in self._specs if spec.is_criterion]
        return bool(earned) and all(spec.reached_by(available["parts"][spec.name]) for spec in earned)

    def _ask_opponent(self, answer: Any, row: Row) -> Prompt:
        assert self._opponent is not None
        available = {"answer": answer, "row": row, "config": self._config}
        return as_prompt(call_by_name(self._opponent.prompt, available, positional=1), "opponent prompt")


def _shortfall(specs: Sequence[RewardSpec], parts: Mapping[str, float]) -> str:
    texts = []
    for spec in specs:
        part = parts[spec.name]
        if spec.weight < 0 and part > 0:
            texts.append(f"{spec.name} {part:.3g}, a penalty")
        elif spec.weight > 0 and not spec.reached_by(part):
            texts.append(f"{spec.name} {part:.3g} of {spec.maximum:g}")
    return ", ".join(texts)


def with_parts(score: Score, parts: Mapping[str, float]) -> Score:
    """A score with what a server names recorded beside the task's own parts."""
    return score if score.abstained else replace(score, parts={**parts, **score.parts})


class Returned(Exception):
    """A function of the task returned what it must not; the message goes on after `returned`."""


def raw_of(spec: RewardSpec, value: Any, mark: str = "reward") -> float:
    """Convert what a reward returned to its raw value, as `reward_of`.

    Args:
        spec: The reward.
        value: What it returned.
        mark: Name of its decorator, for the message.

    Raises:
        Returned: it is none, or above the reward's maximum.
    """
    raw = reward_of(value)
    if not spec.is_fact and raw > spec.maximum + 1e-6 * max(1.0, abs(spec.maximum)):
        raise Returned(f"{raw}, above its maximum {spec.maximum}; state it: @{mark}(…, maximum={raw:g})")
    return raw


def reward_of(value: Any, what: str = "a reward") -> float:
    """Convert a function's result, which may also be a number of numpy or torch; text is never a number.

    Args:
        value: The result.
        what: What it is, for the message.

    Raises:
        Returned: it is none, not finite, or beyond `LARGEST_REWARD`.
    """
    if inspect.iscoroutine(value):
        raise _unawaited(value)
    if isinstance(value, str | bytes | bytearray):
        raise Returned(f"the text {value[:40]!r}; {what} is a number")
    try:
        converted = float(value)
    except OverflowError:  # an int above 1.8e308
        raise Returned(f"a number beyond the range of a float; {what} is a finite number") from None
    except (TypeError, ValueError):  # ValueError: an array of several
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise Returned(f"{kind}; {what} is a number") from None
    if not math.isfinite(converted):
        raise Returned(f"{converted}; {what} is a finite number")
    if abs(converted) > LARGEST_REWARD:
        raise Returned(f"{converted:g}; {what} is {BOUNDS}")
    return converted


def _unawaited(coroutine: Coroutine[Any, Any, Any]) -> Returned:
    coroutine.close()  # nobody will await it
    return Returned("a coroutine; it is called without await: write def in place of async def")


def fault_of(where: str, error: BaseException) -> Score:
    """The score of a completion that the task's code raised an exception on.

    Args:
        where: What was called, as messages name it.
        error: What it raised.
    """
    if isinstance(error, TooLong):
        return Score(None, why=one_line(str(error)), fault="timeout")
    if isinstance(error, TimeoutError):
        return Score(None, why=one_line(f"{where} ran out of time: {error}"), fault="timeout")
    if isinstance(error, InfrastructureError):
        return Score(None, why=one_line(f"{where}: {error}"), fault="infrastructure")
    if isinstance(error, ToolFault):
        return Score(None, why=one_line(f"{where} {error}"), fault="reward")
    if isinstance(error, Returned):
        return Score(None, why=one_line(f"the task's {where} returned {error}"), fault="reward")
    advice = "; a worker's memory limit is scoring.memory_mib" if isinstance(error, MemoryError) else ""
    fault: Fault = "infrastructure" if missing(error) else "reward"
    return Score(None, why=one_line(f"{where} {raised(error)}{advice}"), fault=fault)
