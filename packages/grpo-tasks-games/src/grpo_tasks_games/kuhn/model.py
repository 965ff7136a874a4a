"""A model's exact strategy in Kuhn poker, and what it is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_core import Completer, UserError, load_task
from grpo_tasks_games.kuhn.game import GAME, KuhnConfig, information_sets
from grpo_tasks_games.kuhn.theory import expected_value, exploitability, strategy_from


@dataclass(frozen=True, slots=True)
class Play:
    """How a model plays.

    Attributes:
        strategy: Information set -> probability of a bet, given a legal move.
        illegal: Mean over the information sets of the probability of a completion that is neither move as a demo
            writes it.
    """

    strategy: Mapping[str, float]
    illegal: float

    @property
    def exploitability(self) -> float:
        """Chips per game."""
        return exploitability(self.strategy)

    @property
    def value(self) -> float:
        """Chips per game of the first player against itself; −1/18 in equilibrium."""
        return expected_value(self.strategy)

    def summary(self) -> str:
        """The probability of a bet in each information set: `Jpb` is a jack after pass and bet."""
        return " ".join(f"{name}={bet:.2f}" for name, bet in self.strategy.items())

    def as_json(self) -> dict[str, Any]:
        """Numbers and strategy."""
        return {
            "exploitability": self.exploitability,
            "value": self.value,
            "illegal": self.illegal,
            "strategy": dict(self.strategy),
        }


def play_of(task: str, model: str, *, device: str = "auto") -> Play:
    """Ask a model for the probability of every move in every information set.

    Args:
        task: `games.kuhn_poker` with its options.
        model: As for `--model`.
        device: Where.

    Raises:
        UserError: the task is another one; or a move is so improbable that float64 has no number for it.
    """
    bound = load_task(task)
    if not isinstance(bound.config, KuhnConfig):
        raise UserError(f"{bound.name} is not games.kuhn_poker, the game whose exploitability is exact.")
    sets = information_sets(bound.config)
    asked = [(one, action, text) for one in sets for action, text in one.completions.items()]
    completer = Completer(model, device=device, stop=GAME.stop)
    logprobs = completer.logprobs([one.prompt for one, _, _ in asked], [text for _, _, text in asked])
    probabilities: dict[str, dict[str, float]] = {one.name: {} for one in sets}
    for (one, action, _), logprob in zip(asked, logprobs, strict=True):
        probabilities[one.name][action] = math.exp(logprob)
    legal = [math.fsum(given.values()) for given in probabilities.values()]
    return Play(strategy_from(probabilities), 1 - math.fsum(legal) / len(legal))
