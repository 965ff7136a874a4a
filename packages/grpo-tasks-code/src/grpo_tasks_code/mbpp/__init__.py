"""`code.mbpp`: mostly basic Python problems with tests; `code.mbpp_retry` gives a second attempt."""

from grpo_tasks_code.mbpp.task import RETRY, TASK

__all__ = ["RETRY", "TASK"]
