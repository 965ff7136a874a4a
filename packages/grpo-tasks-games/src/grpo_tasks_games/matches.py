"""Games between models, for ratings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

import click

from grpo_core import evaluate
from grpo_sdk import Callback, UserError, load_task


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
