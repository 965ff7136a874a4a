"""The rules of Kuhn poker (Kuhn 1950): three cards, an ante of 1, one bet of 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations

from grpo_tasks_games.style import ROLES

CARDS = "JQK"
"""Cards, lowest first."""

PASS, BET = "pass", "bet"
ACTIONS = (PASS, BET)

DEALS = tuple("".join(pair) for pair in permutations(CARDS, 2))
"""The six deals: the cards of the first and the second player."""

SHOWDOWNS: Mapping[tuple[str, ...], int] = {(PASS, PASS): 1, (BET, BET): 2, (PASS, BET, BET): 2}
"""Actions after which the higher card wins -> chips won."""

FOLDS: Mapping[tuple[str, ...], str] = {(BET, PASS): "first", (PASS, BET, PASS): "second"}
"""Actions after which a player has folded -> role that wins the other's ante."""


@dataclass(frozen=True, slots=True)
class Hand:
    """A deal and the actions so far.

    Attributes:
        cards: Cards of the first and the second player.
        actions: Actions, in order.
    """

    cards: str
    actions: tuple[str, ...] = ()


def to_move(hand: Hand) -> str:
    """Return the role to move; the two take turns."""
    return ROLES[len(hand.actions) % 2]


def legal(hand: Hand) -> list[str]:
    """Return both actions: after a bet, a pass folds and a bet calls."""
    return list(ACTIONS)


def apply(hand: Hand, action: str) -> Hand:
    """Pass or bet."""
    return replace(hand, actions=(*hand.actions, action))


def outcome(hand: Hand) -> Mapping[str, float] | None:
    """Return the chips won: ±1 after two passes or a fold, ±2 after a called bet."""
    if hand.actions in FOLDS:
        winner, chips = FOLDS[hand.actions], 1
    elif hand.actions in SHOWDOWNS:
        first, second = map(CARDS.index, hand.cards)
        winner, chips = ROLES[first < second], SHOWDOWNS[hand.actions]
    else:
        return None
    return {role: float(chips if role == winner else -chips) for role in ROLES}


def card_of(hand: Hand, role: str) -> str:
    """Return the card of a player."""
    return hand.cards[ROLES.index(role)]


def set_name(card: str, actions: tuple[str, ...]) -> str:
    """Return the name of an information set: the card and the first letter of each action, as `Kpb`."""
    return card + "".join(action[0] for action in actions)
