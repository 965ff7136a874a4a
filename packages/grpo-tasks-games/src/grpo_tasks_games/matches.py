"""Games between models, for ratings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

from grpo_core import UserError, evaluate, load_task


class Result(NamedTuple):
    """The games of two players, half of them in each seat.

    Attributes:
        wins: Of the first player.
        draws: Of both.
        losses: Of the first player.
        illegal: Games that the first player lost by an illegal move.
    """

    wins: int
    draws: int
    losses: int
    illegal: int


def meet(task: str, player: str, other: str, *, episodes: int, seed: int = 0, device: str = "auto") -> Result:
    """Let two play, at temperature 1, the same starts in both seats.

    Args:
        task: The game with its options, as `games.tictactoe?style=short`.
        player: A model, as for `--model`.
        other: A model or a scripted player.
        episodes: Games; an even number.
        seed: Of the starts and of sampling.
        device: Where.
    """
    spec = load_task(task).with_options(opponent=other, seat=None, split="test", seed=seed, size=None).spec
    (found,) = evaluate(
        spec, player, size=episodes, temperature=1.0, seed=seed, surprisal=False, device=device
    ).values()
    games = found["n"]
    counts = {name: round(found["parts"][name]["mean"] * games) for name in ("win", "draw", "loss", "illegal")}
    return Result(counts["win"], counts["draw"], counts["loss"], counts["illegal"])


def pairs_of(task: str, players: Sequence[str]) -> list[tuple[str, str]]:
    """Every model with every other player; scripted players of the game do not meet each other.

    Raises:
        UserError: the task is no game, a player is there twice, or there is no pair.
    """
    game = load_task(task).task.game
    if game is None:
        raise UserError(f"{task} is no game.")
    if len(set(players)) < len(players):
        raise UserError(f"a player is there twice: {', '.join(players)}.")
    models = [each for each in players if each not in game.scripted]
    scripted = [each for each in players if each in game.scripted]
    pairs = [*combinations(models, 2), *product(models, scripted)]
    if not pairs:
        others = ", ".join(game.scripted)
        raise UserError(f"{', '.join(players)}: give a model and somebody that it plays, a model or one of {others}.")
    return pairs
