"""Environment variables that worker processes do not get, e.g. the key of a judge's endpoint."""

from __future__ import annotations

import os

_withheld: set[str] = set()


def withhold(variable: str) -> None:
    """Leave an environment variable out of every worker that starts from now on, and of what it starts."""
    _withheld.add(variable)


def withheld() -> list[str]:
    """The variables that are left out."""
    return sorted(_withheld)


def worker_environment() -> dict[str, str]:
    """The environment of this process without what is withheld."""
    return {name: value for name, value in os.environ.items() if name not in _withheld}
