"""Kuhn poker: the game, and the exact exploitability of strategies."""

from grpo_tasks_games.kuhn.game import InformationSet, KuhnConfig, information_sets, nash
from grpo_tasks_games.kuhn.theory import Strategy, best_response_value, expected_value, exploitability, strategy_from

__all__ = [
    "InformationSet",
    "KuhnConfig",
    "Strategy",
    "best_response_value",
    "expected_value",
    "exploitability",
    "information_sets",
    "nash",
    "strategy_from",
]
