"""The first batch of a run: whether there is anything to learn from."""

from __future__ import annotations

from grpo_core.callbacks import Callbacks
from grpo_core.config import RunConfig
from grpo_core.errors import UserError
from grpo_core.tracking.diagnoses import DEFAULT_KL_TARGET, named
from grpo_core.tracking.diagnosis import History
from grpo_core.tracking.monitor import finding
from grpo_core.training.collect import Collected

LEAST = 64
"""Completions from which on it says something that all earn the same: less than 1 in 20 would differ."""


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
    reward, solved = float(rewards[0]), [each.score.solved for each in collected.rollouts if each.score is not None]
    history.add(1, {"reward_min": reward, "reward_max": reward, "solved_rate": sum(solved) / max(1, len(solved))})
    prompts = f"the first {len(collected.groups)} prompts"
    seen = f"all {len(rewards)} completions of {prompts} by {config.model} earn {reward:g}."
    found = finding(named("all-rewards-equal"), history, seen)
    if was_chosen:
        raise UserError(f"{found.seen} {found.why} {found.fix[0].upper()}{found.fix[1:]} See {found.section}")
    callbacks.on_diagnosis(found)
