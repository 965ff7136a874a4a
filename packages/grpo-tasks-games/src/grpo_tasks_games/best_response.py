"""Exact results of a model against its best response, in a small game of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from grpo_core import Completer, Rules, UserError, load_task

MAX_POSITIONS = 20_000
"""Largest number of positions of a game; tic-tac-toe has 4,520 in which somebody moves."""

STARTS = 64
"""Test rows whose starts are averaged."""

CHUNK = 512
"""Moves whose probabilities are computed between two reports of progress."""

LEAST_MASS = 0.1
"""Least mean probability of the legal moves in the game's own form; below it, the model has another form."""

Strategy = Sequence[Mapping[Any, Sequence[float]]]
"""Turn -> position -> probability of each legal action, in the game's order; they add up to at most 1."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a policy gets in one seat against its best response.

    Attributes:
        reward: Mean return of the policy.
        other: Mean return of the best response.
        lost: Probability that the policy's return is negative, illegal moves included.
        illegal: Probability of an illegal move.
    """

    reward: float
    other: float
    lost: float
    illegal: float


@dataclass(frozen=True, slots=True)
class Play:
    """A policy against the best response to it, in every seat.

    Attributes:
        seats: Role of the policy -> its result.
        positions: Number of positions in which somebody moves.
    """

    seats: Mapping[str, Result]
    positions: int

    @property
    def exploitability(self) -> float:
        """Mean return of the best responses to both seats: NashConv / 2 where returns add up to 0."""
        return math.fsum(seat.other for seat in self.seats.values()) / len(self.seats)

    def as_json(self) -> dict[str, Any]:
        """Return exploitability and results for JSON."""
        return {
            "exploitability": self.exploitability,
            "positions": self.positions,
            "seats": {role: asdict(seat) for role, seat in self.seats.items()},
        }


class Tree:
    """Every position that legal moves reach from the starts, by the number of moves made.

    Args:
        rules: A game of two and its options.
        starts: First positions, with the same probability each.

    Raises:
        UserError: the game has another number of roles, more than `MAX_POSITIONS`, or positions without a hash.
    """

    def __init__(self, rules: Rules, starts: Sequence[Any]) -> None:
        name = rules.game.name
        if len(rules.game.roles) != 2:
            raise UserError(f"{name} has {len(rules.game.roles)} roles; a best response is computed for games of two.")
        self.rules, self.starts = rules, starts
        self.turns: list[dict[Any, list[Any]]] = []
        """Turn -> undecided position -> the positions after its legal actions, in their order."""
        self.positions = 0
        layer = list(starts)
        while layer and len(self.turns) < rules.game.max_turns:
            after: dict[Any, list[Any]] = {}
            for state in layer:
                try:
                    if state in after or rules.outcome(state) is not None:
                        continue
                except TypeError as error:
                    raise UserError(
                        f"{name}: positions must be hashable, such as tuples and strings: {error}."
                    ) from None
                after[state] = [rules.call("apply", state=state, action=action) for action in rules.legal(state)]
                self.positions += 1
                if self.positions > MAX_POSITIONS:
                    raise UserError(
                        f"{name} has more than {MAX_POSITIONS:,} positions: too many for exact results. "
                        "`grpo eval` measures play against its scripted opponents."
                    )
            self.turns.append(after)
            layer = [successor for successors in after.values() for successor in successors]

    def moves(self) -> list[tuple[Any, Any]]:
        """Return prompt and completion of every legal action in every position, by turn, position and place."""
        rules = self.rules
        return [
            (
                rules.call("observe", state=state, role=rules.call("to_move", state=state)),
                rules.written(place, state),
            )
            for after in self.turns
            for state, successors in after.items()
            for place in range(len(successors))
        ]

    def strategy(self, probabilities: Sequence[float]) -> Strategy:
        """Return the strategy with these probabilities of `moves()`."""
        left = iter(probabilities)
        return [
            {state: [next(left) for _ in successors] for state, successors in after.items()} for after in self.turns
        ]

    def against_best_response(self, strategy: Strategy, role: str) -> Result:
        """Return what the strategy gets in a role if the opponent always makes the move that is best against it.

        Args:
            strategy: Probability of every legal move; what is missing to 1 is an illegal move.
            role: Role of the strategy.
        """
        draw = Result(0.0, 0.0, 0.0, 0.0)
        after_this: dict[Any, Result] = {}
        for turn in reversed(range(len(self.turns))):
            later, after_this = after_this, {}
            for state, successors in self.turns[turn].items():
                results = [
                    decided if (decided := self._decided(successor, role)) else later.get(successor, draw)
                    for successor in successors
                ]
                if self.rules.call("to_move", state=state) == role:
                    after_this[state] = self._mean(results, strategy[turn][state])
                else:
                    after_this[state] = max(results, key=lambda result: (result.other, -result.reward))
        first = [self._decided(start, role) or after_this[start] for start in self.starts]
        return _weighted([(result, 1 / len(first)) for result in first])

    def _decided(self, state: Any, role: str) -> Result | None:
        returns = self.rules.outcome(state)
        if returns is None:
            return None
        (other,) = set(self.rules.game.roles) - {role}
        return Result(returns[role], returns[other], float(returns[role] < 0), 0.0)

    def _mean(self, results: Sequence[Result], probabilities: Sequence[float]) -> Result:
        """Return the mean over the policy's moves, an illegal one among them."""
        config, illegal = self.rules.config, max(0.0, 1 - math.fsum(probabilities))
        if config.illegal == "random":
            share = illegal / len(results)
            mean = _weighted([(result, p + share) for result, p in zip(results, probabilities, strict=True)])
            return Result(mean.reward, mean.other, mean.lost, illegal + (1 - illegal) * mean.illegal)
        offence = Result(config.illegal_reward, config.illegal_other, float(config.illegal_reward < 0), 1.0)
        return _weighted([*zip(results, probabilities, strict=True), (offence, illegal)])


