"""Untrusted work in worker processes that can be killed: `KillablePool`."""

from grpo_sdk.killable.importing import inside_worker, refuse_at_import
from grpo_sdk.killable.outcome import Outcome, PoolStats
from grpo_sdk.killable.pool import KillablePool

__all__ = ["KillablePool", "Outcome", "PoolStats", "inside_worker", "refuse_at_import"]
