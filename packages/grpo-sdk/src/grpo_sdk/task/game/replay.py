"""Replays games: start and moves decide everything, so a transcript is a whole game."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from grpo_sdk.task.game.rules import GamePosition, GameStart, Move, Rules
from grpo_sdk.task.row import Message
from grpo_sdk.task.score import Invalid


def replay(
    rules: Rules, start: GameStart, moves: Sequence[Move], scripted: Mapping[str, str] | None = None
) -> GamePosition:
    """Play a game again from its start, and let scripted players go on until somebody else has to move.

    Args:
        rules: Game and options.
        start: Seed and seat.
        moves: Moves so far; that of a scripted player is the place of its action.
        scripted: Role -> scripted player.
    """
    position = rules.begin(start)
    for move in moves:
        if position.to_move:
            position = rules.advance(position, move)
    while position.to_move and (player := (scripted or {}).get(position.to_move)):
        position = rules.advance(position, rules.choose(player, position.state, position.rng(player)))
    return position


def story(rules: Rules, position: GamePosition) -> tuple[Message, ...]:
    """A game as people read it: each move by its role; positions and the result without one.

    Args:
        rules: The game and its options.
        position: Its states and moves.
    """
    told = [("", rules.call("render", state=position.states[0]))]
    for place, (role, move) in enumerate(zip(position.movers, position.moves, strict=True)):
        before = position.states[place]
        text = move if isinstance(move, str) else rules.written(move, before)
        told.append((role, text))
        if place in position.replaced:
            told.append(("", f"(replaced: {position.replaced[place]})"))
        if place + 1 < len(position.states):
            told.append(("", rules.call("render", state=position.states[place + 1])))
    if position.returns is not None:
        why = f"   ({position.illegal}: {position.why})" if position.illegal else ""
        why += "   (limit of turns)" if position.capped else ""
        told.append(("", ", ".join(f"{role} {value:+g}" for role, value in position.returns.items()) + why))
    return tuple(Message(role=role, content=text) for role, text in told)


def write_transcript(role: str, moves: Sequence[Move]) -> str:
    """A game from a role's side, as the text that is scored: JSON in ASCII, so that any move survives.

    Args:
        role: Role whose outcome is scored.
        moves: Texts of the policy and actions of scripted players, in the order of play.
    """
    return json.dumps({"role": role, "moves": list(moves)})


_NO_TRANSCRIPT = 'no transcript of a game, as {"role": "first", "moves": ["1", "2"]}'


def read_transcript(text: str) -> tuple[str, tuple[Move, ...]]:
    """The role and the moves of a transcript.

    Args:
        text: JSON, as `write_transcript` makes it.

    Raises:
        Invalid: the text is no transcript.
    """
    try:
        transcript = json.loads(text)
        role, moves = transcript["role"], transcript["moves"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Invalid(_NO_TRANSCRIPT) from None
    is_list = isinstance(role, str) and isinstance(moves, list)
    if not is_list or not all(isinstance(move, str | int) and not isinstance(move, bool) for move in moves):
        raise Invalid(_NO_TRANSCRIPT)
    return role, tuple(moves)
