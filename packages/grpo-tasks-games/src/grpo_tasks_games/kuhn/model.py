"""The exact strategy of a model in Kuhn poker, and its exploitability."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_core import Completer
from grpo_sdk import UserError, load_task
from grpo_tasks_games.kuhn.game import GAME, KuhnConfig, information_sets
from grpo_tasks_games.kuhn.rules import ACTIONS
from grpo_tasks_games.kuhn.theory import expected_value, exploitability, strategy_from


@dataclass(frozen=True, slots=True)
class Play:
    """Strategy of a model.

    Attributes:
        strategy: Information set -> probability of a bet, given a legal move.
        illegal: Probability, averaged over the information sets, of a completion other than the two moves as demos
            write them.
    """

    strategy: Mapping[str, float]
    illegal: float

    @property
    def exploitability(self) -> float:
        """Exploitability, in chips per game."""
        return exploitability(self.strategy)

    @property
    def value(self) -> float:
        """Value of self-play for the first player, in chips per game; −1/18 in equilibrium."""
        return expected_value(self.strategy)

    def summary(self) -> str:
        """Return the probability of a bet in each information set: `Jpb` is a jack after pass and bet."""
        return " ".join(f"{name}={bet:.2f}" for name, bet in self.strategy.items())

    def as_json(self) -> dict[str, Any]:
        """Return exploitability, value and strategy for JSON."""
        return {
            "exploitability": self.exploitability,
            "value": self.value,
            "illegal": self.illegal,
            "strategy": dict(self.strategy),
        }


def play_of(task: str, model: str, *, device: str = "auto") -> Play:
    """Compute the strategy of a model from the probability of every move in every information set.

    Args:
        task: Spec `games.kuhn_poker` with its options.
        model: Model, as for `--model`, or `random`.
        device: Device of the model.

    Raises:
        UserError: the task is another one, or the probabilities of both moves underflow, as with another style.
    """
    bound = load_task(task)
    if not isinstance(bound.config, KuhnConfig):
        raise UserError(f"{bound.name} is not games.kuhn_poker, the game whose exploitability is exact.")
    sets = information_sets(bound.config)
    if model == "random":
        return Play({known.name: 1 / len(ACTIONS) for known in sets}, illegal=0.0)
    moves = [(known, action, text) for known in sets for action, text in known.completions.items()]
    completer = Completer(model, device=device, stop=GAME.stop)
    logprobs = completer.logprobs([known.prompt for known, _, _ in moves], [text for _, _, text in moves])
    probabilities: dict[str, dict[str, float]] = {known.name: {} for known in sets}
    for (known, action, _), logprob in zip(moves, logprobs, strict=True):
        probabilities[known.name][action] = math.exp(logprob)
    legal = [math.fsum(by_action.values()) for by_action in probabilities.values()]
    if not all(legal):
        raise UserError(
            f"{model} gives no probability to {' or '.join(ACTIONS)} in some information sets, with the prompts of "
            f"style={bound.config.style}. Give the options that it was trained with, as "
            "--task 'games.kuhn_poker?style=short'."
        )
    return Play(strategy_from(probabilities), 1 - math.fsum(legal) / len(legal))
