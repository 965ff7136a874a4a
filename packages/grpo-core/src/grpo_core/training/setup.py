"""Everything a run needs before its first step, checked in the order of what it costs to check."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_core.config import CurriculumConfig, LoraConfig, RunConfig, TrainerConfig, flatten, to_yaml
from grpo_core.config.hardware import machine_choice
from grpo_core.engines.compatibility import context_of, max_context
from grpo_core.evaluation.held_out import HeldOutTask, held_out_tasks
from grpo_core.evaluation.plan import open_settings
from grpo_core.evaluation.room import check_room
from grpo_core.evaluation.rows import limited_rows, trained_tasks
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.policy.sampler import bind_engine, engine_of_run
from grpo_core.prompts.curriculum import LadderCurriculum, PassRateCurriculum
from grpo_core.prompts.filter import filter_rows, truncate_prompt
from grpo_core.rollouts.task_scoring import Scoring, prepare_nodes
from grpo_core.tracking.runs import ENDLESS
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.catalogue import owner_of
from grpo_core.training.checks import check_tasks
from grpo_core.training.hardware import memory_choices, share_machine, with_micro_batch
from grpo_core.training.learning_rate import follows_time
from grpo_core.training.rank_shares import accumulation
from grpo_core.training.starting_policy import shard_layout, starting_policy
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.endpoints.base import Engine
from grpo_sdk.endpoints.encode import encode_prompt
from grpo_sdk.errors import DataError, UserError
from grpo_sdk.plugins import variants as registry
from grpo_sdk.plugins.models import check_model
from grpo_sdk.scoring.conditions import condition_choices
from grpo_sdk.scoring.metrics import MetricNames, known_names
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.mixture import Mixture, RowOrder, task_labels
from grpo_sdk.task.row import Row
from grpo_sdk.task.spec import parse_task_specs


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything a run needs before its first step; the result of `prepare`.

    Attributes:
        config: The resolved configuration, with what was found on the model.
        config_yaml: The same as text.
        algorithm: The functions that the configuration names.
        metrics: Metrics of plugins, by name.
        policy: The model.
        engine: Engine that samples from the policy.
        mixture: Draws the prompts.
        rows: Training rows by task label.
        prompt_ids: Tokens of each training row's prompt: label -> row id -> ids.
        held_out: The tasks that are evaluated, by label.
        metric_names: Owners of the metrics' names, as far as they are known.
        scoring: Scorers and opponents of the trained tasks.
        identities: Identity by task spec.
        total_steps: Steps planned.
        max_turns: Turns that a rollout may have.
        schedule_steps: Steps that the learning rate's schedule is laid over, those first planned; None: the time limit.
        choices: Choices that were made for the user.
        is_extension: Whether the steps were asked for in place of the planned end, so that nothing else ends the run.
    """

    config: RunConfig
    config_yaml: str
    algorithm: Algorithm
    metrics: Mapping[str, Callable[..., Any]]
    policy: Policy
    engine: Engine
    mixture: Mixture
    rows: Mapping[str, Sequence[Row]]
    prompt_ids: Mapping[str, Mapping[str, tuple[int, ...]]]
    held_out: Mapping[str, HeldOutTask]
    metric_names: MetricNames
    scoring: Scoring
    identities: Mapping[str, str]
    total_steps: int
    max_turns: int
    schedule_steps: int | None
    choices: Sequence[ResolvedDefault]
    is_extension: bool = False


def prepare(config: RunConfig, resources: ExitStack, ranks: Ranks, *, checkpoint: Path | None = None) -> Setup:
    """Check names, then rows, then load the model, then start the scorers.

    Args:
        config: Configuration of the run, resolved.
        resources: Receives what must be closed.
        ranks: The processes of the run.
        checkpoint: Where the model comes from when a run goes on; its anchor then is the one stored with the run.

    Raises:
        UserError: the first thing that is wrong, before anything slower is done.
    """
    trainer = config.trainer
    algorithm = Algorithm.of(trainer)
    metrics = _metrics_of(config)
    layout = shard_layout(config, ranks)
    specs = parse_task_specs(config.task)
    bound = trained_tasks(config)
    check_model(config.model or "")
    check_tasks(config, bound)
    tasks = dict(zip(task_labels(bound), bound, strict=True))
    all_rows = {label: task.rows() for label, task in tasks.items()}
    metric_names = known_names(bound, owner_of)
    ladders = [label for label, task in tasks.items() if task.task.order == "ladder"]
    held, held_choices = held_out_tasks(config, tasks, ladders)
    involved = {**tasks, **{label: evaluated.task for label, evaluated in held.items() if label not in tasks}}
    choices = [*accumulation(trainer, ranks), *_conditions(config, involved, held), *limited_rows(tasks), *held_choices]
    policy = starting_policy(config, checkpoint, ranks, layout)
    _check_context(config, context := max_context(policy.model))
    config, sized = with_micro_batch(config, policy, ranks)
    choices += [*share_machine(config, policy, resources), *sized, *_room_choices(held, policy)]
    encoded = _encode(config, policy, tasks, all_rows, context)  # what is wrong is said before a server is started
    engine, opened = engine_of_run(config, policy, resources, ranks)
    if (served := context_of(engine, policy.model)) != context:
        encoded = _encode(config, policy, tasks, all_rows, served)
    weighted = [(task, spec.weight) for task, spec in zip(bound, specs, strict=True)]
    rows = {label: encoding.rows for label, encoding in encoded.items()}
    orders, order_choices = _orders(config, tasks, rows, held)
    choices += [*(choice for encoding in encoded.values() for choice in encoding.choices), *order_choices]
    choices += memory_choices(config, [encoding.prompt_ids for encoding in encoded.values()])
    total_steps, schedule_steps, step_choices = _steps(config, sum(map(len, rows.values())))
    return Setup(
        config=config,
        config_yaml=to_yaml(config, leave_out=open_settings(config, involved)),
        algorithm=replace(algorithm, config=config.trainer),
        metrics=metrics,
        policy=policy,
        engine=engine,
        mixture=Mixture(weighted, rows, config.seed, orders),
        rows=rows,
        prompt_ids={label: encoding.prompt_ids for label, encoding in encoded.items()},
        held_out=held,
        metric_names=metric_names,
        scoring=resources.enter_context(Scoring(tasks, config.scoring, policy)),
        identities={task.spec: task.identity for task in bound},
        total_steps=total_steps,
        max_turns=max(task.max_turns if task.has_turns else 1 for task in bound),
        schedule_steps=schedule_steps,
        choices=[*policy.choices, machine_choice(config), *opened, *choices, *step_choices],
    )


