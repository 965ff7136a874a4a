from __future__ import annotations

from grpo_core.errors import GrpoError


class PublishError(GrpoError, RuntimeError):
    """A model could not be written or uploaded, through no mistake of the user's."""
