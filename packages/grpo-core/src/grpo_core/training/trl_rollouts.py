"""TRL's `rollout_func` for tasks: completions sampled by our engine from the trainer's own model.

So a completion ends where the task's stop strings say, prefills are continued, and a conversation of several turns is
trained as our own trainer trains it: what the task said stands between the turns, masked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo_core.config import EngineConfig, ScoringConfig
from grpo_core.engines.compatibility import max_context
from grpo_core.engines.native import NativeEngine
from grpo_core.evaluation.trl import policy_of
from grpo_core.policy.memory import tokens_that_fit
from grpo_core.rollouts.rollout import PromptGroup
from grpo_core.rollouts.sample import RolloutContext, sample_rollouts
from grpo_core.rollouts.task_scoring import Scoring
from grpo_core.training.batch import collate
from grpo_core.training.trl_backend import check_whole, completion_fields
from grpo_sdk.chat.encode import encode_prompt
from grpo_sdk.endpoints.base import Sampling
from grpo_sdk.errors import UserError
from grpo_sdk.scoring.tool_workers import DEFAULT_TOOL_WORKERS
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.mixture import Draw

SEED_OF_PROCESS = 2**40
"""Distance of the seeds of two processes, which may have the same prompts."""


class Rollouts:
    """The completions of TRL's prompts.

    Args:
        tasks: Tasks by label.
        find: Gives the label and the row of a prompt.
        workers: Scoring processes per task, and at most as many that run tools; None for the defaults.
    """

    def __init__(
        self, tasks: Mapping[str, BoundTask], find: Callable[[Any], tuple[str, Any]], workers: int | None = None
    ) -> None:
        tool_workers = workers or DEFAULT_TOOL_WORKERS
        self._tasks, self._find = tasks, find
        self._config = ScoringConfig(workers=workers, tool_workers=tool_workers)
        self._scoring: Scoring | None = None

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Complete each prompt once: TRL repeats them.

        Raises:
            UserError: the trainer is to sample with vLLM, its model is sharded, or a prompt is none of the dataset.
        """
        if trainer.use_vllm:
            raise UserError(
                "rollout_func samples with grpo's engine, from the trainer's model: leave use_vllm out, or leave "
                "rollout_func out and give vLLM the stop strings, generation_kwargs=task.generation_kwargs."
            )
        check_whole(trainer)
        is_training = trainer.model.training
        policy = policy_of(trainer.args, {"model": trainer.model, "processing_class": trainer.processing_class})
        if self._scoring is None:  # once, so that an opponent that is the starting policy stays it
            self._scoring = Scoring(self._tasks, self._config, policy)
        tokens = tokens_that_fit(policy.model, policy.device, EngineConfig().max_batch_tokens)
        context = RolloutContext(
            engine=NativeEngine(policy.model, policy.tokenizer, max_batch_tokens=tokens),
            scoring=self._scoring,
            seed=trainer.args.seed + SEED_OF_PROCESS * trainer.args.process_index,
            max_context=max_context(policy.model),
            schedule="arrival",
        )
        sampling = Sampling(
            temperature=trainer.temperature,
            top_p=trainer.top_p,
            top_k=trainer.top_k,
            min_p=trainer.min_p or 0.0,
            max_completion_length=trainer.max_completion_length,
        )
        policy.model.eval()
        try:
            with policy.precision():
                rollouts = sample_rollouts(
                    self._groups(prompts, policy.tokenizer), context, sampling, 1, trainer.state.global_step
                )
        finally:
            policy.model.train(is_training)
        batch = collate(rollouts, pad_id=policy.tokenizer.pad_token_id, mask_truncated=False)
        return {
            **completion_fields(batch, range(len(rollouts))),
            "task_score": [rollout.score for rollout in rollouts],
            "scored_text": [
                rollout.text if rollout.scored_text is None else rollout.scored_text for rollout in rollouts
            ],
        }

    def _groups(self, prompts: Sequence[Any], tokenizer: Any) -> list[PromptGroup]:
        groups, seen = [], Counter[str]()
        for position, prompt in enumerate(prompts):
            label, row = self._find(prompt)
            task = self._tasks[label]
            draw = Draw(task, label, row, position, repeat=seen[f"{label}/{row.id}"])
            seen[f"{label}/{row.id}"] += 1
            groups.append(PromptGroup(draw, encode_prompt(tokenizer, task.prompt(row))))
        return groups

    def close(self) -> None:
        """Stop the workers."""
        if self._scoring is not None:
            self._scoring.close()
            self._scoring = None
