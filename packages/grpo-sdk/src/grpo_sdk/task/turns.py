"""The policy's partner in an episode: what it says to a completion, and the text that is scored when it is over."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from grpo_sdk.errors import UserError
from grpo_sdk.task.calling import call_by_name
from grpo_sdk.task.game import GameConfig, GameStart, Move, Rules, replay, story, write_transcript
from grpo_sdk.task.remote import Remote, ask_now, read_list, write_moves
from grpo_sdk.task.row import Message, Prompt, Row, TaskConfig, as_prompt
from grpo_sdk.task.score import Fault
from grpo_sdk.task.task import Task
from grpo_sdk.task.tools.calls import Call, ToolTurn, write_tool_turns
from grpo_sdk.task.tools.session import Session


@dataclass(frozen=True, slots=True)
class TurnState:
    """State of an episode after some turns, as the partner tells it.

    Attributes:
        moves: The texts of its turns; in a game also the moves of scripted players, with tools `ToolTurn`s.
        role: Next player, in a game; empty otherwise.
        prompt: Next prompt: in a game all that the player sees, else the continuation of the conversation; None when
            the episode is over.
        replaced: Places among `moves` of illegal ones that a random move replaced: they are not trained on.
        messages: A game that is over as people read it; see `story`.
        fault: Kind of failure, if the task's code crashed or took too long.
        why: Reason of the failure, in one line.
    """

    moves: tuple[Any, ...]
    role: str = ""
    prompt: Prompt | None = None
    replaced: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()
    fault: Fault = ""
    why: str = ""


class Partner(ABC):
    """Whom the policy talks to in an episode: a task's feedback, the other players of a game, a server.

    It keeps nothing: what it says depends on row and moves alone, so that any process can go on with an episode.

    Attributes:
        makes_prompts: Whether it makes the whole prompt of every turn; else an episode is a conversation, which goes on
            with what the partner says.
        begins: Whether it makes the first prompt; else that is the row's.
        unreadable: Move that stands for one at which the time limit ends; None where such a move ends the episode.
    """

    makes_prompts: bool = False
    begins: bool = False
    unreadable: Move | None = None

    @abstractmethod
    def follow(self, moves: Sequence[Any], row: Row) -> TurnState:
        """What follows the moves; called where the task's code may run."""

    @abstractmethod
    def write(self, moves: Sequence[Any], row: Row) -> dict[str, str]:
        """The text that is scored for each role that the policy plays, after at least one move of it."""

    def roles(self, row: Row) -> tuple[str, ...]:
        """The roles that the policy plays and that are scored; one without a name where there are none."""
        return ("",)


def partner_of(task: Task, config: TaskConfig, max_turns: int) -> Partner:
    """The partner of a task under its options.

    Args:
        task: The task.
        config: Its options.
        max_turns: Bound on the turns of a task that is no game.
    """
    if task.game is not None:
        assert isinstance(config, GameConfig)
        return Players(Rules(task.game, config), can_fail=task.on_timeout == "fail")
    if task.has_tools:
        return Toolbox(task, config, max_turns)
    return (Feedback if task.remote is None else Server)(task, config, max_turns)


class Feedback(Partner):
    """What a task's `respond` says to each completion; nothing to the one of a task of one turn.

    Args:
        task: The task.
        config: Its options.
        max_turns: Bound on the turns.
    """

    def __init__(self, task: Task, config: TaskConfig, max_turns: int) -> None:
        self._task, self._config, self._max_turns = task, config, max_turns if task.respond is not None else 1

    def follow(self, moves: Sequence[Move], row: Row) -> TurnState:
        """Ask `respond`; see `Partner`."""
        turn, texts = len(moves), tuple(moves)
        if turn >= self._max_turns:
            return TurnState(texts)
        assert self._task.respond is not None
        available = {"text": moves[-1], "row": row, "turn": turn, "config": self._config, "texts": texts}
        return TurnState(texts, prompt=call_by_name(self._task.respond, available, positional=3))

    def write(self, moves: Sequence[Move], row: Row) -> dict[str, str]:
        """The last completion, or all where the validator takes them."""
        texts = [str(move) for move in moves]
        return {"": write_turns(texts) if self._max_turns > 1 and self._task.validates_all_turns else texts[-1]}


