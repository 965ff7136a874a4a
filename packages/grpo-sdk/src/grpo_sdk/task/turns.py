"""The next turn of a rollout: feedback in a task of several turns, the next player's view in a game."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from grpo_sdk.errors import UserError
from grpo_sdk.task.calling import call_by_name
from grpo_sdk.task.game import Episode, GameConfig, Move, Rules, replay, scripted_roles, story
from grpo_sdk.task.playing import remote_of
from grpo_sdk.task.remote import ask_now
from grpo_sdk.task.row import Message, Prompt, Row, TaskConfig
from grpo_sdk.task.score import Fault
from grpo_sdk.task.task import Task


@dataclass(frozen=True, slots=True)
class TurnState:
    """State of a rollout after some turns.

    Attributes:
        moves: The texts of its turns; in a game also the moves of scripted players.
        role: Next player, in a game; empty otherwise.
        prompt: Next prompt: in a game all that the player sees, else the continuation of the conversation; None when
            the rollout is over.
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


def turn_state(task: Task, config: TaskConfig, row: Row, moves: Sequence[Move], max_turns: int) -> TurnState:
    """The state after the moves made so far.

    Args:
        task: Task with several turns, or of a game.
        config: Options of the task.
        row: Row of the rollout.
        moves: Texts of the turns so far; in a game as in `grpo_sdk.task.game.replay`.
        max_turns: Bound on the turns of a task that is no game.
    """
    if task.game is not None:
        assert isinstance(config, GameConfig) and isinstance(row, Episode)
        rules = Rules(task.game, config)
        position = replay(rules, row, moves, scripted_roles(task.game, config, row))
        replaced = tuple(position.replaced)
        if not position.to_move:
            return TurnState(position.moves, replaced=replaced, messages=story(rules, position))
        seen: Any = rules.call("observe", state=position.state, role=position.to_move)
        return TurnState(position.moves, position.to_move, seen, replaced)
    if task.remote is not None:
        following = ask_now(lambda: remote_of(task, config), lambda remote: remote.follow(moves, row))
        return TurnState(following.moves, prompt=following.prompt)
    turn = len(moves)
    if task.respond is None or turn >= max_turns:
        return TurnState(tuple(moves))
    available = {"text": moves[-1], "row": row, "turn": turn, "config": config, "texts": tuple(moves)}
    return TurnState(tuple(moves), prompt=call_by_name(task.respond, available, positional=3))


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
    answered = (*without_prefill(prompt), Message(role="assistant", content=prefill_of(prompt) + text))
    if isinstance(following, str):
        return (*answered, Message(role="user", content=following))
    if following[: len(answered)] == answered:
        return following
    return (*answered, *following)


def write_turns(texts: Sequence[str]) -> str:
    """The completions of a conversation as the text that is scored: JSON in ASCII, so that any text survives."""
    return json.dumps({"turns": list(texts)})


def read_turns(text: str) -> tuple[str, ...]:
    """The completions that `write_turns` wrote; a text that it did not write is the only one."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return (text,)
    turns = content.get("turns") if isinstance(content, dict) and len(content) == 1 else None
    if isinstance(turns, list) and turns and all(isinstance(turn, str) for turn in turns):
        return tuple(turns)
    return (text,)


def prefill_of(prompt: Sequence[Message]) -> str:
    """Text of a last message by the assistant, which the completion continues; else empty."""
    return prompt[-1]["content"] if prompt and prompt[-1]["role"] == "assistant" else ""


def without_prefill(prompt: Sequence[Message]) -> tuple[Message, ...]:
    """The messages before a prefill."""
    last = prompt[-1]["role"] if prompt else ""
    return cast("tuple[Message, ...]", tuple(prompt[:-1] if last == "assistant" else prompt))
