"""What libraries show by themselves: none of it while grpo shows its own progress."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


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