class Toolbox(Partner):
    """The tools that the policy calls.

    Args:
        task: The task.
        config: Its options.
        max_turns: Bound on the turns.
    """

    def __init__(self, task: Task, config: TaskConfig, max_turns: int) -> None:
        self._task, self._config, self._max_turns = task, config, max_turns
        self.begins = task.environment is not None

    def follow(self, moves: Sequence[ToolTurn], row: Row) -> TurnState:
        """Repeat the episode with tools of its own; see `Partner`."""
        session = Session(self._task, self._config, row)
        try:
            session.repeat(moves)
        finally:
            session.close()
        return self.state(moves, self.opened(row, session.opening))

    def opened(self, row: Row, opening: Prompt | None) -> Prompt:
        """The first prompt: that of the row with what the environment adds."""
        prompt = as_prompt(
            call_by_name(self._task.prompt, {"row": row, "config": self._config}, positional=1),
            f"task {self._task.name!r}: prompt()",
        )
        if opening is None:
            return prompt
        if isinstance(prompt, str):
            if not isinstance(opening, str):
                raise UserError(f"task {self._task.name!r}: reset() gave messages, but the prompt is text: give text.")
            return prompt + opening
        return (*prompt, *((Message(role="user", content=opening),) if isinstance(opening, str) else opening))

    def state(self, turns: Sequence[ToolTurn], opened: Prompt) -> TurnState:
        """What follows turns whose calls are answered.

        Args:
            turns: The turns.
            opened: The first prompt, which says whether the conversation is text or messages.
        """
        if not turns:
            return TurnState((), prompt=opened)
        last, moves = turns[-1], tuple(turns)
        ends = {tool.name for tool in self._task.own_tools() if tool.ends}
        is_ended = any(is_end(self._task, call) for call in last.calls)
        has_nothing_to_read = not last.calls and self._task.ends == "no_call"
        if last.problem or is_ended or has_nothing_to_read or len(turns) >= self._max_turns:
            return TurnState(moves)
        results = last.results() or (Message(role="user", content=NO_CALL.format(" or ".join(sorted(ends)))),)
        return TurnState(moves, prompt=written_results(results) if isinstance(opened, str) else results)

    def played(self, turns: Sequence[ToolTurn]) -> tuple[ToolTurn, ...]:
        """The turns and calls of a text up to the end of the episode, behind which none is run."""
        kept: list[ToolTurn] = []
        for turn in turns:
            last = next((at for at, call in enumerate(turn.calls) if is_end(self._task, call)), len(turn.calls))
            most = self._task.max_calls
            surplus = tuple(
                call for call in turn.calls[most : most + 1] if not call.ran
            )  # which says how many there were
            kept.append(replace(turn, calls=turn.calls[: last + 1][:most] + surplus))
            if self.state(kept, "").prompt is None:
                break
        return tuple(kept)

    def write(self, moves: Sequence[ToolTurn], row: Row) -> dict[str, str]:
        """The turns with their calls and results."""
        return {"": write_tool_turns(moves)}


NOT_RUN = "This call was not run."
"""What is told to calls behind one that ends the episode."""


def is_end(task: Task, call: Call) -> bool:
    """Whether an episode of a task ends with a call."""
    return call.ends or (call.ok and any(each.ends and each.name == call.name for each in task.own_tools()))


NO_CALL = "No tool was called. The episode ends with {}."
"""What the policy is told after a turn without a call, where only a tool ends the episode."""


def results_of(state: TurnState, calls: Sequence[str]) -> list[Message]:
    """The messages that follow a completion's calls, one for each, also where a tool broke or the episode ended.

    Args:
        state: What followed the completion.
        calls: The tools that it calls.
    """
    results = [call.result for call in state.moves[-1].calls] + [state.why] * bool(state.fault)
    results += [NOT_RUN] * len(calls)
    return [Message(role="tool", name=name, content=result) for name, result in zip(calls, results, strict=False)]


def written_results(results: Sequence[Message]) -> str:
    """Results as they go on with a conversation that is text."""
    return "".join(f"\n<tool_result>{message['content']}</tool_result>" for message in results) + "\n"


