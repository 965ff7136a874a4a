"""The SDK of task authors: rows, a task with its four contributions, and scores."""

from grpo_sdk.task.opponent import Opponent
from grpo_sdk.task.row import Message, Prompt, Row, Split, TaskConfig
from grpo_sdk.task.score import Fault, Invalid, Score
from grpo_sdk.task.task import TASK_CONTRACT_VERSION, Order, Task

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
