"""Reads task folders in the format of Harbor; links that lead out, huge files and broken folders are refused.

Of a Dockerfile it reads what a sandbox without a container engine can do: its folder, files and variables.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from grpo_sdk.data import DataError
from grpo_tasks_code.extraction import MAX_PROGRAM_CHARS, block_of
from grpo_tasks_code.harbor.settings import Settings, read_settings
from grpo_tasks_code.sandbox.host.shell import BoxFile

MAX_FILES = 4096
MAX_TEXT_BYTES = 1 << 18
"""Limit of an instruction, a task.toml and a Dockerfile."""
MAX_FOLDER_BYTES = 48 << 20
"""Limit of the files of one task, which are held in memory."""
DEFAULT_WORKDIR = "/app"

_READ_ONLY_FOLDERS = frozenset(
    {"", "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "logs", "proc", "run", "sbin", "solution"}
    | {"sys", "tests", "usr"}
)
"""Folders of the sandbox's own, at the top, in which a task cannot have files."""
_CANARY = re.compile(r"(\s*(<!--.*canary.*-->|#.*canary.*)\s*\n)*", re.IGNORECASE)
"""Lines that mark benchmark data; Harbor does not show them to agents."""


class RefusedError(ValueError):
    """A folder that cannot be a task; the message says why."""


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """A task folder.

    Attributes:
        name: Name of the folder.
        instruction: Text of instruction.md.
        settings: Content of task.toml.
        image: What is known of environment/Dockerfile.
        digest: Hash of all files.
        content: Relative path -> file or folder, of all.
    """

    name: str
    instruction: str
    settings: Settings
    image: Image
    digest: str
    content: Mapping[str, BoxFile] = field(repr=False)

    @property
    def workdir(self) -> str:
        """Folder in which commands and tests start."""
        return self.settings.environment.workdir or self.image.workdir or DEFAULT_WORKDIR

    @property
    def writable(self) -> list[str]:
        """Folders that commands can write to: those at the top with files of the task, and the working directory."""
        places = [self.workdir, *(target for _, target, _ in self.image.copies)]
        return [*sorted({"/" + place.split("/")[1] for place in places}), self.workdir]

    @property
    def gold(self) -> str | None:
        """A completion with the script of `solution/`; None if there is none, or it needs other files beside it."""
        match self.files("solution"):
            case {"solve.sh": BoxFile(content=bytes(content)), **others} if not others:
                text = content.decode("utf-8", "replace").rstrip("\n")
                is_completion = text.strip() and len(text) <= MAX_PROGRAM_CHARS and "\0" not in text
                return block_of(text, "bash") if is_completion else None
        return None

    def files(self, part: str) -> dict[str, BoxFile]:
        """Return relative path -> file of `environment`, `tests` or `solution`."""
        prefix = f"{part}/"
        return {path.removeprefix(prefix): file for path, file in self.content.items() if path.startswith(prefix)}

    def placed(self) -> dict[str, BoxFile]:
        """Return absolute path -> file for all that the Dockerfile copies.

        Raises:
            RefusedError: it copies what is not there.
        """
        files, placed = self.files("environment"), dict[str, BoxFile]()
        for source, target, is_folder in self.image.copies:
            copied = dict(_copied(files, source, target, is_folder=is_folder))
            if not copied:
                raise RefusedError(f"environment/Dockerfile copies {source!r}, which environment/ does not have")
            placed |= copied
        return placed


def _copied(files: dict[str, BoxFile], source: str, target: str, *, is_folder: bool) -> Iterator[tuple[str, BoxFile]]:
    """Files of one source of a COPY by their targets; a folder's content goes into the target."""
    plain = posixpath.normpath(source).lstrip("/")
    parts = [] if plain == "." else plain.split("/")
    into = is_folder or any(char in plain for char in "*?[")
    for path, file in files.items():
        names = path.split("/")
        below = names[len(parts) :]
        if len(names) < len(parts) or not all(map(fnmatchcase, names, parts)):
            continue
        if not below and file.content is not None and into:
            below = names[-1:]
        yield posixpath.join(target, *below), file


