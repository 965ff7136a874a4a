"""The console and code blocks of the documentation, as tests read them."""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

GENERATED = ("docs/reference/cli.md", "docs/reference/config.md")
"""Written by docs/generate.py, whose own test holds them to the code."""
PAGES = sorted(
    str(page.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "packages/*/README.md")
    for page in ROOT.glob(pattern)
    if str(page.relative_to(ROOT)) not in GENERATED
)

END = "<<<end of command>>>"


@dataclass(frozen=True)
class Command:
    """A command of a page and the output that the page shows."""

    text: str
    shown: tuple[str, ...]

    @property
    def fails(self) -> bool:
        return any(line.startswith("error:") for line in self.shown)


def blocks(page: str, language: str) -> Iterator[tuple[str, str]]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in re.finditer(rf"(?:<!-- from (\S+) -->\n)?^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield match[1] or "", match[2]


def command_blocks(page: str) -> list[list[Command]]:
    """The commands of each block of a page."""
    found: list[list[Command]] = []
    for _, block in blocks(page, "(?:console|bash)"):
        found.append([])
        for piece in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
            command, *shown = piece.rstrip("\n").split("\n")
            found[-1].append(Command(command, tuple(line.rstrip() for line in shown if line.strip())))
    return found


def commands(page: str) -> list[Command]:
    return [command for block in command_blocks(page) for command in block]


def missing_lines(shown: tuple[str, ...], printed: str, *, any_number: bool) -> list[str]:
    """Lines of the page that the output does not have, in this order."""

    def plain(line: str) -> str:
        if any_number and line.startswith("sample "):
            return "sample"  # which completions are shown depends on the clock
        return re.sub(r"[+-]?\d[\d.:_%-]*( k(?= tok))?", "#", line.rstrip()) if any_number else line.rstrip()

    rest = iter([plain(line) for line in printed.splitlines()])
    absent = []
    for line in shown:
        pattern = re.compile(".*".join(map(re.escape, re.sub(" +", " ", plain(line)).split("…"))))
        if line != "…" and not any(pattern.fullmatch(re.sub(" +", " ", candidate)) for candidate in rest):
            absent.append(line)
            rest = iter(())
    return absent


def check_output(page: str, command: Command, code: int, output: str, *, any_number: bool) -> None:
    """Assert that a command printed what its page shows, and failed only where the page shows an error."""
    absent = missing_lines(command.shown, output, any_number=any_number)
    assert not absent, f"{page}: $ {command.text}\ndoes not print\n  {absent[0]}\nbut\n{output}"
    assert (code != 0) == command.fails, f"{page}: $ {command.text}\nexits with {code}:\n{output}"


def run_in_one_shell(texts: Sequence[str], folder: Path, environment: Mapping[str, str]) -> list[tuple[int, str]]:
    """Exit code and output of each command; one shell, so that `cd` and an activated environment last."""
    (folder / "page.sh").write_text(
        "".join(f"{text}\ncode=$?; printf '\\n{END} %d\\n' $code; (exit $code)\n" for text in texts)
    )
    printed = subprocess.run(
        ["bash", "page.sh"],
        cwd=folder,
        # Pages leave out the middle of long rows, which a terminal and a pipe fold.
        env={**environment, "COLUMNS": "1000", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ).stdout
    pieces = re.split(rf"\n{END} (\d+)\n", printed)
    assert len(pieces) == 2 * len(texts) + 1, printed
    return [(int(code), output) for output, code in zip(pieces[::2], pieces[1::2], strict=False)]
