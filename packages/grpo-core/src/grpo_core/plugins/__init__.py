"""What is installed: plugins and what they contribute, algorithm variants, tasks and models by name."""

from grpo_core.plugins.host import Diagnosis, EmbeddedModel, PluginHost, default_host, hookimpl

__all__ = ["Diagnosis", "EmbeddedModel", "PluginHost", "default_host", "hookimpl"]
