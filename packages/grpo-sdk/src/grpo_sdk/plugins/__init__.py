"""Installed plugins and their contributions: algorithm variants, tasks and models by name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo_sdk.plugins.facts import Diagnosis, EmbeddedModel
    from grpo_sdk.plugins.hooks import hookimpl
    from grpo_sdk.plugins.host import PluginHost, default_host

_MODULE_OF = {  # imported when they are used: plugins are listed without pluggy
    "Diagnosis": "facts",
    "EmbeddedModel": "facts",
    "PluginHost": "host",
    "default_host": "host",
    "hookimpl": "hooks",
}

__all__ = ["Diagnosis", "EmbeddedModel", "PluginHost", "default_host", "hookimpl"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