def read_folder(root: Path, *, on_host: bool) -> TaskFolder:
    """Read a task folder.

    Args:
        root: The folder.
        on_host: Whether instructions of the Dockerfile that need a container engine are left out, not refused.

    Raises:
        RefusedError: it is none, or needs what the sandbox does not have.
    """
    files = read_files(root)
    instruction = _CANARY.sub("", _text(files, "instruction.md"), count=1).strip("\n")
    if not instruction.strip():
        raise RefusedError("instruction.md is empty")
    if "tests/test.sh" not in files:
        raise RefusedError("there is no tests/test.sh")
    toml, dockerfile = _text(files, "task.toml"), "environment/Dockerfile"
    try:
        settings = read_settings(toml)
        image = read_dockerfile(_text(files, dockerfile)) if dockerfile in files else Image()
    except ValueError as error:
        raise RefusedError(str(error)) from None
    if settings.unsupported:
        raise RefusedError(f"it needs {settings.unsupported}")
    needs = [*image.refused, *(path for path in files if re.fullmatch(r"environment/(docker-)?compose\.ya?ml", path))]
    needs += [f"the image {settings.environment.docker_image}"] if settings.environment.docker_image else []
    if needs and not on_host:
        more = f" and {len(needs) - 1} more" if len(needs) > 1 else ""
        raise RefusedError(
            f"its environment needs a container engine: {needs[0]!r}{more}; environment=host runs it with the tools of "
            "this machine in their place"
        )
    hashed = hashlib.blake2b(digest_size=16)
    for path, file in sorted(files.items()):
        hashed.update(repr((path, file.is_executable, file.content)).encode())
    folder = TaskFolder(root.name, instruction, settings, image, hashed.hexdigest(), files)
    for place in (folder.workdir, *folder.placed()):
        before, top, *_ = [*place.split("/"), ""]
        if before or top in _READ_ONLY_FOLDERS or ".." in place.split("/"):
            raise RefusedError(f"its files or its working directory are at {place!r}, which is read-only here")
    return folder


def find_folders(path: Path) -> list[Path]:
    """Return the task folders at a path: the folder itself, or those in it, by name.

    Raises:
        DataError: there is none; says what a task folder is.
    """
    if not path.is_dir():
        what = "is no folder" if path.exists() else "does not exist"
        raise DataError(f"harbor.task: path={path} {what}: give a task folder of Harbor, or a folder of such folders.")
    if _looks_like_task(path):
        return [path]
    below = sorted(each for each in path.iterdir() if not each.name.startswith(".") and _looks_like_task(each))
    if not below:
        raise DataError(
            f"harbor.task: path={path} holds no task: a task is a folder with instruction.md, task.toml and "
            "tests/test.sh."
        )
    return below


def _looks_like_task(path: Path) -> bool:
    return (path / "task.toml").is_file() or (path / "instruction.md").is_file()


def read_files(root: Path) -> dict[str, BoxFile]:
    """Return relative path -> file or folder of a task folder. Links to files inside of it are read as those files.

    Raises:
        RefusedError: a link that leads out, or to a folder; a device or pipe; too many files, or too large ones.
    """
    own = Path(os.path.realpath(root))
    files: dict[str, BoxFile] = {}
    left = MAX_FOLDER_BYTES
    for folder, names, in_folder in os.walk(own):
        for name in sorted([*names, *in_folder]):
            path = Path(folder, name)
            relative = path.relative_to(own).as_posix()
            try:
                file = _read(path, own, left)
            except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
                raise RefusedError(f"{relative}: {getattr(error, 'strerror', None) or 'links in a circle'}") from None
            if isinstance(file, str):
                raise RefusedError(f"{relative} is {file}")
            files[relative] = file
            left -= len(file.content or b"")
            if left < 0 or len(files) > MAX_FILES:
                limit = f"{MAX_FILES}, or larger than {MAX_FOLDER_BYTES >> 20} MiB together"
                raise RefusedError(f"its files are more than {limit}")
    return files


def _read(path: Path, own: Path, limit: int) -> BoxFile | str:
    """Read a file or folder; returns what it is if that is neither."""
    target = path.resolve(strict=True) if path.is_symlink() else path
    if not target.is_relative_to(own):
        return "a link out of the folder"
    if target.is_dir():
        return "a link to a folder" if path.is_symlink() else BoxFile(None)
    if not target.is_file():
        return "no file"
    with target.open("rb") as file:
        return BoxFile(file.read(limit + 1), bool(target.stat().st_mode & 0o111))


def _text(files: dict[str, BoxFile], name: str) -> str:
    file = files.get(name)
    if file is None or file.content is None:
        raise RefusedError(f"there is no {name}")
    if len(file.content) > MAX_TEXT_BYTES:
        raise RefusedError(f"{name} is larger than {MAX_TEXT_BYTES >> 10} KiB")
    try:
        text = file.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError(f"{name} is no text in UTF-8: {error.reason} at byte {error.start}") from None
    if "\0" in text:
        raise RefusedError(f"{name} is no text: it holds a null character")
    return text.replace("\r\n", "\n")


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
