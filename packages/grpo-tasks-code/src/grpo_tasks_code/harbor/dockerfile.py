"""What a sandbox without a container engine can do of a Dockerfile: its folder, files and variables."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from dataclasses import dataclass, field

_WITHOUT_EFFECT = frozenset({"LABEL", "MAINTAINER", "CMD", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"})
"""Instructions that decide nothing about commands which are run in the container."""
_CONTINUED = re.compile(r"\\[^\S\n]*\n")
_COMMENT = re.compile(r"^[^\S\n]*#[^\n]*\n?", re.MULTILINE)
_OPTIONS = ("--chown=", "--chmod=", "--link")


@dataclass(slots=True)
class Image:
    """A Dockerfile's environment.

    Attributes:
        workdir: Folder in which commands start; empty where the file names none.
        variables: Environment variables.
        copies: (source relative to the folder `environment`, absolute target, whether the target is a folder).
        refused: Instructions that need a container engine, in order.
    """

    workdir: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    copies: list[tuple[str, str, bool]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def read_dockerfile(text: str) -> Image:
    """Read a Dockerfile.

    Raises:
        ValueError: a line that is no instruction; in one line.
    """
    image, stages = Image(), 0
    for line in map(str.strip, _CONTINUED.sub(" ", _COMMENT.sub("", text)).splitlines()):
        name, _, rest = line.partition(" ")
        name = name.upper()
        try:
            words = [str(word) for word in json.loads(rest)] if rest.lstrip().startswith("[") else shlex.split(rest)
        except ValueError as error:
            raise ValueError(f"environment/Dockerfile: {line[:80]!r}: {error}") from None
        if name == "FROM":
            stages += 1
        elif name == "WORKDIR" and len(words) == 1 and "$" not in rest:
            image.workdir = posixpath.normpath(posixpath.join(image.workdir or "/", words[0]))
        elif name == "ENV" and words and "$" not in rest:
            pairs = words if "=" in words[0] else [f"{words[0]}={' '.join(words[1:])}"]
            image.variables |= {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
        elif name in ("COPY", "ADD") and (copies := _copies(words, image.workdir or "/", is_add=name == "ADD")):
            image.copies += copies
        elif line and name not in _WITHOUT_EFFECT:
            image.refused.append(line[:80])
    if stages != 1:
        image.refused.append(f"{stages} FROM instructions")
    return image


def _copies(words: list[str], workdir: str, *, is_add: bool) -> list[tuple[str, str, bool]]:
    """Sources and target of a COPY or ADD; none where it needs more than the task's files."""
    *sources, target = [word for word in words if not word.startswith(_OPTIONS)] or [""]
    is_archive = is_add and any("://" in source or ".tar" in source or source.endswith(".tgz") for source in sources)
    if is_archive or any("$" in path or "<<" in path or path.startswith("--") for path in (*sources, target)):
        return []
    is_folder = target.endswith(("/", "/.")) or target in (".", "..") or len(sources) > 1
    return [(source, posixpath.normpath(posixpath.join(workdir, target)), is_folder) for source in sources]
