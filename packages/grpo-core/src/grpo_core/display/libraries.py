"""What libraries show by themselves: none of it while grpo shows its own progress."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

BAR_SWITCHES = ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS")
"""Variables read by huggingface_hub (and through it by transformers) and datasets when they are imported."""


def hide_bars() -> None:
    """Disable the libraries' progress bars; to be called before torch and transformers are imported."""
    for name in BAR_SWITCHES:
        os.environ.setdefault(name, "1")
    if "huggingface_hub" in sys.modules and os.environ[BAR_SWITCHES[0]] == "1":  # it has read its variable already
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined] # as enable_progress_bars

        disable_progress_bars()


def import_bars_quietly() -> None:
    """In a notebook, import tqdm, which warns of missing widgets as soon as a library imports it."""
    if "ipykernel" in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import tqdm.auto  # noqa: F401 - it warns once, when it is imported


@contextmanager
def without_bars() -> Iterator[None]:
    """Hide the bars of transformers and datasets, which come on every load; those of downloads stay."""
    from datasets.utils import logging as datasets_logging
    from transformers.utils import logging as transformers_logging

    # It warns of a kernel for CPUs that is not installed, when TRL imports it.
    logging.getLogger("bitsandbytes.backends").setLevel(logging.ERROR)
    libraries = (transformers_logging, datasets_logging)
    switched = [library for library in libraries if library.is_progress_bar_enabled()]
    for library in switched:
        library.disable_progress_bar()
    try:
        yield
    finally:
        for library in switched:
            library.enable_progress_bar()
