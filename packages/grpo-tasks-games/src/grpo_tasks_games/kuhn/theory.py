"""Exact analysis of Kuhn poker: values, best responses, exploitability and equilibria."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import product

from grpo_sdk import UserError
from grpo_tasks_games.kuhn.rules import (
    ACTIONS,
    BET,
    CARDS,
    DEALS,
    PASS,
    Hand,
    apply,
    card_of,
    outcome,
    set_name,
    to_move,
)
from grpo_tasks_games.style import ROLES

Strategy = Mapping[str, float]
"""Name of each information set of both seats (`J`, `Jpb`, `Jp`, `Jb`, …) -> probability of a bet."""

DECISIONS: Mapping[str, tuple[tuple[str, ...], ...]] = {"first": ((), (PASS, BET)), "second": ((PASS,), (BET,))}
"""Role -> the actions after which the role is to move."""

NAMES = tuple(set_name(card, actions) for role in ROLES for card in CARDS for actions in DECISIONS[role])
"""The twelve information sets, those of the first player first."""

MAX_ALPHA = 1 / 3
"""Largest probability of a bluff with the jack by the first player in equilibrium."""


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


def nash(alpha: float = 0.0) -> dict[str, float]:
    """Return an equilibrium; all have value −1/18 for the first player (Kuhn 1950).

    Args:
        alpha: Probability of a bluff with the jack by the first player, 0 to 1/3, which determines the others.

    Raises:
        UserError: no equilibrium has this alpha.
    """
    if not 0 <= alpha <= MAX_ALPHA:
        raise UserError(f"alpha={alpha} must be from 0 to 1/3.")
    first = {"J": alpha, "Jpb": 0.0, "Q": 0.0, "Qpb": alpha + 1 / 3, "K": 3 * alpha, "Kpb": 1.0}
    second = {"Jp": 1 / 3, "Jb": 0.0, "Qp": 0.0, "Qb": 1 / 3, "Kp": 1.0, "Kb": 1.0}
    return first | second


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
