"""The program in a completion: a python or unlabelled block of the answer, else all of it; the script: a bash block.

Completions are hostile: every search takes linear time, and nothing is compiled, since nesting can crash the parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from grpo_sdk import Invalid

MAX_PROGRAM_CHARS = 65_536
"""Longer programs are refused: this is over ten times the longest solution of MBPP or HumanEval."""

FENCE = "```"
END_OF_THINKING = "</think>"

_INDENT = r"[^\S\n]*+(?:(?:[-*+]|[0-9]{1,9}[.)])[^\S\n]++)?"
"""What may stand before a fence on its line: white space, and the marker of a list item."""

_INDENTED = re.compile(_INDENT)
_FENCE = r"(?=[`~])(?<![`~])(?P<fence>`{3,}+|~{3,}+)"  # looks ahead first, which is faster


_ATTRIBUTE = r"""[^\S\n]*+(?:\{[^{}`\n]{0,200}\}|:[^\s`]{0,200}|[\w-]{1,40}=(?:"[^"`\n]{0,200}"|'[^'`\n]{0,200}'))"""
_STRING = r"(?P<quotes>\"\"\"|''').*?(?P=quotes)"
"""A string of several lines: a fence in the docstring of a program opens and closes nothing."""


def _opening(languages: str) -> re.Pattern[str]:
    """Compile the opening of a block: the language alone on its line or with attributes, or with code behind it."""
    language = rf"(?:{languages})(?![\w.+#-])"
    label = rf"{language}(?:{_ATTRIBUTE})*+|\{{[^\S\n]?\.?{language}[^{{}}`\n]{{0,200}}\}}"
    return re.compile(rf"{_FENCE}(?:[^\S\n]*+(?:{label})[^\S\n]*+(?:\n|\Z)|{language}[^\S\n]*+)", re.IGNORECASE)


_PYTHON = _opening("python3?|py")
_SHELL = _opening("bash|shell|sh")
_ANY = re.compile(
    rf"(?:^|(?<={END_OF_THINKING})){_INDENT}{_FENCE}(?P<label>[^`\n]*+)(?:\n|\Z)|{_STRING}", re.MULTILINE | re.DOTALL
)
"""A line that opens a block, or a string."""

_CLOSING = re.compile(rf"(?P<begins>^[^\S\n]*+)?{_FENCE}(?P<ends>[^\S\n]*+$)?|{_STRING}", re.MULTILINE | re.DOTALL)
"""What may close a block, or a string."""

_IMPORT = r"(?:import|from)\b[^\n;(#]*+(?:\([^()]*+\)[^\S\n]*+)?"
_IMPORTS = re.compile(rf"(?:[^\S\n]*+(?:{_IMPORT})?(?:#[^\n]*+)?(?:\n|\Z))*+")
"""A block of nothing but imports, comments and white space."""

_BEGINNING = re.compile(r"\s*+(?:(?:async )?def \w|class \w|@\w|import \w|from [\w.]++ import )")
"""How a program begins that is in no block."""

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

    A completion that begins with code, as `def` or `import`, ends at its first fence: the opening stood in the prompt.

    A block ends at the first fence with as many characters as it begins with that ends its line and is in no string of
    several lines; if there is none before the next block, at the first such fence anywhere, or at the end of the text:
    a completion that was cut, or ended at a stop string, has no closing fence. It loses the indentation of its fence.
    ```py, ```python3, ```{python} and ```python:a.py count as python, and ~~~ as ```; other languages do not count.

    Args:
        completion: Text of the model.
        unlabelled: Whether a block without a language counts.

    Raises:
        Invalid: the program is blank, or longer than `MAX_PROGRAM_CHARS`.
    """
    for start in _starts(completion):
        closing = _next_fence(completion, start, FENCE) if _BEGINNING.match(completion, start) else None
        if closing is not None and not _IMPORTS.fullmatch(completion, start, closing.start()):
            return _bounded(completion[start : closing.start()], "program")
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
    return (block for _, block in _blocks(completion, opening, position))


def _unlabelled(completion: str, position: int) -> Iterator[str]:
    """Yield the blocks without a language. A fence with nothing behind it closes what something else opened."""
    for opened, block in _blocks(completion, _ANY, position):
        if block.strip() and not opened["label"].strip():
            yield block


def _blocks(completion: str, opening: re.Pattern[str], position: int) -> Iterator[tuple[re.Match[str], str]]:
    """Yield what opens each block found from `position` on, and the block without the indentation of its fence."""
    unread = position  # no block that begins before this position is closed by a line: each line is read once
    while opened := opening.search(completion, position):
        start, fence = opened.end(), opened["fence"]
        if fence is None:  # a string
            position = start
            continue
        end = -1
        if start >= unread and completion[start - 1] == "\n":
            closing = _next_fence(completion, start, fence)
            if closing is not None and closing["ends"] is not None:
                end = closing.start("fence")
            else:
                unread = closing.start() if closing else len(completion)
        if end < 0:
            end = completion.find(fence, start)
        if end < 0:
            end = len(completion)
        yield opened, _dedented(completion[start:end], completion, opened, position)
        position = end + len(fence)


def _next_fence(completion: str, position: int, fence: str) -> re.Match[str] | None:
    """Return the next fence that begins or ends its line outside of strings, and is no shorter than the given one."""
    for found in _CLOSING.finditer(completion, position):
        if found["fence"] and found["fence"].startswith(fence) and (found["begins"], found["ends"]) != (None, None):
            return found
    return None


def _dedented(block: str, completion: str, opened: re.Match[str], position: int) -> str:
    fence = opened.start("fence")
    start = completion.rfind("\n", position, fence) + 1 or position
    if start == fence or not _INDENTED.fullmatch(completion, start, fence):
        return block
    lines = block.split("\n")
    # No more than every line has: some models indent the fence alone.
    depths = (len(line) - len(line.lstrip()) for line in lines if line.strip())
    depth = min([fence - start, *depths])
    return "\n".join(line[depth:] for line in lines)


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
