"""Whether held-out prompts leave room for an answer in the model's context, checked before anything is sampled."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_core.engines.compatibility import max_context
from grpo_core.evaluation.sampling import answer_limit
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.policy.policy import Policy
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.endpoints.encode import encode_prompt
from grpo_sdk.errors import UserError
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.row import Row


def check_room(
    label: str, task: BoundTask, rows: Sequence[Row], settings: EvaluationSettings, policy: Policy
) -> list[ResolvedDefault]:
    """Compare the lengths of held-out prompts with the model's context.

    Args:
        label: Task label.
        task: Task on its held-out rows.
        rows: Rows that are evaluated.
        settings: Settings of the evaluation.
        policy: The model that answers.

    Returns:
        Choices to be shown: answers with less room than the settings allow, rows that cannot be answered.

    Raises:
        UserError: no row can be answered, or a prompt cannot be encoded.
    """
    context = max_context(policy.model)
    lengths = [len(encode_prompt(policy.tokenizer, task.prompt(row))) for row in rows]
    if context is None or not lengths:
        return []
    if min(lengths) >= context:
        raise UserError(
            f"{label}: none of its {len(rows)} held-out rows can be answered: the shortest prompt has {min(lengths)} "
            f"tokens, and the model's context is {context}. Use a model with a longer context, or options of the "
            f"task that make its prompts shorter (grpo tasks show {task.name} lists them)."
        )
    limit = answer_limit(task.task.max_completion_length, settings.max_completion_length)
    overlong = [length for length in lengths if length >= context]
    cramped = [length for length in lengths if context - limit < length < context]
    choices = []
    if cramped:
        value = f"{label}: {len(cramped)} of {len(rows)} answers have room for fewer than {limit} tokens"
        why = f"the model's context is {context}; the longest of these prompts, {max(cramped)}, leaves "
        choices.append(ResolvedDefault("held-out", value, f"{why}{context - max(cramped)}"))
    if overlong:
        value = f"{label}: {len(overlong)} of {len(rows)} rows cannot be answered and are not scored"
        why = f"their prompts, of up to {max(overlong)} tokens, fill the model's context of {context}"
        choices.append(ResolvedDefault("held-out", value, why))
    return choices
