"""A run's model for others: a folder or a hub repository with weights, generation settings and a model card."""

from __future__ import annotations

from grpo_core.publish.errors import PublishError
from grpo_core.publish.publication import Published, publish

__all__ = ["PublishError", "Published", "publish"]
