"""What the adapters of all trainers share: a task behind killable workers, its episodes, the trainers' packages."""

from grpo_sdk.interop.adapter.conversation import Conversation, Messages, answer_text, check_replayable
from grpo_sdk.interop.adapter.requirements import requires
from grpo_sdk.interop.adapter.rows import label_of, read_label, write_jsonl
from grpo_sdk.interop.adapter.task_adapter import ELSEWHERE, Completes, RowReference, TaskAdapter, shared_adapter

__all__ = [
    "ELSEWHERE",
    "Completes",
    "Conversation",
    "Messages",
    "RowReference",
    "TaskAdapter",
    "answer_text",
    "check_replayable",
    "label_of",
    "read_label",
    "requires",
    "shared_adapter",
    "write_jsonl",
]
