"""A turn-based game, and the task that it is: a game's transcript is what gets scored.

A `Game` needs no trainer of its own. `game_task` makes a `Task` of it whose rows are starts, whose prompt is what the
first player sees, and whose completion is the transcript of the game from one role's side; so specs, options,
scorers, held-out rows, identities and logs are those of every task. `grpo_sdk.episodes.player` plays them.
"""

from grpo_sdk.task.game.replay import read_transcript, replay, story, write_transcript
from grpo_sdk.task.game.rules import PERFECT, RANDOM, SELF, Game, GameConfig, GamePosition, GameStart, Move, Rules
from grpo_sdk.task.game.task import game_metrics, game_task

__all__ = [
    "PERFECT",
    "RANDOM",
    "SELF",
    "Game",
    "GameConfig",
    "GamePosition",
    "GameStart",
    "Move",
    "Rules",
    "game_metrics",
    "game_task",
    "read_transcript",
    "replay",
    "story",
    "write_transcript",
]
