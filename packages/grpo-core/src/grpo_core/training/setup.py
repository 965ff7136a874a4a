"""Everything a run needs before its first step, checked in the order of what it costs to check."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from grpo_core.config import RunConfig, TrainerConfig
from grpo_core.config.hardware import machine_choice
from grpo_core.engines.compatibility import context_of, max_context
from grpo_core.evaluation.candidate import check_room
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.policy.sampler import bind_engine, engine_of_run
from grpo_core.rollouts.task_scoring import Scoring
from grpo_core.tracking.runs import ENDLESS
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.hardware import fit_to_machine, memory_choices
from grpo_core.training.random_state import seed_everything
from grpo_core.training.rank_shares import accumulation
from grpo_core.training.starting_policy import shard_layout, starting_policy
from grpo_core.training.stored_run import StoredRun
from grpo_core.training.task_data import RunData, RunTasks, check_context, encode, load_tasks
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.endpoints.base import Engine, TakesArrivals
from grpo_sdk.plugins import variants as registry


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does with its data and its model.

    Attributes:
        algorithm: The functions that the configuration names.
        total_steps: Steps planned.
        schedule_steps: Steps that the learning rate's schedule is laid over, those first planned; None: the time limit.
        is_extension: Whether the steps were asked for in place of the planned end, so that nothing else ends the run.
    """

    algorithm: Algorithm
    total_steps: int
    schedule_steps: int | None
    is_extension: bool = False


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything a run needs before its first step; the result of `prepare`.

    Attributes:
        config: The resolved configuration, with what was found on the model.
        tasks: The tasks that are trained and evaluated.
        data: Their rows and prompts.
        policy: The model.
        engine: Engine that samples from the policy.
        scoring: Scorers and opponents of the trained tasks.
        plan: The algorithm and the steps.
        choices: Choices that were made for the user.
    """

    config: RunConfig
    tasks: RunTasks
    data: RunData
    policy: Policy
    engine: Engine
    scoring: Scoring
    plan: Plan
    choices: Sequence[ResolvedDefault]


def prepare(config: RunConfig, resources: ExitStack, ranks: Ranks, stored: StoredRun | None = None) -> Setup:
    """Check names, then rows; load the model, encode the prompts for it, start the engine and the scorers.

    Args:
        config: Configuration of the run, resolved.
        resources: Receives what must be closed.
        ranks: The processes of the run.
        stored: The run that goes on: its checkpoint holds the model, and the anchor is the one stored with the run.

    Raises:
        UserError: the first thing that is wrong, before anything slower is done.
    """
    _check_names(config)
    layout = shard_layout(config, ranks)
    tasks = load_tasks(config)
    policy = starting_policy(config, None if stored is None else stored.checkpoint, ranks, layout)
    check_context(config, context := max_context(policy.model))
    began_with = None if stored is None else stored.info["hardware"]
    config, fitted = fit_to_machine(config, policy, ranks, resources, began_with)
    room = [choice for label, held in tasks.held_out.items() for choice in check_room(label, held, policy)]
    data, encoded = encode(config, tasks, policy, context)  # what is wrong is said before a server is started
    engine, opened = engine_of_run(config, policy, resources, ranks)
    if (served := context_of(engine, policy.model)) != context:
        data, encoded = encode(config, tasks, policy, served)
    plan, steps = _plan(config, sum(map(len, data.rows.values())), stored)
    scoring = resources.enter_context(Scoring(tasks.trained, config.scoring, policy))
    seed_everything(config.seed + ranks.rank)  # ranks drop out other units
    chosen = [*policy.choices, machine_choice(config), *opened, *accumulation(config.trainer, ranks), *tasks.choices]
    room = [choice for choice in room if choice not in encoded]  # how tools are called, where the task is trained, too
    chosen += [*fitted, *room, *encoded, *memory_choices(config, data.prompt_ids.values()), *steps]
    chosen += _tool_choices(config, tasks, engine)
    return Setup(config, tasks, data, policy, engine, scoring, plan, chosen)


def _check_names(config: RunConfig) -> None:
    """Look up what the configuration names, before anything is loaded."""
    Algorithm.of(config.trainer)
    bind_engine(config.engine)
    for name in config.tracking.metrics:
        registry.resolve("metric", name)


def _tool_choices(config: RunConfig, tasks: RunTasks, engine: Engine) -> list[ResolvedDefault]:
    """How the tools of a run's tasks are run."""
    labels = [label for label, task in tasks.trained.items() if task.task.has_tools]
    if not labels:
        return []
    schedule, why = config.trainer.schedule, "trainer.schedule"
    if schedule == "arrival" and not isinstance(engine, TakesArrivals):
        schedule, why = "rounds", f"the engine {config.engine.name} takes no requests while it samples"
    elif schedule == "arrival":
        why = "an episode goes on when its tools have answered; not bit for bit, as trainer.schedule=rounds is"
    scoring = config.scoring
    limit = f"scoring.tool_workers, each of at most {scoring.memory_mib} MiB (scoring.memory_mib)"
    workers = ResolvedDefault("tools", f"up to {scoring.tool_workers} processes per task", limit)
    return [ResolvedDefault("schedule", f"{', '.join(labels)}: {schedule}", why), workers]


def _plan(config: RunConfig, n_rows: int, stored: StoredRun | None) -> tuple[Plan, list[ResolvedDefault]]:
    """The plan of a run: of a new one as configured, of a stored one with its schedule and the end of this call."""
    trainer, algorithm = config.trainer, Algorithm.of(config.trainer)
    choices: list[ResolvedDefault] = []
    total: int
    scheduled: int | None
    if trainer.max_steps is None and trainer.num_train_epochs is None and trainer.max_minutes is not None:
        total, scheduled = ENDLESS, None
        if follows_time(trainer, None):
            why = (
                f"no number of steps is planned: warm-up and decay follow the share of {trainer.max_minutes:g} minutes"
            )
            value = f"{trainer.lr_scheduler_type}, over time"
            choices.append(ResolvedDefault("schedule", value, f"{why}; a resume is not bit for bit"))
        steps = ResolvedDefault("steps", "no fixed number", f"until trainer.max_minutes={trainer.max_minutes:g}")
    else:
        if trainer.max_steps is not None:
            total, why = trainer.max_steps, "trainer.max_steps"
        else:
            epochs = 1.0 if trainer.num_train_epochs is None else trainer.num_train_epochs
            total = math.ceil(epochs * (n_rows / trainer.prompts_per_step))
            why = f"{epochs:g} epochs of {n_rows} rows at {trainer.prompts_per_step} a step"
        scheduled = total
        steps = ResolvedDefault("steps", str(total), why, is_ordinary=True)
    if stored is None:
        return Plan(algorithm, total, scheduled), [*choices, steps]
    # A plan by time alone is that of the configuration, whose time limit may have been changed meanwhile.
    planned, end = int(stored.state["planned_steps"]), stored.end
    total = total if end.step >= ENDLESS else end.step
    return Plan(algorithm, total, scheduled if planned >= ENDLESS else planned, end.is_extension), choices


def follows_time(config: TrainerConfig, schedule_steps: int | None) -> bool:
    """Whether the learning rate depends on the clock."""
    varies = config.lr_scheduler_type not in ("constant", "none") or bool(config.warmup_ratio)
    return schedule_steps is None and varies
