"""The documentation is true: its commands run and print what the pages show, its Python runs, its links lead somewhere.

In a ```console block, a line that begins with `$ ` is a command and the lines below it are its output, where `…` stands
for anything and lines may be left out; the numbers of a command that trains are those of one machine, and any will do.
A ```python block runs; one with `>>>` is a doctest; one under a comment `<!-- from FILE -->` is a part of that file,
word for word. What does not run is listed here with its reason.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GENERATED = ("docs/reference/cli.md", "docs/reference/config.md")
"""Written by docs/generate.py, whose own test holds them to the code."""
PAGES = sorted(
    str(page.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "packages/*/README.md")
    for page in ROOT.glob(pattern)
    if str(page.relative_to(ROOT)) not in GENERATED
)

NOT_RUN = {
    r"git clone ": "the address is the reader's",
    r"uv run pytest": "is what runs this test",
    r"bash \.ci/run": "is what runs this test",
    r"pip install ": "needs a package registry; tests/test_packaging.py installs wheels",
    r"(?!.*(--dry-run|grpo profiles)).*Qwen": "needs a model from outside",
    r"grpo tasks show rhyme\.couplet": "follows the pip install; tests/test_plugins.py installs the example",
}
"""Commands that no test runs: a pattern of the command -> why."""

END = "<<<end of command>>>"

SLOW = (
    r"(uv run )?grpo-run($| .*--max-steps| --seed)",
    r"(RUN=\$\()?grpo run .*--config",
    r"grpo (warm-start|resume|publish|rollouts|games) ",
    r"grpo runs",
    r"(uv run )?grpo eval ",
    r"ls (\$RUN|model)",
)
"""Commands that load a model, or take minutes, and those that need what they leave; run with -m slow."""

SLOW_PYTHON = ("from grpo_core import train", "from grpo_core import evaluate")
"""Likewise blocks of Python that hold one of these."""

NOT_RUN_PYTHON = {"GRPOTrainer(": "needs a model from outside; packages/grpo-core/tests/interop/test_trl.py trains"}
"""Blocks of Python that no test runs: what they hold -> why."""


@dataclass(frozen=True)
class Command:
    """A command of a page and the output that the page shows."""

    text: str
    shown: tuple[str, ...]

    @property
    def fails(self) -> bool:
        return any(line.startswith("error:") for line in self.shown)

    @property
    def reason(self) -> str:
        return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, self.text)), "")

    @property
    def is_slow(self) -> bool:
        return not self.reason and any(re.match(pattern, self.text) for pattern in SLOW)

    @property
    def is_quick(self) -> bool:
        return not self.reason and not self.is_slow


def blocks(page: str, language: str) -> Iterator[tuple[str, str]]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in re.finditer(rf"(?:<!-- from (\S+) -->\n)?^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield match[1] or "", match[2]


def commands(page: str) -> list[Command]:
    found: list[Command] = []
    for _, block in blocks(page, "(?:console|bash)"):
        for piece in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
            command, *shown = piece.rstrip("\n").split("\n")
            found.append(Command(command, tuple(line.rstrip() for line in shown if line.strip())))
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder that looks like the checkout to a command, so that nothing is written into the real one."""
    for name in ("examples", "tests", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    return tmp_path


def shell(script: str, home: Path) -> str:
    (home / "page.sh").write_text(script)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "1000",  # the pages leave out the middle of long rows; a terminal and a pipe fold them
        "NO_COLOR": "1",
        "HF_HUB_OFFLINE": "1",
    }
    environment.pop("OMP_NUM_THREADS", None)  # of our tests; a reader's shell has none
    return subprocess.run(
        ["bash", "page.sh"],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ).stdout


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


def run_commands(page: str, home: Path, *, slow: bool) -> None:
    todo = [command for command in commands(page) if not command.reason and (slow or not command.is_slow)]
    # One shell for the page, so that `cd` lasts; without `uv run`, since this environment is what it would make.
    run = [re.sub(r"^uv run ", "", command.text) for command in todo]
    printed = shell("".join(f"{text}\ncode=$?; printf '\\n{END} %d\\n' $code; (exit $code)\n" for text in run), home)
    outputs = re.split(rf"\n{END} (\d+)\n", printed)
    assert len(outputs) == 2 * len(todo) + 1, printed
    for command, output, code in zip(todo, outputs[::2], outputs[1::2], strict=False):
        absent = missing_lines(command.shown, output, any_number=command.is_slow)
        assert not absent, f"{page}: $ {command.text}\ndoes not print\n  {absent[0]}\nbut\n{output}"
        assert (int(code) != 0) == command.fails, f"{page}: $ {command.text}\nexits with {code}:\n{output}"


@pytest.mark.parametrize("page", [page for page in PAGES if any(command.is_quick for command in commands(page))])
def test_commands_print_what_the_page_shows(page: str, home: Path) -> None:
    run_commands(page, home, slow=False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in PAGES if any(command.is_slow for command in commands(page))])
def test_long_commands_too(page: str, home: Path) -> None:
    run_commands(page, home, slow=True)


def python_blocks(page: str, *, slow: bool) -> list[str]:
    found = [code for source, code in blocks(page, "python") if not source]
    found = [code for code in found if not any(text in code for text in NOT_RUN_PYTHON)]
    return [code for code in found if slow == any(text in code for text in SLOW_PYTHON)]


def run_python(page: str, home: Path, *, slow: bool) -> None:
    script = "set -e\n"
    for number, code in enumerate(python_blocks(page, slow=slow)):
        (home / f"block{number}").write_text(code)
        script += "python -m doctest -o ELLIPSIS " if ">>>" in code else "python "
        script += f"block{number}\n"
    printed = shell(script + "echo all done", home)

    assert printed.endswith("all done\n"), printed


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page, slow=False)])
def test_python_runs(page: str, home: Path) -> None:
    run_python(page, home, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page, slow=True)])
def test_slow_python_runs(page: str, home: Path) -> None:
    run_python(page, home, slow=True)


def test_every_reason_not_to_run_is_used() -> None:
    everything = [command.text for page in PAGES for command in commands(page)]
    python = [code for page in PAGES for _, code in blocks(page, "python")]

    for pattern in (*NOT_RUN, *SLOW):
        assert any(re.match(pattern, text) for text in everything), f"{pattern} matches no command: delete it"
    for text in (*NOT_RUN_PYTHON, *SLOW_PYTHON):
        assert any(text in code for code in python), f"{text} is in no block: delete it"


@pytest.mark.parametrize("page", PAGES)
def test_parts_of_files_are_word_for_word(page: str) -> None:
    for source, code in blocks(page, "python"):
        assert not source or code in (ROOT / source).read_text(encoding="utf-8"), f"{page}: not in {source}:\n{code}"


@pytest.mark.parametrize("page", [*PAGES, *GENERATED])
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}, which is not there"
