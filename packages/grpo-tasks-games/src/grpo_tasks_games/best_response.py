"""Exact results of a model against its best response and scripted players, in a small game of two."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NoReturn

from grpo_sdk import BoundTask, GrpoError, Rules, UserError, errors_named, load_task

MAX_OUTCOMES = 10_000
"""Largest number of outcomes of the draws of one move."""

MAX_DRAWS = 1_000
"""Largest number of draws for one move."""


class _Planned(random.Random):
    """A generator whose draws come out as planned, and at the first possibility beyond the plan.

    Args:
        plan: Place of the outcome of each draw among its possible ones.
    """

    def __init__(self, plan: Sequence[int]) -> None:
        super().__init__(0)
        self._plan = plan
        self.made: list[tuple[int, int]] = []
        """Outcome of every draw so far, and the number of possible ones."""

    def choice(self, seq: Any) -> Any:
        """Return the planned element."""
        if len(self.made) == MAX_DRAWS:
            raise _Uncountable
        place = self._plan[len(self.made)] if len(self.made) < len(self._plan) else 0
        element = seq[place]  # an empty sequence raises, as it does in play
        self.made.append((place, len(seq)))
        return element

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Return the planned number of a range."""
        return int(self.choice(range(start) if stop is None else range(start, stop, step)))

    def randint(self, a: int, b: int) -> int:
        """Return the planned number from a to b."""
        return self.randrange(a, b + 1)

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Shuffle in place, by one draw for each element but the first."""
        for last in range(len(x) - 1, 0, -1):
            other = self.randrange(last + 1)
            x[last], x[other] = x[other], x[last]

    def random(self) -> NoReturn:
        """Refuse: its outcomes cannot be listed."""
        raise _Uncountable

    def getrandbits(self, k: int) -> NoReturn:
        """Refuse, as `random` does; it is what every other method draws with."""
        raise _Uncountable


class _Uncountable(BaseException):
    """Draws whose outcomes cannot be listed; no player's `except Exception` keeps it."""


def move_probabilities(rules: Rules, player: str, state: Any) -> list[float]:
    """Return the probability of each legal action of a scripted player, in the game's order.

    Args:
        rules: The game.
        player: Name of the player.
        state: An undecided state.

    Raises:
        UserError: the player draws in another way than by `choice`, `randrange`, `randint` and `shuffle`, more than
            `MAX_DRAWS` times, or with more than `MAX_OUTCOMES` outcomes.
        ValueError: the player's action is not legal, which is a bug of the game.
    """
    probabilities = [0.0] * len(rules.legal(state))
    plan: list[int] = []
    for _ in range(MAX_OUTCOMES):
        draws = _Planned(plan)
        try:
            place = rules.choose(player, state, draws)
        except _Uncountable:
            raise UserError(
                f"{player}: its moves have no probabilities that are known, as it draws otherwise than by rng.choice, "
                f"rng.randrange, rng.randint and rng.shuffle, or more than {MAX_DRAWS:,} times. `grpo eval` measures "
                "play against it."
            ) from None
        probabilities[place] += 1 / math.prod(possible for _, possible in draws.made)
        following = _next_plan(draws.made)
        if following is None:
            return probabilities
        plan = following
    raise UserError(f"{player}: the draws of one of its moves have more than {MAX_OUTCOMES:,} outcomes.")


def _next_plan(made: Sequence[tuple[int, int]]) -> list[int] | None:
    """Return the plan after this one, in lexicographic order; None after the last one."""
    for last in range(len(made) - 1, -1, -1):
        place, possible = made[last]
        if place + 1 < possible:
            return [*(place for place, _ in made[:last]), place + 1]
    return None


MAX_POSITIONS = 20_000
"""Largest number of positions of a game; tic-tac-toe has 4,520 in which somebody moves."""

CHUNK = 512
"""Moves whose probabilities are computed, and positions that are visited, between two reports of progress."""

UNIFORM = "random"
"""Name of the player whose legal moves are equally likely."""

LEAST_MASS = 0.1
"""Least mean probability of the legal moves in the game's own form; below it, the model has another form."""

Strategy = Sequence[Mapping[Any, Sequence[float]]]
"""Turn -> position -> probability of each legal action, in the game's order; they add up to at most 1."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a policy gets in one seat against an opponent.

    Attributes:
        reward: Mean return of the policy.
        other: Mean return of the opponent.
        lost: Probability that the policy's return is negative, illegal moves included.
        illegal: Probability of an illegal move.
    """

    reward: float
    other: float
    lost: float
    illegal: float


