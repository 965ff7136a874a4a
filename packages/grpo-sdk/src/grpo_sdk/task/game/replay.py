"""Replays episodes: the seed and the moves decide everything, so a transcript is a whole episode."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_sdk.task.game.rules import Episode, Game, GameConfig, Move, Rules
from grpo_sdk.task.row import Message
from grpo_sdk.task.score import Invalid


@dataclass(frozen=True, slots=True)
class Position:
    """State of an episode.

    Attributes:
        states: States of the game, from the first to this one; an illegal move that ended it has none.
        moves: Moves so far, those of scripted players included.
        movers: Role that made each move.
        replaced: Illegal moves that a random move replaced: place -> why the move was illegal.
        to_move: Role whose turn it is; empty when the episode is over.
        returns: Role -> return when it is over.
        illegal: The role whose illegal move ended it; empty otherwise.
        why: Why that move was illegal.
        capped: Whether the limit of turns ended it.
    """

    states: tuple[Any, ...]
    moves: tuple[Move, ...]
    movers: tuple[str, ...]
    replaced: Mapping[int, str]
    to_move: str
    returns: Mapping[str, float] | None = None
    illegal: str = ""
    why: str = ""
    capped: bool = False

    @property
    def state(self) -> Any:
        """The current state of the game."""
        return self.states[-1]


def replay(
    rules: Rules, episode: Episode, moves: Sequence[Move], scripted: Mapping[str, str] | None = None
) -> Position:
    """Play an episode again from its start, and let scripted players go on until somebody else has to move.

    Args:
        rules: Game and options.
        episode: Seed and seat.
        moves: Moves so far; that of a scripted player is the place of its action.
        scripted: Role -> scripted player.
    """
    game, scripted = rules.game, scripted or {}
    states = [rules.call("initial", seed=episode.seed)]
    made_moves: list[Move] = []
    movers: list[str] = []
    replaced: dict[int, str] = {}

    def position(to_move: str = "", returns: Mapping[str, float] | None = None, **more: Any) -> Position:
        return Position(tuple(states), tuple(made_moves), tuple(movers), replaced, to_move, returns, **more)

    while True:
        state = states[-1]
        returns = rules.outcome(state)
        if returns is not None:
            return position(returns=returns)
        if len(made_moves) >= game.max_turns:
            return position(returns=dict.fromkeys(game.roles, 0.0), capped=True)
        role = rules.call("to_move", state=state)
        if role not in game.roles:
            raise ValueError(f"game {game.name!r}: to_move() gave {role!r}, which is none of its roles")
        place = len(made_moves)
        if place < len(moves):
            move = moves[place]
        elif role in scripted:
            move = rules.choose(scripted[role], state, _rng(episode, place, scripted[role]))
        else:
            return position(role)
        made_moves.append(move)
        movers.append(role)
        actions = rules.legal(state)
        action, why = _read(rules, move, state, actions)
        if why and rules.config.illegal == "loses":
            other, own = rules.config.illegal_other, rules.config.illegal_reward
            returns = {player: own if player == role else other for player in game.roles}
            return position(returns=returns, illegal=role, why=why)
        if why:
            replaced[place] = why
            action = actions[_rng(episode, place, "replacement").randrange(len(actions))]
        states.append(rules.call("apply", state=state, action=action))


def _read(rules: Rules, move: Move, state: Any, actions: Sequence[Any]) -> tuple[Any, str]:
    """The action of a move, and why it is illegal; empty where it is legal."""
    if isinstance(move, int):
        return actions[move], ""
    try:
        action = rules.call("parse", text=move, state=state)
    except Invalid as invalid:
        return None, str(invalid) or "unreadable"
    return action, "" if action in actions else f"{_short(action)} is not legal"


def story(rules: Rules, position: Position) -> tuple[Message, ...]:
    """An episode as people read it: each move by its role; positions and the result without one.

    Args:
        rules: The game and its options.
        position: The episode's states and moves.
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


def scripted_roles(game: Game, config: GameConfig, episode: Episode) -> dict[str, str]:
    """Role -> scripted player, for the seats that the policy does not have.

    Args:
        game: Rules, roles and players.
        config: The game's options, of which the opponent counts.
        episode: Start of the episode, of which the policy's seat counts.
    """
    if not episode.seat or config.opponent not in game.scripted:
        return {}
    return {role: config.opponent for role in game.roles if role != episode.seat}


def _rng(episode: Episode, place: int, who: str) -> random.Random:
    return random.Random(f"{episode.id}/{episode.seed}/{place}/{who}")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def write_transcript(role: str, moves: Sequence[Move]) -> str:
    """An episode from a role's side, as the text that is scored: JSON in ASCII, so that any move survives.

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
