from __future__ import annotations

from grpo_core.errors import UserError


class CheckpointError(UserError):
    """A checkpoint or a run's folder that is missing, damaged, of a newer version, or cannot be written."""
