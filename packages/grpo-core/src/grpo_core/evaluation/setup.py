"""Tasks, a model and scorers put together: what every evaluation outside a training runs on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from grpo_core.callbacks import Callbacks, Choice
from grpo_core.config import LoraConfig, ScoringConfig
from grpo_core.engines.native import MAX_BATCH_TOKENS
from grpo_core.engines.openai import OpenAIEngine
from grpo_core.errors import UserError
from grpo_core.evaluation.answers import evaluate_rows, unscored
from grpo_core.evaluation.conversations import matchups
from grpo_core.evaluation.plan import settings_of
from grpo_core.evaluation.results import Evaluation
from grpo_core.evaluation.room import check_room
from grpo_core.evaluation.rows import held_out, subset
from grpo_core.evaluation.sampling import EngineSampler, Sampler
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.plugins.tasks import bind
from grpo_core.policy.memory import tokens_that_fit
from grpo_core.policy.policy import Policy
from grpo_core.prompts.mixture import task_labels
from grpo_core.rollouts.episodes import game_opponent, needs_opponent
from grpo_core.rollouts.opponents import EndpointOpponent, OpponentSampler
from grpo_core.scoring import Scorer
from grpo_core.scoring.conditions import condition_choices
from grpo_core.task.bound import BoundTask
from grpo_core.task.row import Row
from grpo_core.task.spec import parse_task_specs


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """How a model and the scorers are set up.

    Attributes:
        device: Where the model runs.
        precision: In which floating-point type.
        max_batch_tokens: Tokens held at once on a CPU.
        scoring: Of the workers.
        lora: How the base is quantized, where the run's was.
    """

    device: str = "auto"
    precision: str = "auto"
    max_batch_tokens: int = MAX_BATCH_TOKENS
    scoring: ScoringConfig | None = field(default=None)
    lora: LoraConfig | None = None

    def scorer(self, task: BoundTask) -> Scorer:
        """The workers of a task."""
        scoring = self.scoring or ScoringConfig()
        return Scorer(task, workers=scoring.workers, timeout_s=scoring.timeout_s, memory_mib=scoring.memory_mib)


@dataclass(frozen=True, slots=True)
class EvaluationTask:
    """A task to be evaluated.

    Attributes:
        task: On its held-out rows.
        settings: Which of them, and how.
    """

    task: BoundTask
    settings: EvaluationSettings

    @property
    def rows(self) -> list[Row]:
        """The rows that are evaluated.

        Raises:
            UserError: the settings' share of them is out of range.
        """
        return subset(self.task.rows(), self.settings.subset_frac)


def prepare_tasks(
    task: str, given: Mapping[str, Any], ours: EvaluationSettings
) -> tuple[dict[str, EvaluationTask], list[Choice]]:
    """The tasks of a spec on their held-out rows, by label.

    Args:
        task: The spec.
        given: What the user says, by the names of `EvaluationSettings`; above it stands nothing.
        ours: What holds where neither the user nor the task says.

    Returns:
        (tasks, what of the settings is a task's own wish and what the scores depend on).

    Raises:
        UserError: a task that does not exist, or cannot say what it depends on.
    """
    bound = [bind(spec) for spec in parse_task_specs(task)]
    labelled = dict(zip(task_labels(bound), bound, strict=True))
    tasks = {name: each for label, one in labelled.items() for name, each in matchups(label, one).items()}
    asked, choices = {}, condition_choices(tasks)
    for label, each in tasks.items():
        settings, wishes = settings_of(each, given, ours)
        choices += wishes
        asked[label] = EvaluationTask(held_out(each, size=settings.size, split=settings.split), settings)
        _ = asked[label].rows  # a share out of range is refused before a model loads
    return asked, choices


def evaluate_model(
    model: str,
    adapter: str | None,
    tasks: Mapping[str, EvaluationTask],
    loading: ModelOptions,
    callbacks: Callbacks,
) -> dict[str, Evaluation]:
    """Load a model and evaluate it on tasks, by label; arguments as for `evaluate` and its parts."""
    from grpo_core.engines.compatibility import max_context
    from grpo_core.engines.native import NativeEngine
    from grpo_core.policy.load import load_policy

    policy = load_policy(model, adapter=adapter, lora=loading.lora, device=loading.device, precision=loading.precision)
    choices = [
        choice
        for label, asked in tasks.items()
        for choice in check_room(label, asked.task, asked.rows, asked.settings, policy)
    ]
    callbacks.on_choices(choices)
    tokens = tokens_that_fit(policy.model, policy.device, loading.max_batch_tokens)
    engine = NativeEngine(policy.model.eval(), policy.tokenizer, max_batch_tokens=tokens)
    sampler = EngineSampler(
        engine,
        policy.tokenizer,
        tokens_at_once=tokens,
        prompts_at_once=next((asked.settings.batch_size for asked in tasks.values()), None),  # the same for all
        max_context=max_context(policy.model),
        warn=callbacks.warn_once,
    )
    with policy.precision():
        return evaluate_with(sampler, tasks, loading, callbacks, policy)


def evaluate_with(
    sampler: Sampler,
    tasks: Mapping[str, EvaluationTask],
    loading: ModelOptions,
    callbacks: Callbacks,
    policy: Policy | None = None,
) -> dict[str, Evaluation]:
    """Evaluate whoever answers on tasks, by label.

    Args:
        sampler: Who answers.
        tasks: Of `prepare_tasks`.
        loading: Of the scorers.
        callbacks: Notified of progress and warnings.
        policy: The sampler's model, if it is of this process.
    """
    from grpo_core.rollouts.model_opponents import opponent_sampler

    found = {}
    for label, asked in tasks.items():
        task, settings = asked.task, asked.settings
        with ExitStack() as resources:
            opponent: OpponentSampler | None = None
            has_opponent = task.opponent is not None or needs_opponent(task)
            if has_opponent and policy is not None:
                opponent = opponent_sampler(task, policy, resources)
            elif has_opponent:
                opponent = _endpoint_opponent(task)
            found[label] = evaluate_rows(
                task,
                asked.rows,
                sampler=sampler,
                scorer=resources.enter_context(loading.scorer(task)),
                sampling=settings.sampling,
                seed=settings.seed,
                n=settings.n,
                opponent=opponent,
                measured=policy if settings.surprisal else None,
                progress=partial(callbacks.on_progress, f"evaluating {label}"),
                warn=callbacks.warn_once,
            )
        for reason, count in unscored(found[label]).items():
            callbacks.warn_once(f"{label}: {count} of {len(found[label].scores)} completions were not scored: {reason}")
    return found


def _endpoint_opponent(task: BoundTask) -> OpponentSampler:
    engine = (task.opponent or game_opponent(task)).engine
    if not OpenAIEngine.is_url(engine):
        raise UserError(
            f"task {task.name!r} has an opponent, {engine!r}, that needs a model in this process; "
            "an endpoint is none. Evaluate with --model."
        )
    return EndpointOpponent(OpenAIEngine.from_url(engine))
