"""What ends a run before its last planned step, without anybody asking."""

from __future__ import annotations

from grpo_core.config import TrainerConfig


def reason_to_end(config: TrainerConfig, *, seconds: float, waited: int) -> str:
    """Why a run is over before its planned steps are done; an empty string while it is not.

    Args:
        config: Its limits.
        seconds: Time that it has taken, over all its processes.
        waited: Interval evaluations since the best one.
    """
    if config.max_minutes is not None and seconds >= 60 * config.max_minutes:
        return f"trainer.max_minutes={config.max_minutes:g} have passed"
    if config.early_stop_patience is not None and waited >= config.early_stop_patience:
        return f"no better held-out rate in {waited} evaluations"
    return ""
