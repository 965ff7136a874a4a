"""What libraries show by themselves: none of it while grpo shows its own progress."""

from __future__ import annotations

import os
import sys

BAR_SWITCHES = ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS")
"""Variables read by huggingface_hub (and through it by transformers) and datasets when they are imported."""


def hide_bars() -> None:
    """Disable the libraries' progress bars; to be called before torch and transformers are imported."""
    for name in BAR_SWITCHES:
        os.environ.setdefault(name, "1")
    if "huggingface_hub" in sys.modules and os.environ[BAR_SWITCHES[0]] == "1":  # it has read its variable already
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined] # as enable_progress_bars

        disable_progress_bars()
