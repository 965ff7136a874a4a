"""Elo ratings from the games of pairs of players, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import NamedTuple

import click
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, log_expit

from grpo_sdk import Callback, UserError, load_task

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


class _Warnings(Callback):
    def __init__(self) -> None:
        self.said: list[str] = []

    def on_warning(self, message: str) -> None:
        """Keep the message."""
        self.said.append(message)


class Result(NamedTuple):
    """The games of two players, half of them in each seat.

    Attributes:
        wins: Games won by the first player.
        draws: Drawn games.
        losses: Games lost by the first player.
        illegal: Games that the first player lost by an illegal move.
    """

    wins: int
    draws: int
    losses: int
    illegal: int


def meet(task: str, player: str, other: str, *, episodes: int, seed: int = 0, device: str = "auto") -> Result:
    """Let two players play at temperature 1, with the same starts in both seats.

    Args:
        task: Spec of the game, as `games.tictactoe?style=short`.
        player: Model, as for `--model`.
        other: Model or scripted player.
        episodes: Number of games; even.
        seed: Seed of the starts and of sampling.
        device: Device of the models.

    Raises:
        UserError: no game could be scored, as where the game raises an exception. Fewer are warned about on stderr.
    """
    from grpo_core import evaluate  # here, because it imports torch

    warned = _Warnings()
    spec = load_task(task).with_options(opponent=other, seat=None, split="test", seed=seed, size=None).spec
    (result,) = evaluate(
        spec, player, size=episodes, temperature=1.0, seed=seed, surprisal=False, device=device, progress=False,
        callbacks=[warned],
    ).values()  # fmt: skip
    if result["abstained"] == episodes:
        raise UserError(f"{player} against {other}: {'; '.join(warned.said)}")
    for message in warned.said:
        click.echo(f"warning   {player} against {other}: {message}", err=True)
    return Result(*(round(result["parts"][part]["mean"] * result["n"]) for part in ("win", "draw", "loss", "illegal")))


def pairs_of(task: str, players: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of every model with every other player; scripted players do not play each other.

    Raises:
        UserError: the task is not a game, a player is given twice, or there is no pair.
    """
    game = load_task(task).task.game
    if game is None:
        raise UserError(f"{task} is no game.")
    if len(set(players)) < len(players):
        raise UserError(f"a player is given twice: {', '.join(players)}.")
    models = [player for player in players if player not in game.scripted]
    scripted = [player for player in players if player in game.scripted]
    pairs = [*combinations(models, 2), *product(models, scripted)]
    if not pairs:
        others = ", ".join(game.scripted)
        raise UserError(f"{', '.join(players)}: give a model and somebody that it plays, a model or one of {others}.")
    return pairs
