"""Exact analysis of Kuhn poker: values, best responses and exploitability of strategies, and those of models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from grpo_sdk import UserError, load_task
from grpo_tasks_games import best_response
from grpo_tasks_games.best_response import Result
from grpo_tasks_games.kuhn.game import (
    ACTIONS,
    BET,
    CARDS,
    DEALS,
    DECISIONS,
    GAME,
    PASS,
    Hand,
    KuhnConfig,
    apply,
    card_of,
    information_sets,
    outcome,
    set_name,
    to_move,
)
from grpo_tasks_games.style import ROLES

Strategy = Mapping[str, float]
"""Name of each information set of both seats (`J`, `Jpb`, `Jp`, `Jb`, …) -> probability of a bet."""

NAMES = tuple(set_name(card, actions) for role in ROLES for card in CARDS for actions in DECISIONS[role])
"""The twelve information sets, those of the first player first."""


def strategy_from(probabilities: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the strategy of a model, given that its moves are legal: P(bet) / (P(bet) + P(pass)).

    Args:
        probabilities: Name of each information set -> action (`pass`, `bet`) -> probability of its completion.

    Raises:
        UserError: an information set or action is missing, or no legal action has a probability above 0.
    """
    strategy = {}
    for name in NAMES:
        actions = probabilities.get(name, {})
        masses = [actions.get(action, math.nan) for action in ACTIONS]
        if not all(mass >= 0 for mass in masses) or not 0 < sum(masses) < math.inf:
            raise UserError(
                f"information set {name!r} has {dict(actions)}; it needs a probability of {PASS!r} and of {BET!r}, not "
                "both 0."
            )
        strategy[name] = masses[ACTIONS.index(BET)] / sum(masses)
    return strategy


def expected_value(strategy: Strategy) -> float:
    """Return the chips per game that the first player wins when both play the strategy.

    Raises:
        UserError: an information set is missing, or its value is not a probability.
    """
    _check(strategy)
    return math.fsum(_value(Hand(deal), strategy, "first") for deal in DEALS) / len(DEALS)


def best_response_value(strategy: Strategy, role: str) -> float:
    """Return the most chips per game that a player in `role` can win against the strategy in the other seat.

    A player decides separately for each card, at two information sets, so there are four pure plans per card.

    Raises:
        UserError: as for `expected_value`; there is no such role.
    """
    _check(strategy)
    if role not in ROLES:
        raise UserError(f"role {role!r} must be {' or '.join(ROLES)}.")
    return math.fsum(max(_plans(strategy, role, card)) for card in CARDS) / len(DEALS)


def _plans(strategy: Strategy, role: str, card: str) -> Iterable[float]:
    """Yield the winnings of each pure plan with a card, summed over the two deals with that card."""
    names = [set_name(card, actions) for actions in DECISIONS[role]]
    deals = [Hand(deal) for deal in DEALS if card_of(Hand(deal), role) == card]
    for plan in product((0.0, 1.0), repeat=len(names)):
        response = {**strategy, **dict(zip(names, plan, strict=True))}
        yield math.fsum(_value(hand, response, role) for hand in deals)


def exploitability(strategy: Strategy) -> float:
    """Return half of the winnings of best responses to both seats, in chips per game: 0 exactly in equilibrium.

    This is OpenSpiel's `exploitability`, NashConv / 2. Uniformly random play has 11/24 = 0.458333.

    Raises:
        UserError: as for `expected_value`.
    """
    return math.fsum(best_response_value(strategy, role) for role in ROLES) / len(ROLES)


def _value(hand: Hand, strategy: Strategy, role: str) -> float:
    """Return the expected chips of `role` from a hand on."""
    returns = outcome(hand)
    if returns is not None:
        return returns[role]
    bet = strategy[set_name(card_of(hand, to_move(hand)), hand.actions)]
    return (1 - bet) * _value(apply(hand, PASS), strategy, role) + bet * _value(apply(hand, BET), strategy, role)


def _check(strategy: Strategy) -> None:
    for name in NAMES:
        bet = strategy.get(name, math.nan)
        if not 0 <= bet <= 1:
            raise UserError(
                f"a strategy needs the probability of a bet in each of {', '.join(NAMES)}; {name!r} has "
                f"{'none' if name not in strategy else bet}."
            )


@dataclass(frozen=True, slots=True)
class Play:
    """Strategy of a model.

    Attributes:
        strategy: Information set -> probability of a bet, given a legal move.
        illegal: Probability, averaged over the information sets, of a completion other than the two moves as demos
            write them.
        against: Scripted player -> role of the model -> its result.
    """

    strategy: Mapping[str, float]
    illegal: float
    against: Mapping[str, Mapping[str, Result]]

    @property
    def exploitability(self) -> float:
        """Exploitability, in chips per game."""
        return exploitability(self.strategy)

    @property
    def value(self) -> float:
        """Value of self-play for the first player, in chips per game; −1/18 in equilibrium."""
        return expected_value(self.strategy)

    def cells(self) -> dict[str, str]:
        """Return the results for a table, by their heads; of the bets, `Jpb` is a jack after pass and bet."""
        return {
            "exploitability": f"{self.exploitability:.4f}",
            "value of first": f"{self.value:+.4f}",
            "illegal": f"{self.illegal:.4f}",
            "P(bet)": " ".join(f"{name}={bet:.2f}" for name, bet in self.strategy.items()),
        }

    def as_json(self) -> dict[str, Any]:
        """Return exploitability, value and strategy for JSON."""
        found = {
            "exploitability": self.exploitability,
            "value": self.value,
            "illegal": self.illegal,
            "strategy": dict(self.strategy),
        }
        against = {player: best_response.seats_as_json(seats) for player, seats in self.against.items()}
        return {**found, "against": against} if against else found


def play_of(
    task: str,
    model: str,
    *,
    against: Sequence[str] = (),
    device: str = "auto",
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Play:
    """Compute the strategy of a model from the probability of every move in every information set.

    Args:
        task: Spec `games.kuhn_poker` with its options.
        model: Model, as for `--model`, or `random`.
        against: Scripted players of the game.
        device: Device of the model.
        report: Told how many moves are done, of how many.

    Raises:
        UserError: the task is another one, or the probabilities of both moves underflow, as with another style.
    """
    bound = load_task(task)
    if not isinstance(bound.config, KuhnConfig):
        raise UserError(f"{bound.name} is not games.kuhn_poker, the game whose exploitability is exact.")
    sets = information_sets(bound.config)
    played: Mapping[str, Mapping[str, Result]] = {}
    if against:  # its best response sees both cards, and is not asked for
        deals = [Hand(deal) for deal in DEALS]
        played = best_response.play_of(task, model, against=against, starts=deals, device=device).against
    if model == "random":
        return Play({known.name: 1 / len(ACTIONS) for known in sets}, 0.0, played)
    moves = [(known.prompt, text) for known in sets for text in known.completions.values()]
    found = iter(best_response.completion_probabilities(model, moves, GAME.stop, device, report))
    probabilities = {known.name: {action: next(found) for action in known.completions} for known in sets}
    legal = [math.fsum(by_action.values()) for by_action in probabilities.values()]
    if not all(legal):
        raise UserError(
            f"{model} gives no probability to {' or '.join(ACTIONS)} in some information sets, with the prompts of "
            f"style={bound.config.style}. Give the options that it was trained with, as "
            "--task 'games.kuhn_poker?style=short'."
        )
    return Play(strategy_from(probabilities), 1 - math.fsum(legal) / len(legal), played)
