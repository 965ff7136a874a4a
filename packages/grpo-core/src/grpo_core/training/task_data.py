"""The tasks of a run, their rows and their prompts: checked without a model, then encoded for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo_core.config import RunConfig, TrainerConfig
from grpo_core.evaluation.held_out import HeldOutTask, held_out_tasks, limited_rows, trained_tasks
from grpo_core.policy.policy import Policy
from grpo_core.prompts.curriculum import LadderCurriculum, PassRateCurriculum
from grpo_core.prompts.filter import filter_rows, truncate_prompt
from grpo_core.rollouts.task_scoring import prepare_nodes
from grpo_core.training.catalogue import owner_of
from grpo_core.training.checks import check_tasks, without_effect
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.episodes.encoder import EpisodeEncoder
from grpo_sdk.errors import DataError, UserError
from grpo_sdk.plugins.models import check_model
from grpo_sdk.scoring.conditions import condition_choices
from grpo_sdk.scoring.metrics import MetricNames, known_names
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.mixture import Mixture, RowOrder
from grpo_sdk.task.row import Row
from grpo_sdk.task.spec import parse_task_specs

PromptIds = Mapping[str, tuple[int, ...]]
"""Tokens of the prompts of a task, by the id of their row."""


@dataclass(frozen=True, slots=True)
class RunTasks:
    """The tasks of a run.

    Attributes:
        trained: Tasks that are trained, on their training rows, by label.
        held_out: Tasks that are evaluated, by label.
        metric_names: Owners of the metrics' names, as far as they are known.
        choices: What the user is told of them.
    """

    trained: Mapping[str, BoundTask]
    held_out: Mapping[str, HeldOutTask]
    metric_names: MetricNames
    choices: Sequence[ResolvedDefault]

    @property
    def every(self) -> dict[str, BoundTask]:
        """Tasks that are trained or evaluated, by label."""
        return {**{label: held.task for label, held in self.held_out.items()}, **self.trained}

    @property
    def max_turns(self) -> int:
        """Turns that a rollout may have."""
        return max(task.max_turns if task.has_turns else 1 for task in self.trained.values())

    @property
    def identities(self) -> dict[str, str]:
        """Identity by task spec, of the tasks that are trained."""
        return {task.spec: task.identity for task in self.trained.values()}

    @property
    def conditions(self) -> dict[str, dict[str, str]]:
        """The conditions on this machine that a task's scores depend on, by label, where there are any."""
        return {label: dict(task.conditions) for label, task in self.every.items() if task.conditions}


def load_tasks(config: RunConfig) -> RunTasks:
    """The tasks that a run trains and evaluates, with their rows read and checked.

    Raises:
        UserError: a task does not exist, its rows cannot be read, or it cannot be trained with these settings.
    """
    trained = trained_tasks(config)
    check_model(config.model or "")
    check_tasks(config, [*trained.values()])
    metric_names = known_names([*trained.values()], owner_of)
    ladders = [label for label, task in trained.items() if task.task.order == "ladder"]
    held_out, held_choices = held_out_tasks(config, trained, ladders)
    of_held = {label: held.task for label, held in held_out.items()}
    nodes = prepare_nodes(config.scoring, [*trained.values(), *of_held.values()])
    conditions = condition_choices({**trained, **{label: of_held[label] for label in of_held if label not in trained}})
    choices = [*nodes, *conditions, *without_effect(config, trained), *limited_rows(trained), *held_choices]
    return RunTasks(trained, held_out, metric_names, choices)


@dataclass(frozen=True, slots=True)
class RunData:
    """The rows that a run trains on.

    Attributes:
        rows: Rows that fit the length limits, by task label.
        prompt_ids: Tokens of their prompts, by task label.
        mixture: Draws the prompts.
    """

    rows: Mapping[str, Sequence[Row]]
    prompt_ids: Mapping[str, PromptIds]
    mixture: Mixture


