"""The packages of ours that are installed, and what they require."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import metadata

SDK, TRAINER = "grpo-sdk", "grpo-core"

_REQUIREMENT = re.compile(r"(?P<package>[\w.-]+)[^;]*(;.*\bextra\s*==\s*['\"](?P<extra>[^'\"]+)['\"])?")


def version_of(distribution: str) -> str | None:
    """Version of a distribution; None where it is not installed, or is a checkout in the path."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def packages_of_extras(distribution: str) -> dict[str, list[str]]:
    """Return the packages of each extra, from the metadata of a distribution; none where it is not installed."""
    packages: dict[str, list[str]] = {}
    with suppress(metadata.PackageNotFoundError):
        for requirement in metadata.requires(distribution) or ():
            if (match := _REQUIREMENT.match(requirement)) and match["extra"]:
                packages.setdefault(match["extra"], []).append(match["package"])
    return packages


def requirement_of(module: str) -> str:
    """What of ours requires a library: `torch>=2.6`, or the smallest extra, `grpo-sdk[parquet]`; empty for none."""
    wanted = _normal(module)
    for distribution in (SDK, TRAINER):
        with suppress(metadata.PackageNotFoundError):
            for text in metadata.requires(distribution) or ():
                if (match := _REQUIREMENT.match(text)) and ";" not in text and _normal(match["package"]) == wanted:
                    return text
        extras = packages_of_extras(distribution)
        if found := [extra for extra, packages in extras.items() if wanted in map(_normal, packages)]:
            return f"{distribution}[{min(found, key=lambda extra: len(extras[extra]))}]"
    return ""


def needs(module: str, install: str = "") -> str:
    """Words behind the name of what needs a library that is not installed.

    Args:
        module: Name that Python imports.
        install: How to get it; by default by what of ours requires it.
    """
    install = install or f"pip install '{requirement_of(module) or module}'"
    return f"needs the package {module}, which is not installed: {install}"


def missing(error: BaseException) -> str:
    """What `needs` says where the error is that a library is missing which ours require; empty for another."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None  # with a dot: part of one that is there
    return needs(name) if name and requirement_of(name) else ""


def _normal(name: str) -> str:
    return name.replace("_", "-").lower()