@dataclass(frozen=True, slots=True)
class Play:
    """A policy against the best response to it and against scripted players, in every seat.

    Attributes:
        seats: Role of the policy -> its result against the best response.
        against: Scripted player -> role of the policy -> its result.
        positions: Number of positions in which somebody moves.
        starts: Number of different first positions.
        rows: Number of first positions, equal ones counted; the results are means over these.
    """

    seats: Mapping[str, Result]
    against: Mapping[str, Mapping[str, Result]]
    positions: int
    starts: int
    rows: int

    @property
    def exploitability(self) -> float:
        """Mean return of the best responses to both seats: NashConv / 2 where returns add up to 0."""
        return math.fsum(seat.other for seat in self.seats.values()) / len(self.seats)

    def cells(self) -> dict[str, str]:
        """Return exploitability and results for a table, by their heads."""
        return {"exploitability": f"{self.exploitability:.4f}", **seat_cells(self.seats)}

    def as_json(self) -> dict[str, Any]:
        """Return exploitability and results for JSON."""
        return {
            "exploitability": self.exploitability,
            "positions": self.positions,
            "starts": self.starts,
            "rows": self.rows,
            "seats": seats_as_json(self.seats),
            "against": {player: seats_as_json(seats) for player, seats in self.against.items()},
        }


def seats_as_json(seats: Mapping[str, Result]) -> dict[str, Any]:
    """Return the results of every seat for JSON."""
    return {role: asdict(result) for role, result in seats.items()}


def seat_cells(seats: Mapping[str, Result]) -> dict[str, str]:
    """Return the results of every seat for a table, by their heads."""
    return {
        f"{what} as {role}": f"{getattr(result, what):.4f}"
        for role, result in seats.items()
        for what in ("lost", "illegal")
    }


