"""`code.prediction_game`: write a program whose output an opponent cannot predict."""

from grpo_tasks_code.prediction_game.game import TASK

__all__ = ["TASK"]