class Players(Partner):
    """The other players of a game, scripted or models, and its rules.

    Args:
        rules: The game and its options.
        can_fail: Whether a move that cannot be read in time counts as an empty one, which no game can read.
    """

    makes_prompts = begins = True

    def __init__(self, rules: Rules, *, can_fail: bool) -> None:
        self._rules = rules
        self.unreadable = "" if can_fail else None

    def follow(self, moves: Sequence[Move], row: Row) -> TurnState:
        """Play the moves, and those of scripted players; see `Partner`."""
        assert isinstance(row, GameStart)
        rules = self._rules
        position = replay(rules, row, moves, rules.scripted(row))
        replaced = tuple(position.replaced)
        if not position.to_move:
            return TurnState(position.moves, replaced=replaced, messages=story(rules, position))
        seen: Any = rules.call("observe", state=position.state, role=position.to_move)
        return TurnState(position.moves, position.to_move, seen, replaced)

    def roles(self, row: Row) -> tuple[str, ...]:
        """The policy's seat, or all."""
        assert isinstance(row, GameStart)
        return (row.seat,) if row.seat else self._rules.game.roles

    def write(self, moves: Sequence[Move], row: Row) -> dict[str, str]:
        """The transcript from the side of each role."""
        return {role: write_transcript(role, moves) for role in self.roles(row)}


class Server(Partner):
    """A server that plays and judges the task.

    Args:
        task: The task.
        config: Its options.
        max_turns: Bound on the turns.
    """

    def __init__(self, task: Task, config: TaskConfig, max_turns: int) -> None:
        self._task, self._config, self._max_turns = task, config, max_turns

    def follow(self, moves: Sequence[Move], row: Row) -> TurnState:
        """Ask the server and wait; `Scorer` asks without waiting. See `Partner`."""
        asked = partial(remote_of, self._task, self._config)
        following = ask_now(asked, lambda remote: remote.follow(moves, row))
        return TurnState(following.moves, prompt=following.prompt)

    def write(self, moves: Sequence[Move], row: Row) -> dict[str, str]:
        """All moves, with what the server has put between them; of a task of one turn, the completion."""
        return {"": write_moves(moves) if self._max_turns > 1 else str(moves[-1])}


def remote_of(task: Task, config: TaskConfig) -> Remote:
    """What asks the server of a task under its options."""
    assert task.remote is not None
    made: Remote = call_by_name(task.remote, {"config": config}, positional=1)
    return made


def continued(prompt: Prompt, text: str, following: Prompt, said: Message | None = None) -> Prompt:
    """The whole conversation after a completion and what follows it.

    Text follows text; messages, or a text as the user's message, follow the assistant's message. What already begins
    with the conversation so far is the whole of it.

    Args:
        prompt: Prompt of the completion.
        text: Text of the completion.
        following: Result of `respond`, or those of tools.
        said: The message that the completion is, by default its text.

    Raises:
        UserError: messages follow a prompt that is text.
    """
    if isinstance(prompt, str):
        if not isinstance(following, str):
            raise UserError("respond() gave messages, but the task's prompt is text: give text.")
        conversation = prompt + text
        return following if following.startswith(conversation) else conversation + following
    prefill = prompt[-1]["content"] if prompt and prompt[-1]["role"] == "assistant" else ""
    said = said or Message(role="assistant", content=text)
    answered = (*without_prefill(prompt), Message(**{**said, "content": prefill + said["content"]}))
    if isinstance(following, str):
        return (*answered, Message(role="user", content=following))
    if following[: len(answered)] == answered:
        return following
    return (*answered, *following)


def added(prompt: Prompt, text: str, whole: Prompt) -> Prompt:
    """What a conversation goes on with after a completion: the part of `continued` behind it.

    Args:
        prompt: Prompt of the completion.
        text: Text of the completion.
        whole: Result of `continued`.
    """
    if isinstance(whole, str):
        return whole[len(cast("str", prompt)) + len(text) :]
    return whole[len(without_prefill(cast("Sequence[Message]", prompt))) + 1 :]


def without_prefill(prompt: Sequence[Message]) -> tuple[Message, ...]:
    """The messages before a last one by the assistant, which the completion continues."""
    last = prompt[-1]["role"] if prompt else ""
    return cast("tuple[Message, ...]", tuple(prompt[:-1] if last == "assistant" else prompt))


def write_turns(texts: Sequence[str]) -> str:
    """The completions of a conversation as the text that is scored: JSON in ASCII, so that any text survives."""
    return json.dumps({"turns": list(texts)})


def read_turns(text: str) -> tuple[str, ...]:
    """The completions that `write_turns` wrote; a text that it did not write is the only one."""
    return read_list(text, "turns", str)
