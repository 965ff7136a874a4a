"""`code.mbpp`: mostly basic Python problems with tests; `code.mbpp_retry` gives a second attempt."""

from grpo_tasks_code.mbpp.retry import TASK as RETRY
from grpo_tasks_code.mbpp.task import TASK

__all__ = ["RETRY", "TASK"]
