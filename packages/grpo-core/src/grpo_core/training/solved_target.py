"""The end of a warm start that was given a target: the share of held-out completions that the model solves."""

from __future__ import annotations

from grpo_core.engines.native import MAX_BATCH_TOKENS, NativeEngine
from grpo_core.evaluation.answers import evaluate_tasks
from grpo_core.evaluation.candidate import in_process
from grpo_core.evaluation.held_out import prepare_tasks
from grpo_core.evaluation.settings import EvaluationSettings, ModelOptions
from grpo_core.policy.policy import Policy
from grpo_sdk.callbacks import Callbacks

CHECK_EVERY = 25
"""Optimizer steps between two measurements, until a quarter of the target is reached."""

CHECK_CLOSE_EVERY = 10
"""Steps from then on: within 25 steps a small model goes from a fifth to two fifths."""

ROWS = 128
"""Rows of the validation split that each takes, of each task."""


class SolvedTarget:
    """Measures what GRPO will start from: completions sampled at temperature 1, as training samples them.

    Args:
        task: Task spec.
        rate: Share of solved completions at which the training has reached its end.
        policy: The model that is trained.
        seed: Seed of the sampling.
        callbacks: Notified of progress and warnings.

    Attributes:
        rates: Optimizer step -> share of solved completions.
    """

    def __init__(self, task: str, rate: float, policy: Policy, seed: int, callbacks: Callbacks) -> None:
        given = {"split": "validation", "temperature": 1.0, "size": ROWS, "n": 1}
        self._tasks, _ = prepare_tasks(task, given, EvaluationSettings(seed=seed, surprisal=False))
        self._rate, self._policy, self._callbacks = rate, policy, callbacks
        self.rates: dict[str, float] = {}

    @property
    def is_met(self) -> bool:
        """Whether the last measurement reached the target."""
        return any(rate >= self._rate for rate in self.rates.values())

    def missed(self, max_steps: int) -> str:
        """What to say after a training that ended by its number of steps."""
        best = max(self.rates.values(), default=0.0)
        return (
            f"--until {self._rate:g} was not reached in {max_steps} steps: {best:.2f} of the sampled completions "
            "are solved. Raise --max-steps, or look whether the golds can be learned: grpo sample --task TASK."
        )

    def is_reached(self, step: int) -> bool:
        """Measure where a measurement is due; whether the share is high enough."""
        is_close = max(self.rates.values(), default=0.0) >= self._rate / 4
        if step % (CHECK_CLOSE_EVERY if is_close else CHECK_EVERY):
            return False
        model = self._policy.model.eval()
        engine = NativeEngine(model, self._policy.tokenizer, max_batch_tokens=MAX_BATCH_TOKENS)
        evaluated = in_process(
            self._policy, engine, tokens_at_once=MAX_BATCH_TOKENS, prompts_at_once=None, warn=self._callbacks.warn_once
        )
        results = evaluate_tasks(self._tasks, evaluated, ModelOptions(), self._callbacks)
        model.train()
        solved = [float(result.summary()["solved_rate"] or 0.0) for result in results.values()]
        self.rates[str(step)] = sum(solved) / len(solved)
        return self.rates[str(step)] >= self._rate