class Tree:
    """Every position that legal moves reach from the starts, by the number of moves made.

    Args:
        rules: A game of two and its options.
        starts: First positions, with the same probability each.
        report: Told how many positions are visited, of a number that is not known (0).

    Raises:
        UserError: the game has another number of roles, more than `MAX_POSITIONS`, or positions without a hash.
    """

    def __init__(
        self, rules: Rules, starts: Sequence[Any], report: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
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
                    is_known = state in after
                except TypeError as error:
                    raise UserError(
                        f"{name}: positions must be hashable, such as tuples and strings: {error}."
                    ) from None
                if is_known or rules.outcome(state) is not None:
                    continue
                after[state] = [rules.call("apply", state=state, action=action) for action in rules.legal(state)]
                self.positions += 1
                if self.positions % CHUNK == 0:
                    report(self.positions, 0)
                if self.positions > MAX_POSITIONS:
                    raise UserError(
                        f"{name} has more than {MAX_POSITIONS:,} positions: too many for exact results. "
                        "`grpo eval` measures play against its scripted opponents."
                    )
            self.turns.append(after)
            layer = [successor for successors in after.values() for successor in successors]

    def moves(self) -> list[tuple[Any, Any]]:
        """Return prompt and completion of every legal action in every position, by turn, position and place.

        Raises:
            UserError: the game writes two actions of a position in the same way.
        """
        rules, moves = self.rules, []
        for after in self.turns:
            for state, successors in after.items():
                prompt = rules.call("observe", state=state, role=self.to_move(state))
                texts = [rules.written(place, state) for place in range(len(successors))]
                if len(set(texts)) < len(texts):
                    raise UserError(
                        f"game {rules.game.name!r}: write() gives the same text for two actions, in state "
                        f"{state!r:.80}: {', '.join(texts):.80}."
                    )
                moves += [(prompt, text) for text in texts]
        return moves

    def to_move(self, state: Any) -> str:
        """Return the role to move.

        Raises:
            UserError: the game has no such role.
        """
        role: str = self.rules.call("to_move", state=state)
        if role not in self.rules.game.roles:
            raise UserError(f"game {self.rules.game.name!r}: to_move() gave {role!r:.80}, which is none of its roles.")
        return role

    def strategy(self, probabilities: Sequence[float]) -> Strategy:
        """Return the strategy with these probabilities of `moves()`."""
        left = iter(probabilities)
        return [
            {state: [next(left) for _ in successors] for state, successors in after.items()} for after in self.turns
        ]

    def against_best_response(self, strategy: Strategy, role: str) -> Result:
        """Return what the strategy gets in a role if the opponent always makes the move that is best against it.

        Of the opponents with the greatest return, it is the one that makes the strategy lose most often.
        """
        return self._against(strategy, role, lambda state, results: max(results, key=_harm))

    def against_player(self, strategy: Strategy, role: str, player: str) -> Result:
        """Return what the strategy gets in a role against a scripted player.

        Raises:
            UserError: the probabilities of the player's moves are not known.
        """
        return self._against(
            strategy,
            role,
            lambda state, results: _weighted(
                list(zip(results, move_probabilities(self.rules, player, state), strict=True))
            ),
        )

    def _against(self, strategy: Strategy, role: str, reply: Callable[[Any, Sequence[Result]], Result]) -> Result:
        """Return what the strategy gets in a role.

        Args:
            strategy: Probability of every legal move; what is missing to 1 is an illegal move.
            role: Role of the strategy.
            reply: Position and the results of its legal moves -> the result of the opponent's reply there.
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
                if self.to_move(state) == role:
                    after_this[state] = self._mean(results, strategy[turn][state])
                else:
                    after_this[state] = reply(state, results)
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
            later = math.fsum(result.illegal * p for result, p in zip(results, probabilities, strict=True))
            return Result(mean.reward, mean.other, mean.lost, min(1.0, illegal + later))
        offence = Result(config.illegal_reward, config.illegal_other, float(config.illegal_reward < 0), 1.0)
        return _weighted([*zip(results, probabilities, strict=True), (offence, illegal)])


def _harm(result: Result) -> tuple[float, float, float]:
    return round(result.other, 12), result.lost, -result.reward  # rounded, since equal means differ in the last digit


def _weighted(results: Sequence[tuple[Result, float]]) -> Result:
    """Return the mean of results with their probabilities."""
    total = math.fsum(p for _, p in results)
    return Result(
        *(
            math.fsum(getattr(result, name) * p for result, p in results) / total
            for name in ("reward", "other", "lost", "illegal")
        )
    )


def play_of(
    task: str,
    model: str,
    *,
    against: Sequence[str] = (),
    starts: Sequence[Any] | None = None,
    device: str = "auto",
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Play:
    """Compute the results of a model from the probability of every legal move in every position.

    Args:
        task: Spec of the game with its options.
        model: Model, as for `--model`, or `random`.
        against: Scripted players of the game, beside the best response.
        starts: First positions, with the same probability each; by default those of the test rows.
        device: Device of the model.
        report: Told how many positions, and then how many moves are done, of how many.

    Raises:
        UserError: the game is too large; the model gives hardly any probability to the moves as the game writes them;
            the probabilities of a scripted player's moves are not known.
        DataError: the game raises an exception.
    """
    bound = load_task(task)
    game = bound.task.game
    assert game is not None, f"{task} is a game, as the command has checked"
    bound = bound.with_options(opponent=None, seat=None, split="test")
    rules = Rules(game, game.config.model_validate(bound.config.model_dump()))
    with _bugs_named(game.name):
        if starts is None:
            starts = [rules.call("initial", seed=row.model_dump()["seed"]) for row in bound.rows()]
        tree = Tree(rules, starts, report)
        for player, start in product(against, dict.fromkeys(starts)):  # refused before the model is asked
            if rules.outcome(start) is None:
                move_probabilities(rules, player, start)
        moves = tree.moves()
        if model == UNIFORM:
            probabilities = [1 / len(after) for turn in tree.turns for after in turn.values() for _ in after]
        else:
            probabilities = completion_probabilities(model, moves, game.stop, device, report)
            _check_form(model, math.fsum(probabilities) / max(1, tree.positions), bound)
        strategy = tree.strategy(probabilities)
        seats = {role: tree.against_best_response(strategy, role) for role in game.roles}
        scripted = {
            player: {role: tree.against_player(strategy, role, player) for role in game.roles} for player in against
        }
    return Play(seats, scripted, tree.positions, len(set(tree.starts)), len(starts))


def completion_probabilities(
    model: str,
    moves: Sequence[tuple[Any, str]],
    stop: tuple[str, ...],
    device: str,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[float]:
    """Return the probability of each completion after its prompt."""
    from grpo_core import Completer  # here, because it imports torch

    completer = Completer(model, device=device, stop=stop)
    keys = [(repr(prompt), text) for prompt, text in moves]  # a prompt may be messages, which have no hash
    places = dict(zip(keys, range(len(keys)), strict=True))  # one of those that look alike, as with hidden cards
    different = [moves[place] for place in places.values()]
    logprobs: list[float] = []
    for start in range(0, len(different), CHUNK):
        prompts, texts = zip(*different[start : start + CHUNK], strict=True)
        logprobs += completer.logprobs(prompts, texts)
        report(len(logprobs), len(different))
    probabilities = dict(zip(places, map(math.exp, logprobs), strict=True))
    return [probabilities[key] for key in keys]


def _check_form(model: str, mass: float, task: BoundTask) -> None:
    """Refuse a model that writes its moves in another form, or has not learned the game.

    Args:
        model: The model.
        mass: Probability of a legal move in the game's form, on average over the positions.
        task: The game.
    """
    if mass >= LEAST_MASS:
        return
    style = task.config.model_dump().get("style")
    hint = f" It was perhaps trained with another style than {style}: --task 'GAME?style=…'." if style else ""
    raise UserError(
        f"{model} gives the legal moves of {task.name}, in the form in which write() gives them, a probability of "
        f"{mass:.1g} on average: too little for exact results. It has not learned them in this form.{hint}"
    )


@contextmanager
def _bugs_named(name: str) -> Iterator[None]:
    """Turn what a game raises into an error of one line."""
    try:
        with errors_named(f"game {name!r}", but=ValueError):
            yield
    except GrpoError:
        raise
    except ValueError as error:
        if str(error).startswith(f"game {name!r}: "):  # from Rules, which says it all
            raise UserError(f"{error}.") from None
        with errors_named(f"game {name!r}"):
            raise
