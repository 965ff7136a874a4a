import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_sdk import UserError
from grpo_tasks_games.elo import PRIOR, Rating, ratings


def test_two_players_differ_by_the_log_odds_of_a_point() -> None:
    # 0.5 more of each result: (200 + 0.5 + 0.25) points of one, (20 + 0.5 + 0.25) of the other, with no draws.
    # 400 · log10(200.75 / 20.75) = 394.2 points.
    assert PRIOR == 0.5
    rated = ratings({("strong", "weak"): (200, 0, 20)}, "weak", resamples=10)
    assert rated["strong"].elo == pytest.approx(394.2, abs=0.1)
    assert rated["weak"] == Rating(0.0, 0.0, 0.0)
    assert list(rated) == ["strong", "weak"]


def test_a_draw_is_half_a_win() -> None:
    def elo(*counts: int) -> float:
        return ratings({("a", "b"): counts}, "b", resamples=10)["a"].elo

    assert elo(10, 20, 10) == pytest.approx(0, abs=1e-3) and elo(20, 0, 20) == pytest.approx(0, abs=1e-3)
    assert elo(10, 20, 0) == pytest.approx(elo(20, 0, 10), abs=1e-2)


def test_differences_add_up_along_a_chain() -> None:
    # 400 · log10(1000.75 / 100.75) = 398.8 points a link.
    rated = ratings({("a", "b"): (1000, 0, 100), ("b", "c"): (1000, 0, 100)}, "c", resamples=10)
    assert rated["b"].elo == pytest.approx(398.8, abs=0.1)
    assert rated["a"].elo == pytest.approx(797.7, abs=0.2)


def test_winning_everything_is_no_proof_of_infinity() -> None:
    rated = ratings({("a", "b"): (100, 0, 0)}, "b", resamples=300)
    # 400 · log10(100.75 / 0.75) = 851
    assert rated["a"].elo == pytest.approx(851, abs=1)
    assert 500 < rated["a"].low < rated["a"].elo < rated["a"].high + 1e-6


def test_intervals_are_those_of_the_theory() -> None:
    # The score of 400 games without draws at 3/4 has a standard deviation of sqrt(3/16 / 400) = 0.0217, and the slope
    # of the rating there is 400 / ln(10) / (3/16) = 926 points: 1.96 · 0.0217 · 926 = 39 points on either side.
    rating = ratings({("a", "b"): (300, 0, 100)}, "b", resamples=500)["a"]
    assert rating.elo - rating.low == pytest.approx(39, rel=0.15)
    assert rating.high - rating.elo == pytest.approx(39, rel=0.15)


def test_the_same_seed_gives_the_same_intervals() -> None:
    results = {("a", "b"): (5, 1, 3), ("b", "c"): (2, 2, 2)}
    assert ratings(results, "a", resamples=50) == ratings(results, "a", resamples=50)
    assert ratings(results, "a", resamples=50) != ratings(results, "a", resamples=50, seed=1)


COUNTS = st.tuples(*[st.integers(0, 30)] * 3).filter(any)


@settings(max_examples=25)
@given(ab=COUNTS, bc=COUNTS, ac=COUNTS)
def test_neither_the_order_of_a_pair_nor_the_anchor_changes_a_difference(
    ab: tuple[int, int, int], bc: tuple[int, int, int], ac: tuple[int, int, int]
) -> None:
    rated = ratings({("a", "b"): ab, ("b", "c"): bc, ("a", "c"): ac}, "a", resamples=2)
    turned = ratings(
        {("b", "a"): (ab[2], ab[1], ab[0]), ("c", "b"): (bc[2], bc[1], bc[0]), ("c", "a"): (ac[2], ac[1], ac[0])},
        "c",
        resamples=2,
    )
    for player in "abc":
        assert rated[player].elo - rated["c"].elo == pytest.approx(turned[player].elo, abs=0.1)


def test_games_of_both_orders_are_added() -> None:
    apart = ratings({("a", "b"): (10, 2, 5), ("b", "a"): (3, 1, 9)}, "b", resamples=10)
    assert apart == ratings({("a", "b"): (19, 3, 8)}, "b", resamples=10)


@pytest.mark.parametrize(
    ("results", "anchor", "message"),
    [
        ({}, "a", r"anchor='a' has no games; these have: \(none\)"),
        ({("a", "b"): (0, 0, 0)}, "a", "no games"),
        ({("a", "b"): (1, 0, 0)}, "c", "these have: a, b"),
        ({("a", "b"): (1, 0, -1)}, "a", "counts from 0"),
        ({("a", "a"): (1, 0, 0)}, "a", "against itself"),
        ({("a", "b"): (1, 0, 0), ("c", "d"): (1, 0, 0)}, "a", "no chain of games joins c, d with the anchor 'a'"),
    ],
)
def test_what_has_no_ratings_is_refused(
    results: dict[tuple[str, str], tuple[int, int, int]], anchor: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        ratings(results, anchor)
