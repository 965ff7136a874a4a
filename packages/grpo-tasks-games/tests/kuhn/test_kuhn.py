import random
from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_sdk import Invalid, UserError, load_task
from grpo_tasks_games.kuhn import (
    KuhnConfig,
    best_response_value,
    expected_value,
    exploitability,
    information_sets,
    nash,
    strategy_from,
)
from grpo_tasks_games.kuhn.game import DEALS, GAME, Hand, apply, equilibrium, initial, observe, outcome, parse
from grpo_tasks_games.kuhn.theory import NAMES

CONFIG, SHORT = KuhnConfig(), KuhnConfig(style="short")
SETS = information_sets()
STRATEGIES = st.fixed_dictionaries(dict.fromkeys(NAMES, st.floats(0, 1)))


def test_the_prompt_shows_the_players_own_card_only() -> None:
    prompt = observe(Hand("QK", ("pass", "bet")), "first", CONFIG)
    assert prompt.partition("\n\nThink first")[0] == (
        "You are the first player in a game of Kuhn poker. There are three cards, J < Q < K. Each player has put 1 "
        "chip into the pot and got one card; a bet is 1 more.\n\n"
        "Your card: Q\nDone so far: first pass, second bet\n"
        "Your moves: pass gives up your ante; bet calls, and the higher card wins 2."
    )
    assert prompt.endswith("<think>I hold Q.</think><answer>[pass]</answer>\n")
    assert observe(Hand("QK", ("pass",)), "second", SHORT) == "kuhn_poker K pass\n"
    assert observe(Hand("QK"), "first", SHORT) == observe(Hand("QJ"), "first", SHORT) == "kuhn_poker Q\n"


@pytest.mark.parametrize(
    ("action", "texts"), [("bet", ["<answer>[bet]</answer>", "bet."]), ("pass", ["[Pass]", "PASS"])]
)
def test_moves(action: str, texts: list[str]) -> None:
    assert [parse(text, Hand("QK")) for text in texts] == [action] * len(texts)


@pytest.mark.parametrize(
    "text", ["", "passing", "[fold]", "[bet] [call]", "not bet", "pa\N{LATIN SMALL LETTER LONG S}s"]
)
def test_what_is_no_move(text: str) -> None:
    with pytest.raises(Invalid, match="move"):
        parse(text, Hand("QK"))


@pytest.mark.parametrize(
    ("cards", "actions", "first"),
    [
        ("KQ", "pp", 1),
        ("QK", "pp", -1),
        ("JK", "bp", 1),  # the second folds the better card
        ("KJ", "pbp", -1),  # the first does
        ("KQ", "bb", 2),
        ("JQ", "pbb", -2),
    ],
)
def test_chips(cards: str, actions: str, first: float) -> None:
    hand = Hand(cards)
    for letter in actions:
        assert outcome(hand) is None
        hand = apply(hand, {"p": "pass", "b": "bet"}[letter])
    assert outcome(hand) == {"first": first, "second": -first}


def test_each_deal_is_as_likely() -> None:
    counts = Counter(initial(seed, CONFIG).cards for seed in range(6000))
    assert set(counts) == set(DEALS)
    # 1000 each, with a standard deviation of sqrt(6000 · 1/6 · 5/6) = 29; four of these either way.
    assert all(abs(count - 1000) < 116 for count in counts.values())


def test_there_are_twelve_information_sets() -> None:
    sets = information_sets(SHORT)
    assert tuple(each.name for each in sets) == NAMES and len(set(NAMES)) == 12
    shown = {f"kuhn_poker K{moves}\n" for moves in ("", " pass bet", " pass", " bet")}
    assert {each.prompt for each in sets if each.card == "K"} == shown
    assert len({each.prompt for each in information_sets()}) == 12
    for each in sets:
        assert each.completions == {"pass": "pass", "bet": "bet"}
        assert each.role == ("second" if len(each.actions) == 1 else "first")


