"""Games: their functions, options and starts."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from grpo_sdk.errors import UserError
from grpo_sdk.task.calling import BOUNDS, call_by_name, check_function, in_bounds
from grpo_sdk.task.row import Prompt, Row, TaskConfig
from grpo_sdk.task.score import Invalid
from grpo_sdk.task.watching import calling

SELF = "self"
"""The opponent that is the policy itself, in every role."""

RANDOM = "random"
"""The opponent that makes random legal moves, in every game."""

PERFECT = "perfect"
"""The opponent that makes the best moves, in a game with `best`."""

BOTH = "both"
"""Every seat in turn."""

DEFAULT_EPISODES = 1024
"""Rows where no size is given: what differs between them is the seed of the start and of the opponent."""

Move = str | int
"""A move as it was made: the text of a completion, or the place of a scripted player's action in `legal(state)`."""


class GameConfig(TaskConfig):
    """Options of every game.

    Attributes:
        opponent: `self` (one policy in all roles), `random`, `perfect`, another scripted player of the game, `base`
            (the starting policy), a model as for `--model`, or an OpenAI-compatible endpoint (`http://host:port/v1#model`).
        seat: The role that the policy plays against an opponent; `both` takes them in turn.
        illegal: What an illegal or unreadable move does: `loses` ends the game, `random` replaces it by a random legal
            move, and that turn is not trained on.
        illegal_reward: What the offender gets where the game ends.
        illegal_other: What the others get then; the default makes it zero-sum.
    """

    opponent: str = SELF
    seat: str = BOTH
    illegal: Literal["loses", "random"] = "loses"
    illegal_reward: float = -1.0
    illegal_other: float = 1.0


class GameStart(Row):
    """One start of a game: a row of its task.

    Attributes:
        seed: Seed of the start (a deal of cards) and of scripted players.
        seat: The role that is scored and trained; empty where the policy plays all.
    """

    seed: int
    seat: str = Field(default="")


@dataclass(frozen=True, slots=True)
class Game:
    """A turn-based game: states are immutable values, players see what `observe` shows them and answer in text.

    Callables may also ask for `config`.

    Attributes:
        name: Name within the plugin; users write `plugin.name`.
        roles: The seats, in the order in which tables show them.
        initial: `(seed)` -> the first state; all chance of a game is in its seed.
        to_move: `(state)` -> the role whose turn it is; asked while nothing is decided.
        observe: `(state, role)` -> the prompt of that role.
        parse: `(text, state)` -> an action, or raises `Invalid(reason)`.
        apply: `(state, action)` -> the next state.
        legal: `(state)` -> the legal actions, in a fixed order.
        outcome: `(state)` -> role -> return once the game is decided, else None; a draw is 0.
        render: `(state)` -> the position as text, for people; drawn as `observe` shows it where moves are named by it.
        write: `(action, state)` -> the completion that makes the action; what demos and endpoints see.
        config: Class of its options.
        version: Changed by the author when play changes; part of the identity.
        best: `(state)` -> an action of perfect play: the opponent `perfect`.
        players: More scripted opponents: name -> `(state, rng)` -> action.
        evaluated_against: Opponents of the evaluations of self-play, beside `random`; by default `perfect` where there
            is `best`, else all `players`. One whose moves vary says more than one that always replies in the same way.
        maximum: The largest return.
        max_turns: Moves of all roles together after which the episode is a draw.
        stop: Strings that end a completion.
        max_completion_length: Tokens of a move.
        default_model: Default of `--model`.
        timeout_s: Limit of replaying one episode. A move that it ends at counts as an empty one.
        demos: `(config)` -> (prompt, completion) pairs for a warm start; by default legal moves of random games.
        description: One line for `grpo tasks`.
    """

    name: str
    roles: tuple[str, ...]
    initial: Callable[..., Any]
    to_move: Callable[..., str]
    observe: Callable[..., Prompt]
    parse: Callable[..., Any]
    apply: Callable[..., Any]
    legal: Callable[..., Sequence[Any]]
    outcome: Callable[..., Mapping[str, float] | None]
    render: Callable[..., str]
    write: Callable[..., str]
    config: type[GameConfig] = field(default=GameConfig, kw_only=True)
    version: str = field(default="0", kw_only=True)
    best: Callable[..., Any] | None = field(default=None, kw_only=True)
    players: Mapping[str, Callable[..., Any]] = field(default_factory=dict, kw_only=True)
    evaluated_against: tuple[str, ...] | None = field(default=None, kw_only=True)
    maximum: float = field(default=1.0, kw_only=True)
    max_turns: int = field(default=100, kw_only=True)
    stop: tuple[str, ...] = field(default=(), kw_only=True)
    max_completion_length: int | None = field(default=None, kw_only=True)
    default_model: str | None = field(default=None, kw_only=True)
    timeout_s: float = field(default=5.0, kw_only=True)
    demos: Callable[..., Iterable[tuple[Prompt, str]]] | None = field(default=None, kw_only=True)
    description: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if len(self.roles) < 2 or len(set(self.roles)) != len(self.roles) or not all(self.roles):
            raise UserError(f"game {self.name!r}: roles={self.roles!r}: two or more different names are wanted.")
        if not 0 < self.maximum < math.inf:
            raise UserError(f"game {self.name!r}: maximum={self.maximum} must be a finite return above 0.")
        for contribution in _CALLS:
            function = getattr(self, contribution)
            if function is not None or contribution not in ("best", "demos"):
                check_function(f"game {self.name!r}: {contribution}", function, *_CALLS[contribution])
        if taken := {SELF, RANDOM, PERFECT} & set(self.players):
            raise UserError(f"game {self.name!r}: {sorted(taken)[0]!r} is no name for one of its players.")
        if unknown := set(self.evaluated_against or ()) - set(self.scripted):
            raise UserError(
                f"game {self.name!r}: evaluated_against has {sorted(unknown)[0]!r}; its opponents are "
                f"{', '.join(self.scripted)}."
            )

    @property
    def scripted(self) -> tuple[str, ...]:
        """Names of the opponents that need no model."""
        return (RANDOM, *([PERFECT] if self.best is not None else []), *self.players)

    @property
    def rivals(self) -> tuple[str, ...]:
        """Opponents of the evaluations of self-play."""
        others = self.evaluated_against
        if others is None:
            others = (PERFECT,) if self.best is not None else tuple(self.players)
        return tuple(dict.fromkeys((RANDOM, *others)))


