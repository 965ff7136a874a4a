"""Publishing a run's model as a folder or hub repository with weights, generation settings and a model card."""

from __future__ import annotations

from grpo_core.publish.card import CardFacts
from grpo_core.publish.publication import Published, PublishError, publish

__all__ = ["CardFacts", "PublishError", "Published", "publish"]
