"""The packages of other trainers, which are imported only where their adapter is used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from grpo_sdk.errors import UserError


@contextmanager
def requires(package: str, install: str, *with_it: str, oldest: str = "") -> Iterator[None]:
    """Import a trainer within this context.

    Args:
        package: Name that Python imports.
        install: How to get it, for the error.
        *with_it: Packages that come with it, as Python imports them.
        oldest: First version that serves; needs a distribution of the package's name.

    Raises:
        UserError: it is not installed, or is older. An error within an installed package passes.
    """
    installed = _version(package) if oldest else None
    if installed and _numbers(installed) < _numbers(oldest):
        raise UserError(f"this needs {package} {oldest} or newer, and {installed} is installed: {install}.")
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in (package, *with_it):
            raise
        raise UserError(f"this needs the package {package}, which is not installed: {install}.") from None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a checkout in the path says no version
        return None


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