def _weighted(results: Sequence[tuple[Result, float]]) -> Result:
    """Return the mean of results with their probabilities."""
    total = math.fsum(p for _, p in results)
    return Result(
        *(
            math.fsum(getattr(result, name) * p for result, p in results) / total
            for name in ("reward", "other", "lost", "illegal")
        )
    )


def play_of(task: str, model: str, *, device: str = "auto", report: Callable[[int, int], None]) -> Play:
    """Compute the results of a model from the probability of every legal move in every position.

    Args:
        task: Spec of the game with its options.
        model: Model, as for `--model`.
        device: Device of the model.
        report: Told how many moves are done, and how many there are.

    Raises:
        UserError: the task is no game, or one that is too large; or the model gives no probability to the moves of a
            position as the game writes them, as with another style.
    """
    bound = load_task(task)
    game = bound.task.game
    if game is None:
        raise UserError(f"{task} is no game.")
    bound = bound.with_options(opponent=None, seat=None, split="test", size=STARTS)
    config = game.config.model_validate(bound.config.model_dump())
    rules = Rules(game, config)
    tree = Tree(rules, [rules.call("initial", seed=row.model_dump()["seed"]) for row in bound.rows()])
    moves = tree.moves()
    completer = Completer(model, device=device, stop=game.stop)
    logprobs: list[float] = []
    for start in range(0, len(moves), CHUNK):
        prompts, texts = zip(*moves[start : start + CHUNK], strict=True)
        logprobs += completer.logprobs(prompts, texts)
        report(len(logprobs), len(moves))
    probabilities = [math.exp(logprob) for logprob in logprobs]
    mass = math.fsum(probabilities) / tree.positions
    if mass < LEAST_MASS:
        raise UserError(
            f"{model} gives the legal moves, as {bound.spec} writes them, a probability of {mass:.1g} on average, too "
            f"little for exact results. Give the options of its training, as --task '{bound.name}?style=short'."
        )
    strategy = tree.strategy(probabilities)
    return Play({role: tree.against_best_response(strategy, role) for role in game.roles}, tree.positions)