_CALLS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "initial": (("seed", "config"), 1),
    "to_move": (("state", "config"), 1),
    "observe": (("state", "role", "config"), 2),
    "parse": (("text", "state", "config"), 2),
    "apply": (("state", "action", "config"), 2),
    "legal": (("state", "config"), 1),
    "outcome": (("state", "config"), 1),
    "render": (("state", "config"), 1),
    "write": (("action", "state", "config"), 2),
    "best": (("state", "config"), 1),
    "demos": (("config",), 1),
}
"""Contribution -> what it may ask for by name, and how many of these an author may rename."""


@dataclass(frozen=True, slots=True)
class GamePosition:
    """State of a game that is played.

    Attributes:
        start: Seed and seat.
        states: States of the game, from the first to this one; an illegal move that ended it has none.
        moves: Moves so far, those of scripted players included.
        movers: Role that made each move.
        replaced: Illegal moves that a random move replaced: place -> why the move was illegal.
        to_move: Role whose turn it is; empty when the game is over.
        returns: Role -> return when it is over.
        illegal: The role whose illegal move ended it; empty otherwise.
        why: Why that move was illegal.
        capped: Whether the limit of turns ended it.
    """

    start: GameStart
    states: tuple[Any, ...]
    moves: tuple[Move, ...] = ()
    movers: tuple[str, ...] = ()
    replaced: Mapping[int, str] = field(default_factory=dict)
    to_move: str = ""
    returns: Mapping[str, float] | None = None
    illegal: str = ""
    why: str = ""
    capped: bool = False

    @property
    def state(self) -> Any:
        """The current state of the game."""
        return self.states[-1]

    def rng(self, who: str) -> random.Random:
        """Random numbers of a scripted player, or of a replacement, at the next move."""
        return random.Random(f"{self.start.id}/{self.start.seed}/{len(self.moves)}/{who}")


