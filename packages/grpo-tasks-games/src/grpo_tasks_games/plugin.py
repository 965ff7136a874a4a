"""What `grpo-tasks-games` contributes: `games.tictactoe` and other games, `grpo games …`."""

from __future__ import annotations

from grpo_core import Game, hookimpl
from grpo_tasks_games import connect_four, nim, tictactoe
from grpo_tasks_games.kuhn import game as kuhn_poker


@hookimpl
def grpo_games() -> list[Game]:
    """Every game of the package."""
    return [tictactoe.GAME, kuhn_poker.GAME, connect_four.GAME, nim.GAME]


@hookimpl
def grpo_commands() -> dict[str, str]:
    """`grpo games`: ratings, exploitability."""
    return {"games": "grpo_tasks_games.commands:games"}
