"""Baselines of a third party."""

from grpo_sdk.errors import UserError
from grpo_sdk.plugins.variant import checked_by


def spo(rewards, groups, *, alpha: float = 0.1, levels: int = 3, mode: str = "a"):
    return rewards


spo.needs_group = False


def known(alpha):
    if alpha > 1:
        raise UserError(f"alpha={alpha:g} is above 1.")


@checked_by(known)
def careful(rewards, groups, *, mode: str = "a", alpha: float = 0.1):
    return rewards


def strict(rewards, groups, *, must: int):
    return rewards


def unreadable(rewards, *, x: "Nowhere" = 1):  # noqa: F821
    return rewards
