"""`chess.environment`: predict the outcome of a move (RookWorld's `A:`)."""

from grpo_tasks_chess.environment.task import TASK

__all__ = ["TASK"]
