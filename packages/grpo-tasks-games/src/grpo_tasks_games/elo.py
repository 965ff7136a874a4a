"""Elo ratings from the results of pairs of players, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, log_expit

from grpo_sdk import UserError

POINTS_PER_NAT = 400 / math.log(10)
"""Elo points per unit of log-odds: 400 points are odds of 10 to 1."""

PRIOR = 0.5
"""Wins, draws and losses that are added to the results of every pair (Jeffreys' prior for three outcomes), so that 100
wins of 100 do not make a player infinitely better."""

TOLERANCE = 1e-6
"""Tolerance of the expected points per game at the maximum, far below what games can resolve."""

CONFIDENCE = 0.95
RESAMPLES = 1000

Results = Mapping[tuple[str, str], tuple[int, int, int]]
"""(a, b) -> games that a won, draws, and games that b won."""


class Rating(NamedTuple):
    """A player's rating with its interval.

    Attributes:
        elo: Points above the anchor.
        low: Lower end of the 95% interval.
        high: Upper end of the 95% interval.
    """

    elo: float
    low: float
    high: float


def ratings(results: Results, anchor: str, *, seed: int = 0, resamples: int = RESAMPLES) -> dict[str, Rating]:
    """Return the ratings of the players, best first, with the anchor at 0.

    Fits the Bradley-Terry model by maximum likelihood: P(a beats b) = 1 / (1 + 10^((b − a) / 400)); a draw is half a
    win of each, and `PRIOR` is added to every result of a pair. Intervals are percentiles of a parametric bootstrap:
    the games of each pair are drawn again, with the same prior. The advantage of the first move is not modelled: let
    pairs play both seats equally often.

    Args:
        results: Games of each pair; (a, b) and (b, a) are added.
        anchor: Player whose rating is 0 and whose interval is the point 0.
        seed: Seed of the resampling.
        resamples: Number of bootstrap samples.

    Raises:
        UserError: no games, a count below 0, a player against itself, no such anchor, or a player who is not connected
            with the anchor by a chain of games.
    """
    pairs = _added(results)
    players = sorted({player for pair in pairs for player in pair})
    _check(pairs, players, anchor)
    index = {player: place for place, player in enumerate(players)}
    sides = np.zeros((len(pairs), len(players)))
    for place, (a, b) in enumerate(pairs):
        sides[place, index[a]], sides[place, index[b]] = 1, -1
    games = np.array([sum(counts) for counts in pairs.values()])
    counts = np.array(list(pairs.values()), dtype=np.float64) + PRIOR  # [pairs, 3]
    fitted = _fit(counts, sides, index[anchor], np.zeros(len(players)))
    rng = np.random.default_rng(seed)
    shares = counts / counts.sum(axis=1, keepdims=True)
    drawn = [
        _fit(rng.multinomial(games, shares).astype(np.float64) + PRIOR, sides, index[anchor], fitted)
        for _ in range(resamples)
    ]
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(np.array(drawn), (tail, 100 - tail), axis=0)
    rated = [Rating(float(fitted[i]), float(low[i]), float(high[i])) for i in range(len(players))]
    return dict(sorted(zip(players, rated, strict=True), key=lambda item: -item[1].elo))


def _fit(
    counts: NDArray[np.float64], sides: NDArray[np.float64], fixed: int, start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the maximum-likelihood ratings, in points.

    Args:
        counts: [pairs, 3] wins of the first player, draws, wins of the second.
        sides: [pairs, players] 1 for the first player of a pair, −1 for the second.
        fixed: Index of the player whose rating is 0.
        start: [players] initial ratings of the search, in points.
    """
    games = counts.sum(axis=1)
    points = counts[:, 0] + counts[:, 1] / 2

    def loss(nats: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        lead = sides @ nats
        likelihood = points @ log_expit(lead) + (games - points) @ log_expit(-lead)
        return -float(likelihood), (games * expit(lead) - points) @ sides

    fit = minimize(loss, start / POINTS_PER_NAT, jac=True, method="BFGS", options={"gtol": TOLERANCE * games.sum()})
    return np.asarray((fit.x - fit.x[fixed]) * POINTS_PER_NAT, dtype=np.float64)


def _added(results: Results) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Return the results with each pair once, its players in alphabetical order."""
    pairs: dict[tuple[str, str], tuple[int, int, int]] = {}
    for (a, b), (wins, draws, losses) in results.items():
        if a == b:
            raise UserError(f"results hold games of {a!r} against itself.")
        if min(wins, draws, losses) < 0:
            raise UserError(f"results of {a!r} and {b!r}: {(wins, draws, losses)} must be counts from 0 on.")
        if a > b:
            a, b, wins, losses = b, a, losses, wins
        before = pairs.get((a, b), (0, 0, 0))
        pairs[a, b] = (before[0] + wins, before[1] + draws, before[2] + losses)
    return {pair: counts for pair, counts in pairs.items() if sum(counts)}


def _check(pairs: Mapping[tuple[str, str], tuple[int, int, int]], players: list[str], anchor: str) -> None:
    """Refuse results without ratings: the difference of two players is defined only by a chain of games."""
    if anchor not in players:
        raise UserError(f"anchor={anchor!r} has no games; these have: {', '.join(players) or '(none)'}.")
    met = np.zeros((len(players), len(players)))
    for a, b in pairs:
        met[players.index(a), players.index(b)] = 1
    _, group = connected_components(met, directed=False)
    apart = [player for player, its in zip(players, group, strict=True) if its != group[players.index(anchor)]]
    if apart:
        raise UserError(f"no chain of games joins {', '.join(apart)} with the anchor {anchor!r}.")