def _conditions(
    config: RunConfig, tasks: Mapping[str, BoundTask], held: Mapping[str, HeldOutTask]
) -> list[ResolvedDefault]:
    """Check the nodes that score, if any do; what scores depend on, and settings of probes and bounds."""
    nodes = prepare_nodes(config.scoring, [*tasks.values(), *(evaluated.task for evaluated in held.values())])
    return [*nodes, *condition_choices(tasks), *_probe_choices(config.trainer), *_without_effect(config, tasks)]


def _metrics_of(config: RunConfig) -> dict[str, Callable[..., Any]]:
    """The metrics of plugins; the engine's arguments are checked, too, before anything is loaded."""
    bind_engine(config.engine)
    return {name: registry.resolve("metric", name) for name in config.tracking.metrics}


def _room_choices(held: Mapping[str, HeldOutTask], policy: Policy) -> list[ResolvedDefault]:
    """Check that prompts and completions of the evaluations fit the model."""
    rooms = (check_room(label, each.task, each.rows, each.plan.settings, policy) for label, each in held.items())
    return [choice for choices in rooms for choice in choices]


def _steps(config: RunConfig, n_rows: int) -> tuple[int, int | None, list[ResolvedDefault]]:
    """Steps of the run, and those that the learning rate's schedule is laid over; see `Setup`."""
    trainer = config.trainer
    if trainer.max_steps is None and trainer.num_train_epochs is None and trainer.max_minutes is not None:
        why = f"no number of steps is planned: warm-up and decay follow the share of {trainer.max_minutes:g} minutes"
        value = f"{trainer.lr_scheduler_type}, over time"
        schedule = ResolvedDefault("schedule", value, f"{why}; a resume is not bit for bit")
        steps = ResolvedDefault("steps", "no fixed number", f"until trainer.max_minutes={trainer.max_minutes:g}")
        return ENDLESS, None, [schedule, steps] if follows_time(trainer, None) else [steps]
    if trainer.max_steps is not None:
        total, why = trainer.max_steps, "trainer.max_steps"
    else:
        epochs = 1.0 if trainer.num_train_epochs is None else trainer.num_train_epochs
        total = math.ceil(epochs * (n_rows / trainer.prompts_per_step))
        why = f"{epochs:g} epochs of {n_rows} rows at {trainer.prompts_per_step} a step"
    return total, total, [ResolvedDefault("steps", str(total), why, is_ordinary=True)]


def _orders(
    config: RunConfig,
    tasks: Mapping[str, BoundTask],
    rows: Mapping[str, Sequence[Row]],
    held: Mapping[str, HeldOutTask],
) -> tuple[dict[str, RowOrder], list[ResolvedDefault]]:
    curriculum = config.curriculum
    orders: dict[str, RowOrder] = {}
    choices = []
    for label, task in tasks.items():
        key = f"{config.seed}/{label}"
        if task.task.order == "ladder":
            ladder = LadderCurriculum(rows[label], key, threshold=curriculum.ladder_threshold)
            ladder.check_held_out(held[label].task.rows())
            orders[label] = ladder
            why = "the task asks for it; rungs unlock on held-out rows"
            choices.append(ResolvedDefault("order", f"{label}: ladder", why))
        elif curriculum.enabled:
            orders[label] = PassRateCurriculum(
                rows[label],
                key,
                ema_alpha=curriculum.ema_alpha,
                boundaries=curriculum.boundaries,
                weights=curriculum.weights,
            )
            choices.append(ResolvedDefault("order", f"{label}: by pass rate", "curriculum.enabled"))
    return orders, choices


