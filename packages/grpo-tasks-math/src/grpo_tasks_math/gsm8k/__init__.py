"""`math.gsm8k`: grade-school word problems (Cobbe et al., arXiv 2110.14168)."""

from grpo_tasks_math.gsm8k.task import TASK

__all__ = ["TASK"]
