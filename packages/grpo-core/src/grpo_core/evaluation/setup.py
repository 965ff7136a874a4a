"""Tasks, a model and scorers put together: what every evaluation outside a training runs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from grpo_core.config import EngineConfig, EvalConfig, LoraConfig, RunConfig, ScoringConfig
from grpo_core.evaluation.answers import EvaluatedModel, evaluate_rows, in_process, unscored_warnings
from grpo_core.evaluation.hooks import EvaluationHooks
from grpo_core.evaluation.plan import matchups, settings_of
from grpo_core.evaluation.results import Evaluation
from grpo_core.evaluation.room import check_room
from grpo_core.evaluation.rows import subset
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.policy.memory import tokens_that_fit
from grpo_core.policy.policy import Policy
from grpo_core.rollouts.task_scoring import Scoring, prepare_nodes
from grpo_core.tracking.diagnoses import DEFAULT_KL_TARGET, named
from grpo_core.tracking.diagnosis import History
from grpo_core.tracking.monitor import finding
from grpo_sdk.callbacks import Callbacks, ResolvedDefault
from grpo_sdk.check.overlap import held_out
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.scoring.conditions import condition_choices
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.mixture import task_labels
from grpo_sdk.task.row import Row
from grpo_sdk.task.spec import parse_task_specs


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Options with which a model and the scorers are set up.

    Attributes:
        device: Device of the model.
        precision: Floating-point type of the model's products.
        engine: Engine that samples the completions; on an accelerator its free memory decides the tokens held at once.
        scoring: The scorers' worker processes.
        lora: Quantization of the base model, where the run's was quantized.
    """

    device: str = "auto"
    precision: str = "auto"
    engine: EngineConfig = field(default_factory=EngineConfig)
    scoring: ScoringConfig = field(default_factory=ScoringConfig)
    lora: LoraConfig | None = None


@dataclass(frozen=True, slots=True)
class EvaluationTask:
    """A task to be evaluated.

    Attributes:
        task: Task on its held-out rows.
        settings: Settings of the evaluation.
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
    task: str,
    given: Mapping[str, Any],
    defaults: EvaluationSettings,
    scoring: ScoringConfig | None = None,
    *,
    rows_of_spec: bool = False,
) -> tuple[dict[str, EvaluationTask], list[ResolvedDefault]]:
    """The tasks of a spec on their held-out rows, by label.

    Args:
        task: Spec of the tasks.
        given: Settings of the user, by the names of `EvaluationSettings`.
        defaults: Settings where neither the user nor the task gives one.
        scoring: The scorers' worker processes; by default those of this machine.
        rows_of_spec: Whether the split that a spec names is evaluated, and no more rows than the size that it names;
            those of a training's spec are its training's.

    Returns:
        (tasks, choices to be shown: settings of the tasks, and what the scores depend on).

    Raises:
        UserError: a task that does not exist, or cannot say what it depends on; a spec that names another split than
            the user does.
        InfrastructureError: a node that would score cannot.
    """
    bound = [bind(spec) for spec in parse_task_specs(task)]
    tasks = matchups(dict(zip(task_labels(bound), bound, strict=True)))
    prepared, wished = {}, []
    for label, bound_task in tasks.items():
        named = _split_of(bound_task, given) if rows_of_spec else {}
        settings, wishes = settings_of(bound_task, {**named, **given}, defaults)
        wished += wishes
        if rows_of_spec and "size" not in given:
            settings = replace(settings, size=_size_of(bound_task, settings.size))
        prepared[label] = EvaluationTask(held_out(bound_task, size=settings.size, split=settings.split), settings)
        _ = prepared[label].rows  # a share out of range is refused before a model loads
    nodes = prepare_nodes(scoring or ScoringConfig(), [*tasks.values(), *(each.task for each in prepared.values())])
    conditions = condition_choices({label: each.task for label, each in prepared.items()})
    return prepared, [*nodes, *conditions, *wished]


def warn_of_few_rows(tasks: Mapping[str, EvaluationTask], callbacks: Callbacks) -> None:
    """Give the warning of `grpo run` where a task has too few rows to tell a rate."""
    diagnosis = named("few-held-out-rows")
    for label, task in tasks.items():
        settings = task.settings
        rows = EvalConfig(size=settings.size, split=settings.split, subset_frac=settings.subset_frac)
        history = History(
            RunConfig(task=task.task.spec, eval=rows), DEFAULT_KL_TARGET, held_out={label: len(task.rows)}
        )
        for about, seen in diagnosis.see(history, diagnosis):
            if seen:
                callbacks.on_diagnosis(finding(diagnosis, history, seen, about))


def _size_of(task: BoundTask, size: int | None) -> int | None:
    """`size` rows, but no more than the task's spec names."""
    if "size" not in parse_task_specs(task.spec)[0].options or task.config.size is None:
        return size
    return task.config.size if size is None else min(size, task.config.size)


