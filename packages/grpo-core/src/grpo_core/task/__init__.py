"""The SDK of task authors: rows, a task with its four contributions, and scores."""

from grpo_core.task.opponent import Opponent
from grpo_core.task.row import Message, Prompt, Row, Split, TaskConfig
from grpo_core.task.score import Fault, Invalid, Score
from grpo_core.task.task import TASK_CONTRACT_VERSION, Order, Task

__all__ = [
    "TASK_CONTRACT_VERSION",
    "Fault",
    "Invalid",
    "Message",
    "Opponent",
    "Order",
    "Prompt",
    "Row",
    "Score",
    "Split",
    "Task",
    "TaskConfig",
]
