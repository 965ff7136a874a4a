"""What a run begins with: whether golds are solved, and whether the first batch has anything to learn from."""

from __future__ import annotations

from grpo_core.config import RunConfig
from grpo_core.tracking.diagnoses import DEFAULT_KL_TARGET, named
from grpo_core.tracking.diagnosis import History
from grpo_core.tracking.monitor import finding
from grpo_core.training.collect import Collected
from grpo_core.training.setup import Setup
from grpo_sdk.callbacks import Callbacks
from grpo_sdk.errors import UserError

LEAST = 64
"""Completions from which on it says something that all earn the same: less than 1 in 20 would differ."""


MAX_GOLDS = 32
"""Golds of each task that are scored before the first step: one in ten that is wrong is missed once in 29 times."""


def check_golds(setup: Setup, callbacks: Callbacks) -> None:
    """Score the first golds of each task whose score no model decides, and say which are not solved."""
    for label, task in setup.tasks.trained.items():
        is_decided_by_models = task.opponent is not None or task.task.game is not None or bool(task.task.judges())
        if is_decided_by_models or task.task.remote is not None or "gold" in task.task.exempt:
            continue
        rows = [row for row in setup.data.rows[label] if row.gold is not None][:MAX_GOLDS]
        submitted = [(row, setup.scoring[label].scorer.submit(str(row.gold), row)) for row in rows]
        unsolved = []
        for done, (row, future) in enumerate(submitted):
            callbacks.on_progress(f"scoring golds of {label}", done, len(rows))
            if not (score := future.result()).solved:
                unsolved.append((row.id, score.why or f"earns {score.value:g}"))
        if unsolved:
            row_id, why = unsolved[0]
            history = History(setup.config, DEFAULT_KL_TARGET, setup.tasks.trained)
            seen = f"task {label}: {len(unsolved)} of {len(rows)} golds are not solved, first that of {row_id!r}: {why}"
            callbacks.on_diagnosis(finding(named("golds-unsolved"), history, seen, label))


def check_first_batch(collected: Collected, config: RunConfig, callbacks: Callbacks, *, was_chosen: bool) -> None:
    """Say, before anything is trained, that all completions earn the same.

    Args:
        collected: The first batch.
        config: The run's configuration.
        callbacks: Receives the warning.
        was_chosen: Whether the model was chosen for the user, who then gets an error in place of a warning.

    Raises:
        UserError: there is nothing to learn from, and the user named no model.
    """
    rewards = collected.rewards[~collected.rewards.isnan()]
    if len(rewards) < LEAST or bool((rewards != rewards[0]).any()):
        return
    history = History(config, DEFAULT_KL_TARGET)
    reward, solved = float(rewards[0]), [rollout.score.solved for rollout in collected.rollouts]
    history.add(1, {"reward_min": reward, "reward_max": reward, "solved_rate": sum(solved) / max(1, len(solved))})
    prompts = f"the first {len(collected.groups)} prompts"
    seen = f"all {len(rewards)} completions of {prompts} by {config.model} earn {reward:g}."
    found = finding(named("all-rewards-equal"), history, seen)
    if was_chosen:
        raise UserError(f"{found.seen} {found.why} {found.fix[0].upper()}{found.fix[1:]}")
    callbacks.on_diagnosis(found)