def _split_of(task: BoundTask, given: Mapping[str, Any]) -> dict[str, str]:
    """The split that the task's spec names, as a setting.

    Raises:
        UserError: the user names another one.
    """
    named = parse_task_specs(task.spec)[0].options.get("split")
    if named is None:
        return {}
    if given.get("split", named) != named:
        raise UserError(f"{task.spec} names the split {named}, and split={given['split']} is asked for: give one.")
    return {"split": named}


def evaluate_model(
    model: str,
    adapter: str | None,
    tasks: Mapping[str, EvaluationTask],
    options: ModelOptions,
    callbacks: Callbacks,
    *,
    start: tuple[str, str | None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Evaluation]:
    """Load a model and evaluate it on tasks.

    Args:
        model: Embedded name, local folder, GGUF file or hub id.
        adapter: PEFT adapter to put on the model.
        tasks: Tasks by label, as `prepare_tasks` makes them.
        options: How the model is loaded.
        callbacks: Notified of progress and warnings.
        start: Model and adapter of the opponent `base`; by default those that are evaluated.
        should_stop: Whether to stop; called after every completion.

    Returns:
        Task label -> evaluation.

    Raises:
        StopRequested: `should_stop` is true.
    """
    with ExitStack() as resources:
        evaluated = load_evaluated(model, adapter, tasks, options, callbacks, resources, start=start)
        return evaluate_tasks(tasks, evaluated, options.scoring, callbacks, should_stop)


def load_evaluated(
    model: str,
    adapter: str | None,
    tasks: Mapping[str, EvaluationTask],
    options: ModelOptions,
    callbacks: Callbacks,
    resources: ExitStack,
    *,
    start: tuple[str, str | None] | None = None,
) -> EvaluatedModel:
    """Load a model with its sampler, which `resources` closes; the other arguments are those of `evaluate_model`."""
    from grpo_core.policy.load import load_policy
    from grpo_core.policy.sampler import bind_engine, open_engine
    from grpo_sdk.episodes.opponents import plays_base

    bind_engine(options.engine)

    def load(name: str, adapter: str | None) -> Policy:
        return load_policy(name, adapter=adapter, lora=options.lora, device=options.device, precision=options.precision)

    policy = load(model, adapter)
    choices = [
        choice
        for label, task in tasks.items()
        for choice in check_room(label, task.task, task.rows, task.settings, policy)
    ]
    tokens = tokens_that_fit(policy.model, policy.device, options.engine.max_batch_tokens)
    policy.model.eval()
    engine, engine_choices = open_engine(options.engine, policy, resources, tokens=tokens)
    callbacks.on_choices([*engine_choices, *choices])
    evaluated = in_process(
        policy,
        engine,
        tokens_at_once=tokens,
        prompts_at_once=next((task.settings.batch_size for task in tasks.values()), None),  # the same for all
        warn=callbacks.warn_once,
    )
    if start is not None and start != (model, adapter) and any(plays_base(task.task) for task in tasks.values()):
        evaluated = replace(evaluated, start=load(*start))
    return evaluated


def evaluate_tasks(
    tasks: Mapping[str, EvaluationTask],
    model: EvaluatedModel,
    scoring: ScoringConfig,
    callbacks: Callbacks,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Evaluation]:
    """Evaluate a model on tasks, one after the other.

    Args:
        tasks: Tasks by label, as `prepare_tasks` makes them.
        model: The model that answers.
        scoring: The scorers' worker processes.
        callbacks: Notified of progress and warnings.
        should_stop: Whether to stop; called after every completion.

    Returns:
        Task label -> evaluation.

    Raises:
        StopRequested: `should_stop` is true.
    """
    results = {}
    for label, task in tasks.items():
        hooks = EvaluationHooks(
            progress=partial(callbacks.on_progress, f"evaluating {label}"),
            should_stop=should_stop,
            warn=callbacks.warn_once,
        )
        with Scoring({label: task.task}, scoring, model.start or model.policy) as scorers:
            results[label] = evaluate_rows(task.task, task.rows, task.settings, model, scorers[label], hooks)
        for warning in unscored_warnings(label, results[label]):
            callbacks.warn_once(warning)
    return results
