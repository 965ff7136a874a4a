"""The data sets of reasoning-gym as tasks, `reasoning_gym.leg_counting`, and what a task of one's own is made of."""

from grpo_tasks_gym.reasoning_gym.options import GymConfig, config_class
from grpo_tasks_gym.reasoning_gym.rows import GymRow, load_rows
from grpo_tasks_gym.reasoning_gym.scorers import score

__all__ = ["GymConfig", "GymRow", "config_class", "load_rows", "score"]
