"""`games.kuhn_poker` (Kuhn 1950), the smallest game in which bluffing is optimal: three cards, one bet of 1."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations, product

from pydantic import Field

from grpo_sdk import Game, Prompt, UserError
from grpo_tasks_games.players import weak_demos
from grpo_tasks_games.style import COMPLETION_TOKENS, ROLES, STOP, StyledConfig, ask, read_move, reply

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

DECISIONS: Mapping[str, tuple[tuple[str, ...], ...]] = {"first": ((), (PASS, BET)), "second": ((PASS,), (BET,))}
"""Role -> the actions after which the role is to move."""

MAX_ALPHA = 1 / 3
"""Largest probability of a bluff with the jack by the first player in equilibrium."""

ILLEGAL_WORDS = ("call", "raise")
"""Words of poker that are no moves in this game, for demos with an illegal move."""


class KuhnConfig(StyledConfig):
    """Options of `games.kuhn_poker`.

    Attributes:
        illegal_reward: Loss for an illegal move: that of the worst legal game, since a smaller one would make illegal
            moves the best answer to a bad hand.
        illegal_other: The opponent's gain for it.
        alpha: Equilibrium that `opponent=nash` plays: how often it bluffs with the jack as the first player, 0 to 1/3.
    """

    illegal_reward: float = -2.0
    illegal_other: float = 2.0
    alpha: float = Field(default=0.2, ge=0, le=MAX_ALPHA)


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


def initial(seed: int, config: KuhnConfig) -> Hand:
    """Return one of the six deals, each with the same probability."""
    return Hand(random.Random(seed).choice(DEALS))


def render(hand: Hand) -> str:
    """Return both cards and the actions so far."""
    cards = ", ".join(f"{role} {card}" for role, card in zip(ROLES, hand.cards, strict=True))
    return f"{cards}: {' '.join(hand.actions) or '-'}"


def observe(hand: Hand, role: str, config: KuhnConfig) -> Prompt:
    """Return the prompt: the rules, the player's own card, the actions so far, and the form of the answer."""
    card = card_of(hand, role)
    if hand.actions[-1:] == (BET,):
        meaning = "pass gives up your ante; bet calls, and the higher card wins 2"
    elif hand.actions:
        meaning = "pass ends the game, and the higher card wins 1; bet raises the stake to 2"
    else:
        meaning = "pass leaves it to the other; bet raises the stake to 2"
    done = ", ".join(f"{ROLES[place % 2]} {action}" for place, action in enumerate(hand.actions)) or "nothing"
    return ask(
        f"You are the {role} player in a game of Kuhn poker. There are three cards, J < Q < K. Each player has put 1 "
        f"chip into the pot and got one card; a bet is 1 more.\n\n"
        f"Your card: {card}\nDone so far: {done}\nYour moves: {meaning}.",
        " ".join(["kuhn_poker", card, *hand.actions]),
        slot="move",
        sample=PASS,
        thought=_thought(card),
        style=config.style,
    )


def _thought(card: str) -> str:
    return f"I hold {card}."


def parse(text: str, hand: Hand) -> str:
    """Read the word of `<answer>[bet]</answer>`; brackets and tag may be left out."""
    return read_move(text, f"({'|'.join(ACTIONS)})")[1]


def write(action: str, hand: Hand, config: KuhnConfig) -> str:
    """Return the completion that makes a move."""
    return reply(action, _thought(card_of(hand, to_move(hand))), config.style)


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


def equilibrium(hand: Hand, rng: random.Random, config: KuhnConfig) -> str:
    """Return a move drawn from `nash(alpha)`; perfect play in this game is a mixed strategy."""
    bet = nash(config.alpha)[set_name(card_of(hand, to_move(hand)), hand.actions)]
    return BET if rng.random() < bet else PASS


def strange(hand: Hand, rng: random.Random) -> str:
    """Return a word that is not a move."""
    return rng.choice(ILLEGAL_WORDS)


def demos(config: KuhnConfig) -> Iterator[tuple[Prompt, str]]:
    """Yield random moves, some of them illegal, some of `equilibrium`."""
    return weak_demos(GAME, config, wrong=strange, good=partial(equilibrium, config=config))


@dataclass(frozen=True, slots=True)
class InformationSet:
    """Everything that a player knows when it decides.

    Attributes:
        name: Key of the information set in a `Strategy`.
        role: Role of the player to move.
        card: Card of the player.
        actions: Actions so far.
        prompt: Prompt of the player.
        completions: Action -> the completion that makes it.
    """

    name: str
    role: str
    card: str
    actions: tuple[str, ...]
    prompt: Prompt
    completions: Mapping[str, str]


def information_sets(config: KuhnConfig | None = None) -> tuple[InformationSet, ...]:
    """Return the twelve information sets with their prompts, from which a model's exact strategy can be computed."""
    config = config or KuhnConfig()
    sets = []
    for role, card in product(ROLES, CARDS):
        for actions in DECISIONS[role]:
            hand = next(Hand(deal, actions) for deal in DEALS if card_of(Hand(deal), role) == card)
            completions = {action: write(action, hand, config) for action in ACTIONS}
            prompt = observe(hand, role, config)
            sets.append(InformationSet(set_name(card, actions), role, card, actions, prompt, completions))
    return tuple(sets)


GAME = Game(
    name="kuhn_poker",
    roles=ROLES,
    initial=initial,
    to_move=to_move,
    observe=observe,
    parse=parse,
    apply=apply,
    legal=legal,
    outcome=outcome,
    render=render,
    write=write,
    config=KuhnConfig,
    players={"nash": equilibrium},
    maximum=2.0,
    max_turns=3,
    version="1",
    stop=STOP,
    max_completion_length=COMPLETION_TOKENS,
    demos=demos,
    default_model="games-tiny",
)
"""Returns: chips, ±1 or ±2."""