def test_uniform_play_is_exploited_by_what_openspiel_reports() -> None:
    # A best response as the first player: K wins 3/2 however it is played (bet: half are called, (2 + 1) / 2; pass:
    # half are bet into and called). Q bets: half fold, and half of the calls lose: 1/2 · 1 + 1/2 · 0 = 1/2. J bets:
    # 1/2 · 1 − 1/2 · 2 = −1/2. On average (3/2 + 1/2 − 1/2) / 3 = 1/2.
    # As the second: K bets and calls: (3/2 + 2) / 2 = 7/4. Q bets on a pass, 1/2, and calls or folds at 0 or −1:
    # 1/4. J bets on a pass, −1/2, and folds, −1: −3/4. On average (7/4 + 1/4 − 3/4) / 3 = 5/12.
    uniform = dict.fromkeys(NAMES, 0.5)
    assert best_response_value(uniform, "first") == pytest.approx(1 / 2)
    assert best_response_value(uniform, "second") == pytest.approx(5 / 12)
    assert exploitability(uniform) == pytest.approx(11 / 24) == pytest.approx(0.458333, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.2, 1 / 3])
def test_equilibria_cannot_be_exploited(alpha: float) -> None:
    assert exploitability(nash(alpha)) == pytest.approx(0.0, abs=1e-12)
    assert expected_value(nash(alpha)) == pytest.approx(-1 / 18)


@settings(max_examples=20)  # each tries 2 · 64 pure strategies
@given(STRATEGIES)
def test_a_best_response_is_the_best_of_all_pure_strategies(strategy: dict[str, float]) -> None:
    for role, sign in (("first", 1), ("second", -1)):
        mine = [each.name for each in SETS if each.role == role]
        pure = [dict(zip(mine, plan, strict=True)) for plan in product((0.0, 1.0), repeat=6)]
        best = max(sign * expected_value({**strategy, **plan}) for plan in pure)
        assert best_response_value(strategy, role) == pytest.approx(best)
        assert best >= sign * expected_value(strategy) - 1e-9
    assert exploitability(strategy) >= -1e-12


def test_the_nash_player_plays_its_equilibrium() -> None:
    rng = random.Random(0)
    bets = sum(equilibrium(Hand("JQ"), rng, KuhnConfig(alpha=0.25)) == "bet" for _ in range(4000))
    # 1000 expected, standard deviation sqrt(4000 · 1/4 · 3/4) = 27.
    assert abs(bets - 1000) < 110
    assert {equilibrium(Hand("KQ", ("pass", "bet")), rng, CONFIG) for _ in range(20)} == {"bet"}
    assert GAME.scripted == ("random", "nash")


def test_a_strategy_from_probabilities() -> None:
    given = {name: {"pass": 0.3, "bet": 0.1} for name in NAMES}  # the other 0.6 went to what is no move
    assert strategy_from(given) == pytest.approx(dict.fromkeys(NAMES, 0.25))
    assert exploitability(strategy_from(given)) > 0


@pytest.mark.parametrize("wrong", [{}, {"pass": 0.5}, {"pass": 0.0, "bet": 0.0}, {"pass": -1.0, "bet": 2.0}])
def test_probabilities_that_give_no_strategy_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match="'Jpb'"):
        strategy_from({**{name: {"pass": 0.5, "bet": 0.5} for name in NAMES}, "Jpb": wrong})


def test_what_is_no_strategy_is_refused() -> None:
    with pytest.raises(UserError, match="'Kb' has none"):
        exploitability({name: 0.5 for name in NAMES if name != "Kb"})
    with pytest.raises(UserError, match=r"'J' has 1\.5"):
        expected_value({**nash(), "J": 1.5})
    with pytest.raises(UserError, match="alpha"):
        nash(0.5)
    with pytest.raises(UserError, match="'third'"):
        best_response_value(nash(), "third")


def test_nonsense_never_pays() -> None:
    # The worst that a legal move can cost is 2; with less for an illegal one, nonsense would save a called jack.
    task = load_task("games.kuhn_poker?size=1")
    assert task.config.illegal_reward == -task.task.game.maximum  # type: ignore[attr-defined, union-attr] # a game
