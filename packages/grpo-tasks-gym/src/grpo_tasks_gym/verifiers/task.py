"""A taskset of verifiers in this process: its tasks as rows, scored by their rewards without a runtime.

A completion is an answer of the model, as verifiers' harness `null` would ask for it, with the tools of the taskset.
Read in verifiers 0.4.0.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import ValidationError
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.dialects import parse_message
from verifiers.v1.graph import MessageNode
from verifiers.v1.state import state_cls
from verifiers.v1.trace import AgentInfo, ModelCall, Trace, TraceTask
from verifiers.v1.types import AssistantMessage, ToolCall, ToolMessage
from verifiers.v1.utils.decorators import discover_decorated
from verifiers.v1.utils.loaders import _plugin_class, import_taskset, taskset_class, taskset_config_type

from grpo_sdk import Message, ToolTurn, UserError
from grpo_tasks_gym.foreign.source import (
    MAX_REWARDS,
    Description,
    ForeignReward,
    ForeignTool,
    NoVerdict,
    Record,
    identifier,
    package_files,
    version_of,
    written,
)
from grpo_tasks_gym.verifiers.episode import Episode

ROLES = ("system", "user", "assistant")


def toolsets_of(taskset: Any, config: Any) -> list[Any]:
    """The toolsets of a taskset, those that its episodes share first."""
    return [*taskset.toolsets(config), *taskset.task_type().toolsets(config.task)]


def check_taskset(name: str, taskset: type, config: Any) -> None:
    """Refuse a taskset that needs more than completions and its tools.

    Raises:
        UserError: it does; says what.
    """
    kind = taskset.task_type()  # type: ignore[attr-defined] # a Taskset
    for toolset in toolsets_of(taskset, config):
        if toolset.config.url:
            raise UserError(f"taskset {name}: its tools are at {toolset.config.url}, which all episodes would share.")
        if toolset.config.runtime.type != "subprocess":
            raise UserError(f"taskset {name}: its tools need a container (runtime {toolset.config.runtime.type}).")
    if kind.NEEDS_CONTAINER:
        raise UserError(f"taskset {name} needs a container; a task must need one completion alone.")
    for base in (vf.Env, vf.Harness):
        if _exports(name, base):
            raise UserError(
                f"taskset {name} has {base.__name__.lower()} of its own, which talks to the model in its way; "
                "a task must need one completion alone."
            )
    for hook in ("setup", "finalize"):
        if getattr(kind, hook) is not getattr(vf.Task, hook):
            raise UserError(f"taskset {name}: {kind.__name__}.{hook}() needs a runtime, which a completion has not.")


def check_task(task: Any, *, has_tools: bool) -> None:
    """Refuse a task that needs more than completions and its tools, or has nothing to score them by.

    Raises:
        UserError: it does; says what.
    """
    if task.data.image is not None:
        raise UserError(f"it needs a container (image {task.data.image}); a task must need one completion alone.")
    if task.data.prompt is None:
        raise UserError("it has no prompt: its user begins the conversation; a task must need one completion alone.")
    rewards = task.hooks("reward")
    for hook in (*rewards, *(judge.score for judge in task.plugged_judges())):
        if needs_runtime(hook):
            raise UserError(f"its reward {hook.__name__} needs a runtime, which a completion has not.")
    if not rewards and not task.plugged_judges():
        raise UserError("it has no @vf.reward, so that nothing can be learned from it.")
    if has_tools and (stops := task.hooks("stop")):
        raise UserError(f"it ends conversations (@vf.stop {stops[0].__name__}), which only verifiers can do.")
    if discover_decorated(task, "intercept"):
        raise UserError("it changes what the model is asked (@vf.intercept), which only verifiers can do.")
    if not isinstance(task.data.prompt, str):
        for message in task.data.prompt:
            text_of(message)


def needs_runtime(hook: Callable[..., Any]) -> bool:
    """Whether a function cannot be called without a runtime."""
    runtime = inspect.signature(hook).parameters.get("runtime")
    return runtime is not None and runtime.default is inspect.Parameter.empty


def text_of(message: Any) -> str:
    """The text of a message.

    Raises:
        UserError: it is of another role, or has more than text.
    """
    if message.role not in ROLES:
        raise UserError(f"its prompt has a message of role {message.role}; {', '.join(ROLES)} can be used.")
    if isinstance(message.content, str):
        return message.content
    kinds = {part.type for part in message.content or ()}
    if kinds - {"text"}:
        raise UserError(f"its prompt has {', '.join(sorted(kinds - {'text'}))}; text alone can be used.")
    return "".join(part.text for part in message.content or ())


def _exports(name: str, base: type) -> bool:
    try:
        _plugin_class(import_taskset(name), base, base.__name__.lower())
    except TypeError:  # as verifiers says that there is none
        return False
    return True


GOLD_FORMS = ("{}", "\\boxed{{{}}}", "<answer>{}</answer>")
"""How answers are usually written."""

GOLD_FIELDS = ("answer", "gold", "target", "solution", "ground_truth", "label")
"""Fields of a task's data that usually hold the answer."""


