"""What is installed: plugins and what they contribute, algorithm variants, tasks and models by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo_core.plugins.facts import EmbeddedModel
    from grpo_core.plugins.host import PluginHost, default_host
    from grpo_core.plugins.loading import Diagnosis, hookimpl

__all__ = ["Diagnosis", "EmbeddedModel", "PluginHost", "default_host", "hookimpl"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from grpo_core.plugins import host  # not before it is needed: the list of plugins is read without pluggy

    return getattr(host, name)
