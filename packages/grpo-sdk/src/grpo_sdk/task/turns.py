"""The policy's partner in an episode: what it says to a completion, and the text that is scored when it is over."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from grpo_sdk.errors import UserError
from grpo_sdk.task.calling import call_by_name
from grpo_sdk.task.game import GameConfig, GameStart, Move, Rules, replay, story, write_transcript
from grpo_sdk.task.remote import Remote, ask_now, write_moves
from grpo_sdk.task.row import Message, Prompt, Row, TaskConfig
from grpo_sdk.task.score import Fault
from grpo_sdk.task.task import Task


@dataclass(frozen=True, slots=True)
class TurnState:
    """State of an episode after some turns, as the partner tells it.

    Attributes:
        moves: The texts of its turns; in a game also the moves of scripted players.
        role: Next player, in a game; empty otherwise.
        prompt: Next prompt: in a game all that the player sees, else the continuation of the conversation; None when
            the episode is over.
        replaced: Places among `moves` of illegal ones that a random move replaced: they are not trained on.
        messages: A game that is over as people read it; see `story`.
        fault: Kind of failure, if the task's code crashed or took too long.
        why: Reason of the failure, in one line.
    """

    moves: tuple[Move, ...]
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
        makes_prompts: Whether it makes the whole prompt of every turn, the first one too; else an episode is a
            conversation, which begins with the row's prompt and goes on with what the partner says.
        unreadable: Move that stands for one at which the time limit ends; None where such a move ends the episode.
    """

    makes_prompts: bool = False
    unreadable: Move | None = None

    @abstractmethod
    def follow(self, moves: Sequence[Move], row: Row) -> TurnState:
        """What follows the moves; called where the task's code may run."""

    @abstractmethod
    def write(self, moves: Sequence[Move], row: Row) -> dict[str, str]:
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


class Players(Partner):
    """The other players of a game, scripted or models, and its rules.

    Args:
        rules: The game and its options.
        can_fail: Whether a move that cannot be read in time counts as an empty one, which no game can read.
    """

    makes_prompts = True

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


def continued(prompt: Prompt, text: str, following: Prompt) -> Prompt:
    """The whole conversation after a completion and what follows it.

    Text follows text; messages, or a text as the user's message, follow the assistant's message. What already begins
    with the conversation so far is the whole of it.

    Args:
        prompt: Prompt of the completion.
        text: Text of the completion.
        following: Result of `respond`.

    Raises:
        UserError: messages follow a prompt that is text.
    """
    if isinstance(prompt, str):
        if not isinstance(following, str):
            raise UserError("respond() gave messages, but the task's prompt is text: give text.")
        conversation = prompt + text
        return following if following.startswith(conversation) else conversation + following
    prefill = prompt[-1]["content"] if prompt and prompt[-1]["role"] == "assistant" else ""
    answered = (*without_prefill(prompt), Message(role="assistant", content=prefill + text))
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
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):
        return (text,)
    turns = content.get("turns") if isinstance(content, Mapping) and len(content) == 1 else None
    if isinstance(turns, list) and turns and all(isinstance(turn, str) for turn in turns):
        return tuple(turns)
    return (text,)
