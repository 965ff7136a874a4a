"""Runs the solvers of a task of inspect-ai: up to what they show the model, or through with a completion."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from inspect_ai import Task
from inspect_ai._eval.context import init_task_context
from inspect_ai._eval.task.util import sample_messages
from inspect_ai.dataset import Sample
from inspect_ai.log._samples import active_sample
from inspect_ai.log._transcript import Transcript, init_transcript
from inspect_ai.model import ChatMessage, ContentText, GenerateConfig, Model, ModelName, ModelOutput, get_model
from inspect_ai.scorer import Score, Target
from inspect_ai.scorer._score import init_scoring_context
from inspect_ai.solver import Plan, TaskState
from inspect_ai.solver._task_state import set_sample_state
from inspect_ai.util._store import init_subtask_store

from grpo_sdk import Message

MODEL = "mockllm/model"
"""Stands for the model that is trained; the only one of inspect-ai's that asks nobody."""

ROLES = ("system", "user", "assistant")


class Unsupported(Exception):
    """Solvers or scorers do what one completion cannot answer; the message goes on after who does it."""


class NeedsTools(Unsupported):
    """Solvers give the model tools: what they do is an `Episode`."""


class _Stop(BaseException):
    """Ends the solvers once the prompt is known; solvers may catch every `Exception`."""


@dataclass(frozen=True)
class Answered:
    """What the solvers showed the model, and what was made of a completion.

    Attributes:
        prompt: The messages before it.
        scores: Score of each scorer, in order; None where it gave none. Empty where there was no completion.
    """

    prompt: list[Message]
    scores: Sequence[Score | None] = ()


@asynccontextmanager
async def begun(task: Task, sample: Sample, answer: Callable[..., Any]) -> AsyncIterator[tuple[Model, TaskState]]:
    """The model and the state of a sample that runs.

    Args:
        task: The task.
        sample: The sample.
        answer: Called where anyone asks the model.
    """
    model = get_model(MODEL, custom_outputs=answer, memoize=False)
    init_task_context(model, task.model_roles, task.config)
    transcript = Transcript()
    init_transcript(transcript)
    state = TaskState(
        sample_id=sample.id or 1,
        epoch=1,
        model=ModelName(model),
        input=sample.input,
        target=Target(sample.target),
        choices=sample.choices,
        messages=sample_messages(sample),
        completed=False,
        metadata=dict(sample.metadata or {}),
    )
    set_sample_state(state)
    init_subtask_store(state.store)
    init_scoring_context(list(task.scorer or []), Target(sample.target))
    limits = ("message_limit", "token_limit", "cost_limit", "time_limit", "working_limit")
    facts: dict[str, Any] = {name: getattr(task, name) for name in limits}
    async with active_sample(  # which agents need
        task=task.name,
        log_location="",
        model=str(model),
        sample=sample.model_copy(update={"id": sample.id or 1}),
        epoch=1,
        fails_on_error=True,
        transcript=transcript,
        eval_id="",
        sample_uuid=state.uuid,
        **facts,
    ):
        yield model, state


async def run(task: Task, plan: Plan, sample: Sample, text: str | None = None) -> Answered:
    """Run the solvers on a sample, and the scorers where there is a completion.

    Args:
        task: The task.
        plan: Its solvers.
        sample: The sample.
        text: The completion; None stops at the first prompt.

    Raises:
        Unsupported: solvers ask the model twice or not at all, with tools, or with more than text, or a scorer asks it.
    """
    async with begun(task, sample, refuse_call) as (model, state):
        generate = _Generate(model, task.config, text)
        try:
            state = await plan(state, generate)
        except _Stop:
            pass
        except Unsupported as error:
            raise type(error)(f"its solver, {_names(plan.steps)}, {error}") from None
        if generate.prompt is None:
            raise Unsupported(f"its solver, {_names(plan.steps)}, never calls generate, so that there is no prompt.")
        if text is None:
            return Answered(generate.prompt)
        try:
            scores = [await scorer(state, Target(sample.target)) for scorer in task.scorer or []]
        except Unsupported as error:
            raise Unsupported(f"a scorer {error}") from None
    return Answered(generate.prompt, scores)


class _Generate:
    """The `generate` of the solvers: it keeps the prompt, and answers with the completion.

    Args:
        model: Model whose name outputs have.
        config: Settings of the task.
        text: The completion; None stops at the prompt.
    """

    def __init__(self, model: Model, config: GenerateConfig, text: str | None) -> None:
        self._model, self._config, self._text = model, config, text
        self.prompt: list[Message] | None = None

    async def __call__(self, state: TaskState, *args: Any, **settings: Any) -> TaskState:
        if self.prompt is not None:
            raise Unsupported("calls generate more than once; a task must need one completion alone.")
        if state.tools:
            raise NeedsTools("gives the model tools.")
        messages = [message_of(message) for message in state.messages]
        system = settings.get("system_message") or self._config.system_message
        self.prompt = [*([Message(role="system", content=system)] if system else []), *messages]
        if self._text is None:
            raise _Stop
        state.output = ModelOutput.from_content(str(self._model), self._text)
        state.messages.append(state.output.message)
        return state


def refuse_call(messages: Any, tools: Any, *call: Any) -> NoReturn:
    """Say what cannot be answered.

    Raises:
        Unsupported: always; `NeedsTools` where the model is given tools.
    """
    if tools:
        raise NeedsTools("gives the model tools.")
    raise Unsupported(
        'asks the model by get_model(), which is not answered here; name another model for it, as in model="openai/…".'
    )


def message_of(message: ChatMessage) -> Message:
    """A message as a prompt has it.

    Raises:
        Unsupported: it is of another role, or has more than text.
    """
    if message.role not in ROLES:
        raise Unsupported(f"shows a message of role {message.role}; {', '.join(ROLES)} can be used.")
    if isinstance(message.content, str):
        return Message(role=message.role, content=message.content)
    for content in message.content:
        if not isinstance(content, ContentText):
            raise Unsupported(f"shows {content.type}; text alone can be used.")
    return Message(role=message.role, content=message.text)


def _names(steps: Sequence[Any]) -> str:
    from inspect_ai._util.registry import is_registry_object, registry_unqualified_name

    return ", ".join(registry_unqualified_name(step) if is_registry_object(step) else repr(step) for step in steps)
