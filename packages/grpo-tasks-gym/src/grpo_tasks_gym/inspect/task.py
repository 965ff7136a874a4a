"""A task of inspect-ai in this process: its samples as rows, its prompts, its scorers.

The prompt of a sample is what the task's solvers show the model when they first call `generate`. To score a completion
the solvers run again, with the completion as the model's output, and then the scorers. Read in inspect-ai 0.3.285.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import orjson
from inspect_ai import Task
from inspect_ai._eval.task.run import resolve_plan
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, Target

from grpo_sdk import Message, ToolTurn, UserError
from grpo_tasks_gym.foreign.source import Description, ForeignReward, ForeignTool, NoVerdict, Record, identifier
from grpo_tasks_gym.inspect.episode import Episode
from grpo_tasks_gym.inspect.loading import load
from grpo_tasks_gym.inspect.solving import Answered, NeedsTools, Unsupported, run
from grpo_tasks_gym.inspect.values import numbers, parts_of

TRIED = 4
"""Samples of which targets are tried, so that one faulty target does not take the golds of all rows."""

FORMS = ("{}", "ANSWER: {}")
"""How a target is written as a completion: alone, and as multiple_choice() of inspect-ai asks for it."""


def open_task(target: Mapping[str, str], args: Mapping[str, Any]) -> InspectTask:
    """Load the task; its code runs.

    Raises:
        UserError: there is no such task, or it is one that cannot be used; says why.
    """
    task, version = load(target["file"], target["name"], args)
    return InspectTask(task, version)


class InspectTask:
    """A task of inspect-ai; see `ForeignTask`.

    Args:
        task: The task.
        version: What its scores depend on.

    Raises:
        UserError: it needs what a single completion does not have.
    """

    def __init__(self, task: Task, version: str) -> None:
        _check(task)
        self._task, self._version = task, version
        self._plan = resolve_plan(task, None)
        self._scorers: Sequence[Any] = task.scorer or []

    def describe(self) -> Description:
        """Rewards, and what inspect-ai would do differently."""
        config = self._task.config
        return Description(
            self._version,
            tuple(ForeignReward(name) for names in self._parts for name in names.values()),
            tuple(self._unused()),
            tuple(config.stop_seqs or ()),
            config.max_tokens,
            self._no_gold(),
            self._tools,
        )

    def records(self) -> Iterator[Record]:
        """The samples, each with the prompt that the solvers show."""
        form = self._gold_form
        for number, sample in enumerate(self._task.dataset):
            _check_sample(sample, number)
            try:
                prompt = self._run(sample).prompt
            except Unsupported as error:
                raise UserError(f"sample {number + 1}: {error}") from None
            gold = None if form is None or not _target_text(sample) else form.format(_target_text(sample))
            yield Record(None if sample.id is None else str(sample.id), prompt, _plain(sample), gold=gold)

    def score(self, prompt: str | list[Message], data: Any, text: str) -> Mapping[str, float]:
        """Value of every reward; see `ForeignTask.score`."""
        sample = Sample.model_validate(data)
        try:
            answered = self._run(sample, text)
        except Unsupported as error:
            raise NoVerdict(str(error)) from None
        if answered.prompt != prompt:
            raise NoVerdict("the solvers show another prompt than before, so that no score is sure")
        return numbers(answered.scores, self._parts)

    def begin(self, prompt: str | list[Message], data: Any) -> Episode:
        """Begin an episode; see `ForeignTask.begin`."""
        episode = self._episode(Sample.model_validate(data))
        if episode.prompt != prompt:
            episode.close()
            raise NoVerdict("the solvers show another prompt than before, so that no score is sure")
        return episode

    def _run(self, sample: Sample, text: str | None = None) -> Answered:
        """Run the solvers as `run` does."""
        if not self._tools:
            with _drawing(sample):
                return asyncio.run(run(self._task, self._plan, sample, text))
        episode = self._episode(sample)
        try:
            return Answered(episode.prompt) if text is None else episode.answered([ToolTurn(text)])
        finally:
            episode.close()

    def _episode(self, sample: Sample, tools: tuple[ForeignTool, ...] | None = None) -> Episode:
        """An episode of a sample, which shows the tools of the task."""
        expected = self._tools if tools is None else tools
        with _drawing(sample):
            return Episode(self._task, self._plan, sample, expected, lambda scores: numbers(scores, self._parts))

    @cached_property
    def _tools(self) -> tuple[ForeignTool, ...]:
        """The tools that the solvers give the model on the first sample."""
        for sample in self._task.dataset[:1]:
            _check_sample(sample, 0)
            try:
                with _drawing(sample):
                    asyncio.run(run(self._task, self._plan, sample))
            except NeedsTools:
                episode = self._episode(sample, ())
                episode.close()
                return episode.tools
            except Unsupported:  # whoever needs the prompt is told
                break
        return ()

    @cached_property
    def _trials(self) -> dict[str, Answered]:
        """Scores of targets as completions, by how they are written, of the first sample of which one earns all."""
        samples = self._task.dataset[:TRIED]
        if not len(samples):
            raise UserError("its dataset has no samples.")
        for number, sample in enumerate(samples):
            _check_sample(sample, number)
        first: dict[str, Answered] = {}
        try:
            if self._run(samples[0]).prompt != self._run(samples[0]).prompt:
                raise UserError("its solvers show another prompt each time; give their shuffle a seed.")
            for sample in samples:
                trials = {}
                for form in FORMS:
                    with suppress(NoVerdict, ValueError):  # on this text; whoever scores a completion is told why
                        trials[form] = trial = self._run(sample, form.format(_target_text(sample)))
                        if _earns_all(trial, self._named(trial.scores)):
                            return trials  # a scorer may fail on what is wrong
                first = first or trials
        except Unsupported as error:
            raise UserError(str(error)) from None
        return first

    @cached_property
    def _parts(self) -> list[dict[str, str]]:
        """Of each scorer: key of its value -> name of the reward; the key of a plain value is empty."""
        return self._named(next((trial.scores for trial in self._trials.values()), [None] * len(self._scorers)))

    def _named(self, values: Sequence[Score | None]) -> list[dict[str, str]]:
        taken: list[str] = []
        parts = []
        for scorer, score in zip(self._scorers, values, strict=True):
            keys = {key: identifier(name, taken) for key, name in parts_of(scorer, score)}
            for name in keys.values():
                taken.append(name)
            parts.append(keys)
        return parts

    @cached_property
    def _gold_form(self) -> str | None:
        """How a target is written so that it earns the maximum; None where it does not."""
        return next((form for form, trial in self._trials.items() if _earns_all(trial, self._parts)), None)

    def _no_gold(self) -> str:
        """Why no target is known to earn the maximum; empty where one does, or none has a verdict."""
        if self._gold_form is not None or not self._trials:
            return ""
        values = [_values(trial, self._parts) for trial in self._trials.values()]
        tried = f"of the first {TRIED} samples" if len(self._task.dataset) > TRIED else "of any sample"
        return (
            f"no target {tried} earns the maximum, alone or behind ANSWER: (the first: {' and '.join(values)}), so no "
            "row has a gold; correct the targets or the scorer, unless an answer has another form"
        )

    def _unused(self) -> Iterator[str]:
        task, config = self._task, self._task.config
        if (task.epochs or 1) > 1:
            yield f"{task.epochs} epochs with their reducer"
        used = ("stop_seqs", "max_tokens", "system_message")
        yield from (f"{name}={value}" for name, value in config.model_dump(exclude_none=True, exclude={*used}).items())
        if task.metrics:
            yield "metrics"


@contextmanager
def _drawing(sample: Sample) -> Iterator[None]:
    """What is drawn from `random` in the block depends on the sample alone."""
    state = random.getstate()
    random.seed(orjson.dumps(_plain(sample)))
    try:
        yield
    finally:
        random.setstate(state)


def _values(trial: Answered, parts: Sequence[Mapping[str, str]]) -> str:
    try:
        return ", ".join(f"{name} {value:g}" for name, value in numbers(trial.scores, parts).items())
    except NoVerdict as error:
        return f"no score: {error}"


def _earns_all(trial: Answered, parts: Sequence[Mapping[str, str]]) -> bool:
    try:
        return all(value >= 1 for value in numbers(trial.scores, parts).values())
    except NoVerdict:
        return False


def _check(task: Task) -> None:
    if task.sample_source is not None:
        raise UserError("it makes its samples while it runs (SampleSource); use a task with a dataset.")
    if task.sandbox is not None:
        raise UserError(f"it needs a sandbox ({task.sandbox.type}), which a scored completion does not have.")
    if task.approval:
        raise UserError("its calls wait for approval (approval=), e.g. by a human; take that out.")
    if not task.scorer:
        raise UserError("it has no scorer, so that nothing can be learned from it; give it scorer=.")


def _check_sample(sample: Sample, number: int) -> None:
    for need in ("sandbox", "files", "setup"):
        if getattr(sample, need):
            raise UserError(f"sample {number + 1} needs a sandbox ({need}), which a scored completion does not have.")


def _target_text(sample: Sample) -> str:
    target = Target(sample.target)
    return ", ".join(target) if sample.choices else target[0] if len(target) else ""


def _plain(sample: Sample) -> Any:
    """The sample as JSON values, without the ids of its messages, which are drawn when they are made."""
    without: Any = {"input": {"__all__": {"id"}}} if isinstance(sample.input, list) else None
    return sample.model_dump(mode="json", exclude_none=True, exclude=without)
