"""What a person sees of work in progress and of its results: in a terminal, a pipe and a notebook."""

from __future__ import annotations

import sys
import warnings


def import_bars_quietly() -> None:
    """In a notebook, import tqdm, which warns of missing widgets as soon as a library imports it."""
    if "ipykernel" in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import tqdm.auto  # noqa: F401 - it warns once, when it is imported
