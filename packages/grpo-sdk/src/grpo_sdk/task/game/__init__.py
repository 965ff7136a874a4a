"""A turn-based game, and the task that it is: an episode's transcript is what gets scored.

A `Game` needs no trainer of its own. `game_task` makes a `Task` of it whose rows are episodes, whose prompt is what the
first player sees, and whose completion is the transcript of the episode from one role's side; so specs, options,
scorers, held-out rows, identities and logs are those of every task. `grpo_sdk.episodes.episodes` plays them.
"""

from grpo_sdk.task.game.replay import Position, read_transcript, replay, scripted_roles, story, write_transcript
from grpo_sdk.task.game.rules import PERFECT, RANDOM, SELF, Episode, Game, GameConfig, Move, Rules
from grpo_sdk.task.game.task import game_metrics, game_task

__all__ = [
    "PERFECT",
    "RANDOM",
    "SELF",
    "Episode",
    "Game",
    "GameConfig",
    "Move",
    "Position",
    "Rules",
    "game_metrics",
    "game_task",
    "read_transcript",
    "replay",
    "scripted_roles",
    "story",
    "write_transcript",
]
