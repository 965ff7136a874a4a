"""The program in a completion: a python or unlabelled block of the answer, else all of it; the script: a bash block.

Completions are hostile: every search takes linear time, and nothing is compiled, since nesting can crash the parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from grpo_core import Invalid

MAX_PROGRAM_CHARS = 65_536
"""Longer programs are refused: this is over ten times the longest solution of MBPP or HumanEval."""

FENCE = "```"
END_OF_THINKING = "</think>"

_INDENT = r"[^\S\n]*+(?:(?:[-*+]|[0-9]{1,9}[.)])[^\S\n]++)?"
"""What may stand before a fence on its line: white space, and the marker of a list item."""

_INDENTED = re.compile(_INDENT)
_FENCE = r"(?=[`~])(?<![`~])(?P<fence>`{3,}+|~{3,}+)"  # looks ahead first, which is faster


def _opening(languages: str) -> re.Pattern[str]:
    """Compile the opening of a block; white space before the language is allowed if the line ends behind it."""
    language = rf"(?:{languages})(?![\w.+#-])[^\S\n]*\n?|[^\S\n]++(?:{languages})[^\S\n]*+(?:\n|\Z)"
    return re.compile(rf"{_FENCE}(?:{language})", re.IGNORECASE)


_PYTHON = _opening("python3?|py")
_SHELL = _opening("bash|shell|sh")
_ANY = re.compile(
    rf"(?:^|(?<={END_OF_THINKING})){_INDENT}{_FENCE}(?P<label>[^`\n]*+)(?:\n|\Z)|(?P<quotes>\"\"\"|''').*?(?P=quotes)",
    re.MULTILINE | re.DOTALL,
)
"""A line that opens a block, or a string of several lines: a fence in the docstring of a program opens nothing."""

_IMPORT = r"(?:import|from)\b[^\n;(#]*+(?:\([^()]*+\)[^\S\n]*+)?"
_IMPORTS = re.compile(rf"(?:[^\S\n]*+(?:{_IMPORT})?(?:#[^\n]*+)?(?:\n|\Z))*+")
"""A block of nothing but imports, comments and white space."""

_BACKTICKS = re.compile("`+")


def block_of(program: str, language: str = "python") -> str:
    """Return a program as a block, ```python by default, with a fence that is longer than any in the program."""
    longest = max((len(run) for run in _BACKTICKS.findall(program)), default=0)
    fence = "`" * max(len(FENCE), longest + 1)
    return f"{fence}{language}\n{program}\n{fence}"


def program_of(completion: str, *, unlabelled: bool = True) -> str:
    """Return the first ```python block of a completion, else its first block without a language, else all of it.

    A block behind the last `</think>` comes first: one before it is a draft, which counts only if there is no other.
    Without any block, all that is behind it counts, or all of the completion if that is blank.
    Blocks of nothing but imports and comments are put before the next one. Of several others only the first counts:
    the next one is an example of use, or what a base model goes on with.

    A block ends at the next fence with as many characters as it begins with, or at the end of the text: a completion
    that was cut, or ended at a stop string, has no closing fence. It loses the indentation of its fence. ```py and
    ```python3 count as python, and ~~~ as ```; blocks of other languages do not count.

    Args:
        completion: Text of the model.
        unlabelled: Whether a block without a language counts.

    Raises:
        Invalid: the program is blank, or longer than `MAX_PROGRAM_CHARS`.
    """
    for start in _starts(completion):
        program = _through_code(_labelled(completion, _PYTHON, start))
        if program is None and unlabelled:
            program = _through_code(_unlabelled(completion, start))
        if program is not None:
            return _bounded(program, "program")
    behind = completion.rpartition(END_OF_THINKING)[2]
    return _bounded(behind if behind.strip() else completion, "program")


def script_of(completion: str) -> str:
    """Return the first ```bash block of a completion, as in `program_of`. ```sh and ```shell count too.

    Raises:
        Invalid: there is none, or it is blank, holds a null character, or is longer than `MAX_PROGRAM_CHARS`.
    """
    blocks = (block for start in _starts(completion) for block in _labelled(completion, _SHELL, start))
    script = _bounded(next(blocks, ""), "```bash block")
    if "\0" in script:
        raise Invalid("a null character in the script")
    return script


def _starts(completion: str) -> Iterable[int]:
    """Return where to search for a block: from the end of the thinking, then from the beginning."""
    answer = completion.rpartition(END_OF_THINKING)[2]
    return dict.fromkeys((len(completion) - len(answer), 0))


def _labelled(completion: str, opening: re.Pattern[str], position: int) -> Iterator[str]:
    while opened := opening.search(completion, position):
        block, position = _block(completion, opened, position)
        yield block


def _unlabelled(completion: str, position: int) -> Iterator[str]:
    """Yield the blocks without a language. A fence with nothing behind it closes what something else opened."""
    while opened := _ANY.search(completion, position):
        if opened["quotes"]:
            position = opened.end()
            continue
        block, position = _block(completion, opened, position)
        if block.strip() and not opened["label"].strip():
            yield block


def _block(completion: str, opened: re.Match[str], position: int) -> tuple[str, int]:
    """Return a block found from `position` on, without the indentation of its fence, and the position behind it."""
    closed = completion.find(opened["fence"], opened.end())
    end = len(completion) if closed < 0 else closed
    block = completion[opened.end() : end]
    fence = opened.start("fence")
    start = completion.rfind("\n", position, fence) + 1 or position
    if start < fence and _INDENTED.fullmatch(completion, start, fence):
        lines = block.split("\n")
        # No more than every line has: some models indent the fence alone.
        depths = (len(line) - len(line.lstrip()) for line in lines if line.strip())
        depth = min([fence - start, *depths])
        block = "\n".join(line[depth:] for line in lines)
    return block, end + len(opened["fence"])


def _through_code(blocks: Iterator[str]) -> str | None:
    """Join blocks up to the first that is more than imports; None if there is no block."""
    parts = []
    for block in blocks:
        parts.append(block)
        if not _IMPORTS.fullmatch(block):
            break
    return "\n".join(parts) if parts else None


def _bounded(code: str, kind: str) -> str:
    if not code.strip():
        raise Invalid(f"no {kind}")
    if len(code) > MAX_PROGRAM_CHARS:
        raise Invalid(f"a {kind} of more than {MAX_PROGRAM_CHARS} characters")
    return code