def open_taskset(target: Mapping[str, str], args: Mapping[str, Any]) -> VerifiersTaskset:
    """Load a taskset; its code runs.

    Raises:
        UserError: it is none, its configuration refuses the arguments, or it cannot be used; says why.
    """
    name = target["taskset"]
    try:
        found = taskset_class(name)
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"the package {name} has no taskset that can be used: {error}") from None
    kind = taskset_config_type(name)
    for field in args:
        if field not in kind.model_fields:
            near = get_close_matches(field, kind.model_fields, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            known = ", ".join(sorted(set(kind.model_fields) - {"id"}))
            raise UserError(f"taskset {name} has no field {field!r}.{hint} Its configuration has: {known}.")
    try:
        config = kind.model_validate({**args, "id": name})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(f"taskset {name}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
    check_taskset(name, found, config)
    return VerifiersTaskset(name, found(config))


class VerifiersTaskset:
    """A taskset of verifiers; see `ForeignTask`.

    Args:
        name: Its name.
        taskset: The taskset.
    """

    def __init__(self, name: str, taskset: Any) -> None:
        self._name, self._taskset = name, taskset

    def describe(self) -> Description:
        """Rewards and metrics by name, and what verifiers would do differently."""
        rewards = [ForeignReward(name, weight) for name, weight in self._parts.values()]
        return Description(self._version, tuple(rewards), tuple(self._unused()), tools=self._tools)

    def records(self) -> Iterator[Record]:
        """The tasks, in the order of the taskset."""
        gold = self._gold
        for number, task in enumerate(self._taskset):
            try:
                check_task(task, has_tools=bool(self._toolsets()))
                prompt = _prompt(task.data)
            except UserError as error:
                raise UserError(f"task {number + 1}: {error}") from None
            # Its place is no part of it: it changes with what comes before.
            data = task.data.model_dump(mode="json", exclude_none=True, exclude_defaults=True, exclude={"idx"})
            name = task.data.id or task.data.name
            yield Record(name, prompt, data, gold=None if gold is None else _written(task.data, gold))

    def score(self, prompt: str | list[Message], data: Any, text: str) -> Mapping[str, float]:
        """Value of every reward; see `ForeignTask.score`."""
        return self._numbers(self._scored(self._task(data), text))

    def begin(self, prompt: str | list[Message], data: Any) -> Episode:
        """Begin an episode; see `ForeignTask.begin`."""
        task = self._task(data)

        def scored(turns: Sequence[ToolTurn], state: Any) -> Mapping[str, float]:
            return self._numbers(_score(task, _trace(task, turns, state)))

        return Episode(self._toolsets(), task, scored)

    def _task(self, data: Any) -> Any:
        kind = type(self._first)
        return kind(kind.data_type().model_validate(data), self._first.config)

    def _toolsets(self) -> list[tuple[Any, bool]]:
        """New toolsets, each with whether all episodes share it."""
        kind, config = type(self._taskset), self._taskset.config
        shared = len(kind.toolsets(config))
        return [(toolset, number < shared) for number, toolset in enumerate(toolsets_of(kind, config))]

    @cached_property
    def _tools(self) -> tuple[ForeignTool, ...]:
        if not (toolsets := self._toolsets()):
            return ()
        episode = Episode(toolsets, self._first, lambda turns, state: {})
        try:
            return episode.listed()
        finally:
            episode.close()

    def _numbers(self, trace: Trace) -> dict[str, float]:
        values: dict[str, float | None] = {f"metric/{name}": value for name, value in trace.metrics.items()}
        values |= {name: None if reward is None else reward.score for name, reward in trace.rewards.items()}
        if unknown := set(values) ^ set(self._parts):
            names = ", ".join(sorted(name.removeprefix("metric/") for name in unknown))
            raise NoVerdict(f"the task scored {names} of one completion and not of another; it must do so of all")
        numbers = {}
        for key, (name, _) in self._parts.items():
            value = values[key]
            if value is None or not math.isfinite(value):
                raise NoVerdict(f"{name} is {value}, which is no verdict")
            numbers[name] = value
        return numbers

    def _scored(self, task: Any, text: str) -> Trace:
        return _score(task, _trace(task, [ToolTurn(text)], state_cls(type(task))()))

    @cached_property
    def _first(self) -> Any:
        for task in islice(self._taskset, 1):
            check_task(task, has_tools=bool(self._toolsets()))
            return task
        raise UserError("its taskset has no tasks.")

    @cached_property
    def _trials(self) -> dict[tuple[str, str], Trace]:
        """Traces of the first task with its answer as the completion, by field and form, until one earns all."""
        fields = [field for field in GOLD_FIELDS if _answer(self._first.data, field)]
        trials: dict[tuple[str, str], Trace] = {}
        for field, form in [(field, form) for field in fields for form in GOLD_FORMS] or [("", "")]:
            try:
                trials[field, form] = trace = self._scored(self._first, _written(self._first.data, (field, form)) or "")
                if field and _earns_all(trace):
                    break  # a reward may fail on what is wrong
            except NoVerdict:  # on this text; whoever scores a completion is told why
                continue
        return trials

    @cached_property
    def _parts(self) -> dict[str, tuple[str, float]]:
        """Key in the trace -> (name, weight): the rewards, and the metrics with weight 0."""
        trace = next(iter(self._trials.values()), None)
        if trace is not None:
            weights = {name: 1.0 if each is None else each.weight for name, each in trace.rewards.items()}
            keys = [*weights.items(), *((f"metric/{name}", 0.0) for name in trace.metrics)]
        else:
            task = self._first
            rewards = [(hook.__name__, getattr(hook, "_vf_weight", 1.0)) for hook in task.hooks("reward")]
            judges = [(judge.reward_name, judge.config.weight) for judge in task.plugged_judges()]
            metrics = [hook for hook in task.hooks("metric") if not needs_runtime(hook)]
            keys = [*rewards, *judges, *((f"metric/{hook.__name__}", 0.0) for hook in metrics)]
        if len(keys) > MAX_REWARDS:
            raise UserError(f"it has {len(keys)} rewards and metrics; at most {MAX_REWARDS} can be used.")
        parts: dict[str, tuple[str, float]] = {}
        for key, weight in keys:
            name = identifier(key.removeprefix("metric/"), [taken for taken, _ in parts.values()])
            parts[key] = (name, weight)
        return parts

    @cached_property
    def _gold(self) -> tuple[str, str] | None:
        """Field and form of an answer that earns the maximum; None where none does."""
        return next((how for how, trace in self._trials.items() if how[0] and _earns_all(trace)), None)

    @cached_property
    def _version(self) -> str:
        module = __import__(self._name)
        folders = [Path(folder) for folder in getattr(module, "__path__", ())]
        files = [file for folder in folders for file in package_files(folder)] or [Path(str(module.__file__))]
        return version_of(f"verifiers {metadata.version('verifiers')}", files)

    def _unused(self) -> Iterator[str]:
        runtime = [hook.__name__ for hook in self._first.hooks("metric") if needs_runtime(hook)]
        if runtime:
            yield f"metrics that need a runtime ({', '.join(runtime)})"
        kinds = "calls tools in verifiers' way" if self._tools else "gives one answer without tools"
        yield f"the harness: the model {kinds}"


def _earns_all(trace: Trace) -> bool:
    rewards = [each for each in trace.rewards.values() if each is not None and each.weight > 0]
    return bool(rewards) and all(each.score >= 1 for each in rewards)


def _prompt(data: Any) -> list[Message]:
    system = [Message(role="system", content=data.system_prompt)] if data.system_prompt else []
    if isinstance(data.prompt, str):
        return [*system, Message(role="user", content=data.prompt)]
    return [*system, *(Message(role=each.role, content=text_of(each)) for each in data.prompt)]


def _score(task: Any, trace: Trace) -> Trace:
    try:
        asyncio.run(task.score(trace))
    except vf.TaskError as error:  # of which the cause is the task's own
        raise NoVerdict(f"{error}") from error
    return trace


def _trace(task: Any, turns: Sequence[ToolTurn], state: Any) -> Trace:
    """The trace of the turns, as verifiers would have recorded it."""
    nodes: list[MessageNode] = []
    model_calls: list[ModelCall] = []

    def add(message: Any, *, is_sampled: bool = False) -> None:
        nodes.append(MessageNode(parent=len(nodes) - 1 if nodes else None, message=message, sampled=is_sampled))

    for message in _prompt(task.data):
        add(parse_message({**message}))
    for number, turn in enumerate(turns):
        calls = [
            ToolCall(id=f"call_{number}_{place}", name=call.name, arguments=json.dumps(dict(call.arguments)))
            for place, call in enumerate(turn.calls)
        ]
        add(AssistantMessage(content=written(turn), tool_calls=calls or None), is_sampled=True)
        finish: Any = "tool_calls" if calls else "stop"
        model_calls.append(ModelCall(node=len(nodes) - 1, finish_reason=finish))
        for asked, call in zip(calls, turn.calls, strict=True):
            add(ToolMessage(tool_call_id=asked.id, name=call.name, content=call.result))
    return Trace(
        task=TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        state=state,
        agent=AgentInfo(config=AgentConfig(harness={"id": "null"})),
        nodes=nodes,
        calls=model_calls,
        is_completed=True,
        ok=True,
        stop_condition="max_turns" if turns[-1].calls else "agent_completed",
    )


def _answer(data: Any, field: str) -> str:
    value = getattr(data, field, None)
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _written(data: Any, how: tuple[str, str]) -> str | None:
    field, form = how
    answer = _answer(data, field)
    return form.format(answer) if answer else None