def encode(
    config: RunConfig, tasks: RunTasks, policy: Policy, context: int | None
) -> tuple[RunData, list[ResolvedDefault]]:
    """Encode the prompts, and leave out what does not fit the length limits or the model's context.

    Args:
        config: The run.
        tasks: Its tasks.
        policy: The model, whose tokenizer encodes.
        context: Tokens that the model takes; None is no limit.

    Returns:
        (the rows, choices to be shown: what was left out, the orders).

    Raises:
        UserError: a completion leaves no room for a prompt, or a ladder has rungs without held-out rows.
        DataError: no row of a task fits.
    """
    check_context(config, context)
    rows, prompt_ids, choices = {}, {}, []
    for label, task in tasks.trained.items():
        rows[label], prompt_ids[label], left_out = _encode_rows(config.trainer, policy, task, context)
        choices += left_out
    orders, of_order = _orders(config, tasks, rows)
    weights = [spec.weight for spec in parse_task_specs(config.task)]
    mixture = Mixture([*zip(tasks.trained.values(), weights, strict=True)], rows, config.seed, orders)
    return RunData(rows, prompt_ids, mixture), [*choices, *of_order]


def check_context(config: RunConfig, limit: int | None) -> None:
    """Check that a completion leaves room for a prompt in the model's context.

    Raises:
        UserError: it does not.
    """
    longest = config.trainer.max_completion_length
    if limit is not None and longest >= limit:
        raise UserError(
            f"trainer.max_completion_length={longest} leaves no room for a prompt: the context is {limit} tokens, "
            f"{limit} - {longest} = {limit - longest}. Lower it, as to {limit // 2}."
        )


def _encode_rows(
    trainer: TrainerConfig, policy: Policy, task: BoundTask, context: int | None
) -> tuple[Sequence[Row], PromptIds, list[ResolvedDefault]]:
    encoder = EpisodeEncoder(task, policy.tokenizer)
    prompts = {row.id: task.prompt(row) for row in task.rows()}
    ids = {name: encoder.first(prompt) for name, prompt in prompts.items()}
    longest = trainer.max_prompt_length
    why = f"max_prompt_length={trainer.max_prompt_length}"
    completion = min(trainer.max_completion_length, task.task.max_completion_length or trainer.max_completion_length)
    if context is not None and context - completion < longest:
        longest = context - completion
        why = f"the context {context} less {completion} for the completion"
    try:
        report = filter_rows(
            task.rows(),
            lambda row: len(ids[row.id]),
            max_prompt_length=longest,
            gold_length=lambda row: len(policy.tokenizer(row.gold or "")["input_ids"]),
            max_gold_length=trainer.max_gold_length,
            policy=trainer.overlong_prompts,
        )
    except DataError as error:
        advice = _length_advice(trainer, min(map(len, ids.values()), default=0), completion, context)
        raise DataError(f"task {task.name!r}: {error} The limit is {longest} tokens: {why}. {advice}") from None
    choices = encoder.choice(next(iter(prompts.values())))
    if report.dropped or report.truncated:
        choices.append(ResolvedDefault("rows", f"{task.label}: {report}", f"longer than {longest} tokens: {why}"))
    return report.kept, {row.id: truncate_prompt(ids[row.id], longest) for row in report.kept}, choices


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


def _orders(
    config: RunConfig, tasks: RunTasks, rows: Mapping[str, Sequence[Row]]
) -> tuple[dict[str, RowOrder], list[ResolvedDefault]]:
    """The order of the rows of each task that has one of its own."""
    curriculum = config.curriculum
    orders: dict[str, RowOrder] = {}
    choices = []
    for label, task in tasks.trained.items():
        key = f"{config.seed}/{label}"
        if task.task.order == "ladder":
            ladder = LadderCurriculum(rows[label], key, threshold=curriculum.ladder_threshold)
            ladder.check_held_out(tasks.held_out[label].task.rows())
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
