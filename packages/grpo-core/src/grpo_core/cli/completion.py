"""Completion of words in a shell, answered from a stored vocabulary: neither torch nor pydantic is imported for a Tab.

A script in the shell calls `grpo` with `_GRPO_COMPLETE=SHELL`, and with the line as it is typed, or its words. What
is printed is one candidate a line: its kind (`word`, or `part` where no space follows), a tab, the candidate.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click

COMPLETE = "_GRPO_COMPLETE"
"""Variable with the shell that asks: bash, zsh or fish."""

LINE, WORD, WORDS = "_GRPO_LINE", "_GRPO_WORD", "_GRPO_WORDS"
"""Variables with the line up to the cursor (bash) or the words before it (others, one a line), and the word at it."""

MAX_CANDIDATES = 1000
"""Most candidates that are printed; a person reads fewer."""

_SPECIAL = {"": re.compile(r"([^\w@%+=:,./?-])"), '"': re.compile(r'([$`"\\])')}
"""Open quote -> what bash does not take literally there; in single quotes only their end."""


def answer(program: str) -> int:
    """Print the candidates for what is typed, and nothing where something is wrong: a Tab must not print errors."""
    shell = os.environ[COMPLETE].partition("_")[0]
    *words, word = _typed(shell)
    words = ["run", *words] if program == "grpo-run" else words
    behind, quote, raw = 0, "", os.environ.get(WORD, "")
    if shell == "bash":  # it breaks words at = and :, and replaces only what is behind
        (*_, end), quote = _unquoted("" if raw in ("=", ":") else raw)
        behind = max(0, len(word) - len(end))
    for candidate in _unique(candidates(words, word)):
        if not candidate.isprintable():
            continue
        kind = "part" if candidate.endswith(("=", "/", ".")) else "word"
        text = candidate[behind:]
        if shell == "bash":
            text = _quoted(text, quote, raw)
        sys.stdout.write(f"{kind}\t{text}\n")
    return 0


def _typed(shell: str) -> list[str]:
    """The words without the program; the last one is at the cursor, and may be empty."""
    if shell != "bash":
        return [*os.environ.get(WORDS, "").split("\n")[1:], os.environ.get(WORD, "")]
    return _unquoted(os.environ.get(LINE, ""))[0][1:] or [""]


def _unquoted(text: str) -> tuple[list[str], str]:
    """The words of a text, the last one as it is at the end, and the quote that is open there."""
    for quote in ("", '"', "'"):
        with suppress(ValueError):
            *words, last = shlex.split(f"{text}\0{quote}")
            return [*words, last.removesuffix("\0")], quote
    return [""], ""


def _quoted(text: str, quote: str, raw: str) -> str:
    """A text as bash reads it inside a quote; a tilde that was typed without one is left to bash, which expands it."""
    if quote == "'":
        return text.replace("'", "'\\''")
    tilde = text[:1] if raw.startswith("~") else ""
    return tilde + _SPECIAL[quote].sub(r"\\\1", text[len(tilde) :])


def _unique(found: Iterator[str]) -> list[str]:
    unique: dict[str, None] = {}
    for candidate in found:
        unique[candidate] = None
        if len(unique) >= MAX_CANDIDATES:
            break
    return list(unique)


def candidates(words: Sequence[str], word: str) -> Iterator[str]:
    """Yield what the word at the cursor may become.

    Args:
        words: Words before it, without the program.
        word: Its beginning.
    """
    from grpo_core.cli.vocabulary import vocabulary

    known = vocabulary(_program)
    place = _place(known["commands"], words)
    if place.option:
        yield from _values(known, place.option, word)
    elif word.startswith("--") and "=" in word:
        option, _, value = word.partition("=")
        kind = place.command["options"].get(option, "")
        yield from (f"{option}={each}" for each in _values(known, kind, value))
    elif word.startswith("-"):
        yield from (option for option in place.command["options"] if option.startswith(word))
    else:
        prefix = f"{place.path} " if place.path else ""
        inner = place.command["commands"] if not place.positions else []
        yield from (name for name in inner if name.startswith(word))
        arguments = place.command["arguments"]
        if not arguments and inner and (default := known["commands"].get(f"{prefix}list")):
            arguments = default["arguments"]  # `grpo runs DIR` is `grpo runs list DIR`
        if arguments:
            # The last argument of a command may be repeated.
            yield from _values(known, arguments[min(place.positions, len(arguments) - 1)], word)


def _program() -> click.Command:
    from grpo_core.cli.main import grpo

    return grpo


@dataclass(slots=True)
class _Place:
    """Where the cursor is.

    Attributes:
        path: Names of the command: `runs show`.
        command: Its options and arguments.
        positions: Positional arguments before the cursor.
        option: Kind of the value of the option before the cursor; empty where none is expected.
    """

    path: str
    command: Mapping[str, Any]
    positions: int = 0
    option: str = ""


def _place(commands: Mapping[str, Any], words: Sequence[str]) -> _Place:
    place = _Place("", commands[""])
    for word in words:
        if place.option:
            place.option = ""
        elif word.startswith("-") and word != "-":
            place.option = "" if "=" in word else place.command["options"].get(word, "")
        else:
            path = f"{place.path} {word}".strip()
            if path in commands and not place.positions:
                place = _Place(path, commands[path])
            else:
                place.positions += 1
    return place


def _values(known: Mapping[str, Any], kind: str, word: str) -> Iterator[str]:
    """Yield the values of a kind that begin with a word; `a|b` are two kinds, `=a,b` a choice."""
    for each in kind.split("|"):
        match each:
            case "setting":
                yield from _settings(known, word)
            case "run":
                yield from _runs(word)
            case "file" | "folder":
                yield from _paths(word, only_folders=each == "folder")
            case "model":
                yield from (name for name in known["names"]["model"] if name.startswith(word))
                yield from (path for path in _paths(word) if path.endswith(("/", ".gguf")))
            case "task":
                yield from _tasks(known["names"]["task"], word)
            case _:
                values = each[1:].split(",") if each.startswith("=") else known["names"].get(each, [])
                yield from (value for value in values if value.startswith(word))


def _settings(known: Mapping[str, Any], word: str) -> Iterator[str]:
    """Yield keys by section (`trainer.`, then `trainer.max_steps=`), and behind the = the values of a key."""
    key, equals, value = word.partition("=")
    settings = known["settings"]
    if equals:
        yield from (f"{key}={each}" for each in settings.get(key, []) if each.startswith(value))
        return
    for name in settings:
        if name.startswith(word):
            section, dot, _ = name.partition(".")
            yield f"{section}." if dot and len(word) <= len(section) else f"{name}="


def _tasks(names: Sequence[str], word: str) -> Iterator[str]:
    """Yield tasks by plugin (`math.`, then `math.gsm8k`), or files of tasks."""
    *before, last = word.split(",")  # the tasks of a mixture
    head = "".join(f"{each}," for each in before)
    if last.startswith((".", "/", "~")):
        yield from (f"{head}{each}" for each in _paths(last) if each.endswith((".py", "/")))
        return
    for name in names:
        if name.startswith(last):
            plugin, _, _ = name.partition(".")
            yield f"{head}{plugin}." if len(last) <= len(plugin) else f"{head}{name}"


def _runs(word: str) -> Iterator[str]:
    """Yield the runs of the folder that a word names, or of `training_runs`, the newest first; then folders."""
    head = word.rpartition("/")[0] if "/" in word else "training_runs"
    folder = Path(head or "/").expanduser()
    with suppress(OSError):
        names = [path.name for path in folder.iterdir() if (path / "config.yaml").is_file()]
        runs = [f"{head}/{name}" for name in sorted(names, reverse=True)]
        found = [run for run in runs if run.startswith(word) or run.rpartition("/")[2].startswith(word)]
        if found:
            yield from found
            return
    yield from _paths(word, only_folders=True)


def _paths(word: str, *, only_folders: bool = False) -> Iterator[str]:
    """Yield the files and folders that begin with a word; hidden ones only if it says so."""
    head, slash, name = word.rpartition("/")
    with suppress(OSError, RuntimeError), os.scandir(Path(f"{head}{slash}" or ".").expanduser()) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if not entry.name.startswith(name) or (entry.name.startswith(".") and not name):
                continue
            if entry.is_dir():
                yield f"{head}{slash}{entry.name}/"
            elif not only_folders:
                yield f"{head}{slash}{entry.name}"


def main(program: str) -> int:
    """Answer for a program, silently where that fails; with GRPO_DEBUG=1 with the error."""
    try:
        return answer(program)
    except Exception:  # a shell that completes would write the error into the line being typed
        if os.environ.get("GRPO_DEBUG") == "1":
            raise
        return 1
