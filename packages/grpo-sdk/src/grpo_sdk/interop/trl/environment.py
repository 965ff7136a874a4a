"""A task as an environment of TRL: its tools, or for a task of several turns or a game one tool that takes the turns.

The model sees what TRL shows it: the tools' schemas where its chat template puts them, and what is said as the result
of a tool. A task of several turns adds a sentence to its prompt that names its tool; our own trainer and
`TrlTask.rollout_func` show it the turns themselves.

A tool of the task runs in one of our workers, never in TRL's process. A tool that hangs or crashes ends the episode,
whose score abstains.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import count
from types import MethodType
from typing import Any

from grpo_sdk.chat.json_calls import judged
from grpo_sdk.episodes.episode import Reply
from grpo_sdk.episodes.player import SteppedEpisode, run
from grpo_sdk.errors import UnscoredError, UserError
from grpo_sdk.interop.adapter import Conversation, Messages, TaskAdapter
from grpo_sdk.interop.trl.completions import Completion, last_text, tool_turns
from grpo_sdk.killable.pool import resolved
from grpo_sdk.task.score import Score
from grpo_sdk.task.tools.calls import Call, Reading, ToolCall, ToolTurn
from grpo_sdk.task.tools.tool import Tool
from grpo_sdk.task.turns import TurnState, is_end

OVER = "That was the last turn."

Answer = Call | TurnState
"""An answered call, or the fault of its tool."""


class Environment:
    """One rollout at a time of a task without a tool: the completion is the answer.

    Args:
        adapter: The task.
        samples: Numbers rollouts, for the random numbers of an opponent.
    """

    def __init__(self, adapter: TaskAdapter, samples: Callable[[], int]) -> None:
        self._adapter, self._samples = adapter, samples
        self._begun: Conversation | None = None

    def reset(self, row: str, **columns: Any) -> str | None:
        """Begin a rollout; returns what is appended to the prompt."""
        self._begun = Conversation(self._adapter, row, self._samples())
        with suppress(UnscoredError):  # which its score says
            run(self._begun.begin())
        return None

    def _conversation(self) -> Conversation:  # no property: TRL reads every attribute to find the tools
        assert self._begun is not None, "TRL resets an environment before it is used"
        return self._begun

    def _score(self, completion: Completion) -> Future[Score]:
        """The score of the rollout: what follows the last tool call is a turn, where there is one to take."""
        text, conversation = last_text(completion), self._conversation()
        if not conversation.is_over:
            run(conversation.reply(text))
        return resolved(run(conversation.score()))


class _Turns(Environment):
    _hint = ""

    def reset(self, row: str, **columns: Any) -> str | None:
        """Begin a rollout; returns what is appended to the prompt."""
        super().reset(row, **columns)
        prompt = "" if self._adapter.task.task.game is None else _text(self._conversation().messages)
        return f"{prompt}\n\n{self._hint}"

    def _take(self, text: str) -> str:
        conversation = self._conversation()
        if conversation.is_over:
            return OVER
        following = run(conversation.reply(text))
        return OVER if conversation.is_over else _text(following)


class AnswerEnvironment(_Turns):
    """A task of several turns, whose answers are calls of the tool `answer`."""

    _hint = "Give every answer by calling the tool answer, with the whole answer as its text."

    def answer(self, text: str) -> str:
        """Give an answer.

        Args:
            text: The whole answer.

        Returns:
            What is said about it.
        """
        return self._take(text)


class MoveEnvironment(_Turns):
    """A game against an opponent, whose moves are calls of the tool `move`."""

    _hint = "Make every move by calling the tool move, with what is asked for above as its text."

    def move(self, text: str) -> str:
        """Make a move.

        Args:
            text: The move, as the game asks for it.

        Returns:
            The game after the opponent's move.
        """
        return self._take(text)


class CallableTool(dict[str, Any]):
    """A tool as TRL takes it, which shows it to a chat template and calls it.

    TRL would make the schema of a function by transformers' dialect, which loses defaults, enums, models and bounds.
    A schema it passes on: the model reads the task's own, as in our trainer.

    Args:
        tool: The tool.
        call: Answers a call.
    """

    def __init__(self, tool: Tool, call: Callable[..., str]) -> None:
        super().__init__(tool.spec)
        self.__name__, self.__doc__, self._call = tool.name, tool.function.__doc__, call

    def __call__(self, /, **arguments: Any) -> str:
        """Call the tool."""
        return self._call(**arguments)


class ToolEnvironment:
    """One rollout at a time of a task with tools, which are public methods of a subclass.

    Args:
        adapter: The task.
        samples: Numbers rollouts.
    """

    def __init__(self, adapter: TaskAdapter, samples: Callable[[], int]) -> None:
        self._adapter, self._samples = adapter, samples
        for tool in adapter.task.task.all_tools():
            setattr(self, tool.name, CallableTool(tool, MethodType(getattr(type(self), tool.name), self)))

    def reset(self, row: str, **columns: Any) -> str | None:
        """Begin a rollout; returns what is appended to the prompt: what the environment's `reset` adds.

        Raises:
            UserError: it adds what cannot be appended to the last message, which is the user's.
        """
        self._stepped = self._adapter.episode(row, self._samples())
        run(self._stepped.begin())
        self._is_ended, self._answers = self._stepped.is_over, list[tuple[ToolCall, Answer]]()
        read, task = self._stepped.episode.row, self._adapter.task
        before = self._adapter.messages(task.prompt(read))
        after = self._adapter.messages(self._stepped.episode.prompt)
        added = after[len(before) - 1 :]
        if len(after) > len(before) and {message["role"] for message in added} != {"user"}:
            raise UserError(
                f"task {task.name!r}: reset() adds messages by {', '.join(message['role'] for message in added[1:])} "
                f"to a prompt that ends with one by {added[0]['role']}; TRL appends text to a message by the user. "
                "Train it with grpo run, or give rollout_func=task.rollout_func."
            )
        return _text(added).removeprefix(before[-1]["content"]) or None

    def _call(self, call: ToolCall) -> str:
        if self._is_ended:
            self._answers.append((call, Call(call.name, call.arguments or {}, OVER, ok=False, ran=False)))
            return OVER
        answer = _answered(self._stepped, call)
        self._answers.append((call, answer))
        if isinstance(answer, TurnState):
            self._is_ended = True
            return answer.why
        episode = self._stepped.episode
        episode.state = TurnState((*episode.state.moves, ToolTurn("", (answer,))))  # what another worker repeats
        self._is_ended = is_end(self._adapter.task.task, answer)
        return answer.result

    def _score(self, completion: Completion) -> Future[Score]:
        """The score of the rollout, by the state that its calls have left."""
        answers = deque(self._answers)

        def find(call: ToolCall, told: str | None) -> Answer | None:
            is_ours = bool(answers) and answers[0][0] == call  # TRL itself answers the others
            return answers.popleft()[1] if is_ours else None

        return _scored(self._adapter, self._stepped, completion, find)


class FunctionTools:
    """The tools of a task without an environment, which the rollouts of a batch share.

    Args:
        adapter: The task.

    Attributes:
        tools: The argument `tools` of `GRPOTrainer`.
    """

    def __init__(self, adapter: TaskAdapter) -> None:
        self._adapter, self._stepped = adapter, adapter.episode(adapter.task.rows()[0])
        self._answers: dict[str, Answer] = {}
        self.tools = [CallableTool(tool, partial(self._call, tool.name)) for tool in adapter.task.task.all_tools()]

    def score(self, rows: list[str], completions: list[Completion]) -> list[Future[Score]]:
        """The scores of a batch."""
        answers, self._answers = self._answers, {}

        def find(call: ToolCall, told: str | None) -> Answer | None:
            return answers.get(_key(call, told))

        episodes = [self._adapter.episode(row) for row in rows]
        begun = [each.player.begin(each.episode) for each in episodes]  # so that no call is repeated
        for each, state in zip(episodes, begun, strict=True):
            each.episode.state = state.result()
        both = zip(episodes, completions, strict=True)
        return [_scored(self._adapter, each, completion, find) for each, completion in both]

    def _call(self, name: str, /, **arguments: Any) -> str:
        call = judged(name, arguments)
        answer = _answered(self._stepped, call)
        told = answer.why if isinstance(answer, TurnState) else answer.result
        self._answers[_key(call, told)] = answer
        return told


def environment_factory(adapter: TaskAdapter) -> Callable[[], Environment | ToolEnvironment]:
    """Return the function that makes the environments of a task.

    Raises:
        UserError: a tool has a name that TRL does not take for one.
    """
    task = adapter.task
    if task.task.has_tools:
        methods = {tool.name: _method(tool) for tool in task.task.all_tools()}
        for name in methods:
            if name in ("reset", "get_reward") or name.startswith("_"):
                raise UserError(
                    f"task {task.name!r}: TRL's environments have no tool {name!r}: reset, get_reward and names that "
                    "begin with _ are its own. Name it by @tool(name=…)."
                )
        return partial(type("ToolEnvironment", (ToolEnvironment,), methods), adapter, count().__next__)
    kind = Environment if not task.has_turns else AnswerEnvironment if task.task.game is None else MoveEnvironment
    return partial(kind, adapter, count().__next__)


def _method(tool: Tool) -> Callable[..., str]:
    """The method that a call of a tool is; TRL finds tools among the functions of a class."""

    def method(self: ToolEnvironment, /, **arguments: Any) -> str:
        return self._call(judged(tool.name, arguments))

    return method


def _answered(stepped: SteppedEpisode, call: ToolCall) -> Answer:
    """Run a call."""
    try:
        state = stepped.player.follow(stepped.episode, "", Reading("", calls=(call,))).result()
    except Exception as error:  # TRL would tell it to the policy as a result, and go on
        why = f"task {stepped.episode.task.name}: tool {call.name}(): {error}"
        return TurnState((), fault="infrastructure", why=why)
    answer: Answer = state if state.fault else state.moves[-1].calls[-1]
    return answer


def _scored(
    adapter: TaskAdapter,
    stepped: SteppedEpisode,
    completion: Completion,
    find: Callable[[ToolCall, str | None], Answer | None],
) -> Future[Score]:
    """Score a rollout whose tools have been called.

    Args:
        adapter: The task.
        stepped: Its episode.
        completion: The rollout as TRL tells it.
        find: The answer to a call, given also what the policy was told; None where it was not ours.
    """
    episode, player = stepped.episode, stepped.player
    if episode.state.fault:  # of `reset`
        return player.score(episode)[""]
    state = _told(adapter, stepped, completion, find)
    episode.take(Reply("", None))
    episode.follow(TurnState(state.moves or (ToolTurn(""),), fault=state.fault, why=state.why))
    return player.score(episode)[""]


def _told(
    adapter: TaskAdapter,
    stepped: SteppedEpisode,
    completion: Completion,
    find: Callable[[ToolCall, str | None], Answer | None],
) -> TurnState:
    """The turns of a rollout, up to the one that ends the episode."""
    turns: list[ToolTurn] = []
    for text, calls, told in tool_turns(completion):
        text = adapter.completion(text)
        found = [find(call, told[place] if told else None) for place, call in enumerate(calls)]
        if calls and not told and not any(found):  # TRL's bound on its rounds; ours bounds the turns
            stepped.episode.state = TurnState(tuple(turns))
            return stepped.player.follow(stepped.episode, text, Reading(text, calls=tuple(calls))).result()
        answered: list[Call] = []
        for place, (call, answer) in enumerate(zip(calls, found, strict=True)):
            if isinstance(answer, TurnState):
                return answer
            said = told[place] if told else ""
            answered.append(answer or Call(call.name, call.arguments or {}, said, ok=False, ran=False))
        turns.append(ToolTurn(text, tuple(answered)))
        if any(is_end(adapter.task.task, call) for call in answered):
            break
    return TurnState(tuple(turns))


def _key(call: ToolCall, told: str | None) -> str:
    return json.dumps([call.name, call.arguments, told], default=str)


def _text(messages: Messages) -> str:
    return "\n\n".join(message["content"] for message in messages)
