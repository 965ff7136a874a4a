"""An episode of a task of inspect-ai with tools: its solvers run in an event loop, and wait for what the policy says.

The solvers' own loop calls the tools: of `generate()` with `use_tools()`, of `react()` and other agents. Each call is
given to them as an answer of the model with that call alone, so that the calls of one turn are several answers there.
Read in inspect-ai 0.3.285, `_eval/task/run.py` and `model/_call_tools.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from inspect_ai import Task
from inspect_ai._eval.task.generate import task_generate
from inspect_ai._util.notgiven import NOT_GIVEN
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool, ContentText, ModelOutput, ModelUsage
from inspect_ai.scorer import Score, Target
from inspect_ai.solver import Plan, TaskState
from inspect_ai.solver._task_state import sample_state
from inspect_ai.util import LimitExceededError

from grpo_sdk import BackgroundLoop, Message, ToolError, ToolFault, ToolTurn
from grpo_tasks_gym.foreign.source import ForeignTool, NoVerdict, written
from grpo_tasks_gym.inspect.solving import MODEL, Answered, begun, message_of, refuse_call

_solvers = BackgroundLoop("inspect-ai")

END = None
"""Said in place of an answer: the episode ends, as at a limit."""


class Episode:
    """An episode; see `ForeignEpisode`.

    Args:
        task: The task.
        plan: Its solvers.
        sample: The sample.
        tools: The tools that they must show; none accepts any.
        numbered: Makes numbers of the scores.

    Attributes:
        prompt: What the solvers showed the model at first.
        tools: The tools that they gave it.

    Raises:
        Unsupported: the solvers show more than text.
        NoVerdict: they show other tools.
    """

    def __init__(
        self,
        task: Task,
        plan: Plan,
        sample: Sample,
        tools: tuple[ForeignTool, ...],
        numbered: Callable[[Sequence[Score | None]], Mapping[str, float]],
    ) -> None:
        self.is_over = False
        self._task, self._plan, self._sample, self._numbered = task, plan, sample, numbered
        self._told: SimpleQueue[list[ChatMessage] | BaseException] = SimpleQueue()
        self._said: asyncio.Queue[ModelOutput | None] = asyncio.Queue()
        self._state: TaskState | None = None
        self._calls: list[str] = []
        self.tools = tools
        self._work = _solvers.submit(self._solve())
        try:
            self.prompt: list[Message] = [message_of(message) for message in self._wait()]
        except BaseException:
            self.close()
            raise

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Have the solvers call a tool; see `ForeignEpisode`."""
        self._calls.append(name := f"call_{len(self._calls)}")
        output = ModelOutput.for_tool_call(MODEL, tool, dict(arguments), tool_call_id=name, content="")
        messages = self._say(output)
        found = [place for place, each in enumerate(messages) if getattr(each, "tool_call_id", None) == name]
        if not found and not self.is_over:
            raise NoVerdict("the solvers don't show the model what its call gave")
        shown = messages[found[0] :] if found else []  # e.g. of react(), which takes the call of submit() out again
        text = "\n\n".join(_text_of(message) for message in shown)
        if shown and isinstance(shown[0], ChatMessageTool) and shown[0].error is not None:
            raise ToolError(text)
        return text

    def score(self, turns: Sequence[ToolTurn]) -> Mapping[str, float]:
        """Value of every reward; see `ForeignEpisode`."""
        return self._numbered(self.answered(turns).scores)

    def answered(self, turns: Sequence[ToolTurn]) -> Answered:
        """End the solvers with the last turn, and score what they leave."""
        if not self.is_over and not turns[-1].calls:
            self._say(ModelOutput.from_content(MODEL, turns[-1].text))
        if not self.is_over:  # where the solvers would go on, the policy has ended
            self._say(END)
        texts = [written(turn) if not place else "" for turn in turns for place, call in enumerate(_ran(turn))]
        texts_of = dict(zip(self._calls, texts, strict=True))
        assert self._state is not None  # the solvers have ended
        for message in self._state.messages:
            if isinstance(message, ChatMessageAssistant) and message.tool_calls:
                message.content = texts_of.get(message.tool_calls[0].id, "") or message.content
        self._say(END)
        return Answered(self.prompt, self._work.result())

    def close(self) -> None:
        """End the solvers."""
        self._work.cancel()

    def _say(self, output: ModelOutput | None) -> list[ChatMessage]:
        goes_on = not self.is_over
        _solvers.submit(self._said.put(output)).result()
        return self._wait() if goes_on else []

    def _wait(self) -> list[ChatMessage]:
        """The messages that the model is shown next, or those at the end."""
        told = self._told.get()
        if isinstance(told, BaseException):
            raise told
        self.is_over = self._state is not None
        return told

    async def _solve(self) -> list[Score | None]:
        """Run the solvers, then wait and run the scorers."""
        task, sample = self._task, self._sample
        try:
            async with begun(task, sample, self._answer) as (model, state):

                async def generate(state: TaskState, tool_calls: Any = "loop", **settings: Any) -> TaskState:
                    cache = settings.get("cache", False) or NOT_GIVEN
                    return await task_generate(model, state, tool_calls, cache, task.config.merge(settings))

                try:
                    state = await self._plan(state, generate)
                except LimitExceededError:
                    state = sample_state() or state
                self._state = state
                self._told.put([*state.messages])
                await self._said.get()
                return [await scorer(state, Target(sample.target)) for scorer in task.scorer or []]
        except (Exception, SystemExit) as error:
            first: BaseException = error
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            self._told.put(first)
            raise first from None

    async def _answer(self, messages: list[ChatMessage], tools: Sequence[Any], *settings: Any) -> ModelOutput:
        """Show the policy what the model is shown, and wait for what it says."""
        if self._state is not None:  # a scorer asks
            refuse_call(messages, ())
        shown = tuple(
            ForeignTool(each.name, each.description, each.parameters.model_dump(exclude_none=True, by_alias=True))
            for each in tools
        )
        self.tools = self.tools or shown
        if shown != self.tools:
            raise NoVerdict("the solvers show the model other tools than before")
        self._told.put([*messages])
        output = await self._said.get()
        if output is END:
            raise LimitExceededError("turn", value=1, limit=1)
        output.usage = ModelUsage()
        return output


def _ran(turn: ToolTurn) -> list[Any]:
    return [call for call in turn.calls if call.ran]


def _text_of(message: ChatMessage) -> str:
    """What the model reads of a message that follows its call."""
    if isinstance(message, ChatMessageTool) and message.error is not None:
        return str(message.error.message)
    for content in [] if isinstance(message.content, str) else message.content:
        if not isinstance(content, ContentText):
            raise ToolFault(f"returned {content.type}, and the policy reads text only")
    return str(message.text)