def _probe_choices(trainer: TrainerConfig) -> list[ResolvedDefault]:
    if not trainer.gradient_noise_scale or trainer.micro_batch_prompts is not None:
        return []
    why = "micro-batches hold completions of like length, which are no random sample; set micro_batch_prompts"
    return [ResolvedDefault("trainer.gradient_noise_scale", "unavailable", why)]


def _without_effect(config: RunConfig, tasks: Mapping[str, BoundTask]) -> list[ResolvedDefault]:
    """Settings that are not their default and that nothing in this run reads."""
    loss = config.trainer.loss_type
    own = registry.arguments("loss", loss)
    takes = f"the loss {loss} takes {', '.join(sorted(own)) or 'none'}"
    unread = {f"trainer.{name}": takes for name in ("epsilon", "epsilon_high") if name not in own}
    if not config.lora.enabled:
        unread |= {f"lora.{name}": "lora.enabled is false" for name in LoraConfig.model_fields}
    if not config.curriculum.enabled:
        unread |= {
            f"curriculum.{name}": "curriculum.enabled is false" for name in ("ema_alpha", "boundaries", "weights")
        }
    if not any(task.task.order == "ladder" for task in tasks.values()):
        of_ladders = (name for name in CurriculumConfig.model_fields if name.startswith("ladder_"))
        unread |= {f"curriculum.{name}": "no task is a ladder" for name in of_ladders}
    values, defaults = flatten(config), flatten(RunConfig())
    return [ResolvedDefault(key, "without effect", why) for key, why in unread.items() if values[key] != defaults[key]]


def _check_context(config: RunConfig, limit: int | None) -> None:
    trainer = config.trainer
    if limit is not None and trainer.max_completion_length >= limit:
        raise UserError(
            f"trainer.max_completion_length={trainer.max_completion_length} leaves no room for a prompt: "
            f"the context is {limit} tokens, {limit} - {trainer.max_completion_length} = "
            f"{limit - trainer.max_completion_length}. Lower it, as to {limit // 2}."
        )


def _length_advice(trainer: TrainerConfig, shortest: int, completion: int, context: int | None) -> str:
    """Say which settings let a task's shortest prompt fit."""
    if context is not None and shortest >= context:
        return "Use a model with a longer context, or options of the task that make its prompts shorter."
    settings = []
    if shortest > trainer.max_prompt_length:
        settings.append(f"trainer.max_prompt_length={shortest} or more")
    if context is not None and shortest + completion > context:
        settings.append(f"trainer.max_completion_length={context - shortest} or less")
    if not settings:
        return "Set a larger trainer.max_gold_length, or leave it out."
    return f"The shortest prompt fits with {' and '.join(settings)}."


@dataclass(frozen=True, slots=True)
class _EncodedRows:
    """The rows of a task that fit the length limits.

    Attributes:
        rows: The rows.
        prompt_ids: Tokens of each row's prompt, by row id.
        choices: What was left out, and why.
    """

    rows: Sequence[Row]
    prompt_ids: Mapping[str, tuple[int, ...]]
    choices: Sequence[ResolvedDefault]


def _encode(
    config: RunConfig,
    policy: Policy,
    tasks: Mapping[str, BoundTask],
    rows: Mapping[str, Sequence[Row]],
    context: int | None,
) -> dict[str, _EncodedRows]:
    _check_context(config, context)
    return {label: _encode_rows(config, policy, task, rows[label], context) for label, task in tasks.items()}


def _encode_rows(
    config: RunConfig, policy: Policy, task: BoundTask, rows: Sequence[Row], context: int | None
) -> _EncodedRows:
    trainer = config.trainer
    ids = {row.id: encode_prompt(policy.tokenizer, task.prompt(row)) for row in rows}
    longest = trainer.max_prompt_length
    why = f"max_prompt_length={trainer.max_prompt_length}"
    completion = min(trainer.max_completion_length, task.task.max_completion_length or trainer.max_completion_length)
    if context is not None and context - completion < longest:
        longest = context - completion
        why = f"the context {context} less {completion} for the completion"
    try:
        report = filter_rows(
            rows,
            lambda row: len(ids[row.id]),
            max_prompt_length=longest,
            gold_length=lambda row: len(policy.tokenizer(row.gold or "")["input_ids"]),
            max_gold_length=trainer.max_gold_length,
            policy=trainer.overlong_prompts,
        )
    except DataError as error:
        advice = _length_advice(trainer, min(map(len, ids.values()), default=0), completion, context)
        raise DataError(f"task {task.name!r}: {error} The limit is {longest} tokens: {why}. {advice}") from None
    choices = []
    if report.dropped or report.truncated:
        choices.append(ResolvedDefault("rows", f"{task.label}: {report}", f"longer than {longest} tokens: {why}"))
    return _EncodedRows(report.kept, {row.id: truncate_prompt(ids[row.id], longest) for row in report.kept}, choices)