class Rules:
    """A game with its options.

    Args:
        game: The game.
        config: Its options.
    """

    def __init__(self, game: Game, config: GameConfig) -> None:
        self.game, self.config = game, config

    def scripted(self, start: GameStart) -> dict[str, str]:
        """Role -> scripted player, for the seats that the policy does not have."""
        opponent = self.config.opponent
        if not start.seat or opponent not in self.game.scripted:
            return {}
        return {role: opponent for role in self.game.roles if role != start.seat}

    def call(self, contribution: str, **arguments: Any) -> Any:
        """Call one of the game's functions with the arguments that it takes."""
        function = getattr(self.game, contribution)
        _, positional = _CALLS[contribution]
        with calling(f"{contribution}() of the game {self.game.name}"):
            return call_by_name(function, {**arguments, "config": self.config}, positional=positional)

    def legal(self, state: Any) -> list[Any]:
        """The legal actions, in the game's order.

        Raises:
            ValueError: there is none though the game is not decided, which is a bug of the game.
        """
        actions = list(self.call("legal", state=state))
        if not actions:
            raise ValueError(f"game {self.game.name!r}: no legal action, but outcome() gives None")
        return actions

    def outcome(self, state: Any) -> dict[str, float] | None:
        """The return of each role once the game is decided, else None.

        Raises:
            ValueError: a role has no return, or one that cannot be or is above the maximum, which is a bug of the game.
        """
        decided = self.call("outcome", state=state)
        if decided is None:
            return None
        game = self.game
        try:
            returns = {role: float(decided[role]) for role in game.roles}
        except (KeyError, TypeError, ValueError):
            roles = ", ".join(game.roles)
            raise ValueError(
                f"game {game.name!r}: outcome() gave {decided!r:.80}; it gives a number for each of {roles}"
            ) from None
        for role, value in returns.items():
            if not in_bounds(value):
                raise ValueError(f"game {game.name!r}: outcome() gave {role} {value}, which is no number {BOUNDS}")
            if value > game.maximum + 1e-6 * game.maximum:
                raise ValueError(
                    f"game {game.name!r}: outcome() gave {role} {value:g}, above the largest return, "
                    f"{game.maximum:g}: Game(…, maximum={value:g})"
                )
        return returns

    def written(self, place: int, state: Any) -> str:
        """The completion that makes the legal action at a place."""
        return str(self.call("write", action=self.legal(state)[place], state=state))

    def choose(self, player: str, state: Any, rng: random.Random) -> int:
        """The place of a scripted player's action in `legal(state)`.

        Raises:
            ValueError: the action is not legal, which is a bug of the game.
        """
        actions = self.legal(state)
        if player == RANDOM:
            return rng.randrange(len(actions))
        if player == PERFECT:
            action = self.call("best", state=state)
        else:
            given = {"state": state, "rng": rng, "config": self.config}
            with calling(f"the player {player} of the game {self.game.name}"):
                action = call_by_name(self.game.players[player], given, positional=2)
        if action not in actions:
            raise ValueError(
                f"game {self.game.name!r}: its player {player!r} gave {action!r:.80}, which is none of the legal "
                f"actions {actions!r:.80} in state {state!r:.80}"
            )
        return actions.index(action)

    def begin(self, start: GameStart) -> GamePosition:
        """The first position of a game."""
        return self._judged(start, (self.call("initial", seed=start.seed),), (), (), {})

    def advance(self, position: GamePosition, move: Move) -> GamePosition:
        """The position after a move of the role whose turn it is; an illegal one does what the options say."""
        role, place, actions = position.to_move, len(position.moves), self.legal(position.state)
        moves, movers, replaced = (*position.moves, move), (*position.movers, role), position.replaced
        action, why = self._read(move, position.state, actions)
        if why and self.config.illegal == "loses":
            other, own = self.config.illegal_other, self.config.illegal_reward
            returns = {player: own if player == role else other for player in self.game.roles}
            played = (position.start, position.states, moves, movers, replaced)
            return GamePosition(*played, returns=returns, illegal=role, why=why)
        if why:
            replaced = {**replaced, place: why}
            action = actions[position.rng("replacement").randrange(len(actions))]
        after = self.call("apply", state=position.state, action=action)
        return self._judged(position.start, (*position.states, after), moves, movers, replaced)

    def _judged(
        self,
        start: GameStart,
        states: tuple[Any, ...],
        moves: tuple[Move, ...],
        movers: tuple[str, ...],
        replaced: Mapping[int, str],
    ) -> GamePosition:
        """The position after these moves: decided, at the limit of turns, or with a role to move."""
        played, game = (start, states, moves, movers, replaced), self.game
        returns = self.outcome(states[-1])
        if returns is not None:
            return GamePosition(*played, returns=returns)
        if len(moves) >= game.max_turns:
            return GamePosition(*played, returns=dict.fromkeys(game.roles, 0.0), capped=True)
        role = self.call("to_move", state=states[-1])
        if role not in game.roles:
            raise ValueError(f"game {game.name!r}: to_move() gave {role!r}, which is none of its roles")
        return GamePosition(*played, to_move=role)

    def _read(self, move: Move, state: Any, actions: Sequence[Any]) -> tuple[Any, str]:
        """The action of a move, and why it is illegal; empty where it is legal."""
        if isinstance(move, int):
            return actions[move], ""
        try:
            action = self.call("parse", text=move, state=state)
        except Invalid as invalid:
            return None, str(invalid) or "unreadable"
        return action, "" if action in actions else f"{_short(action)} is not legal"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
