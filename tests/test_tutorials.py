"""Both tutorials, followed as they stand in a new environment: from a clone, and from the packages alone.

A clone holds what is committed. Installing takes what a registry serves; a local CPU torch comes from UV_FIND_LINKS.
"""

import os
import re
from pathlib import Path

import pytest
from documentation_pages import ROOT, Command, blocks, check_output, command_blocks, run_in_one_shell

pytestmark = [pytest.mark.packaging, pytest.mark.network, pytest.mark.timeout(3600)]

FIRST, OWN = "docs/tutorial/first-run.md", "docs/tutorial/your-own-task.md"

CLONE_ONLY = r"git clone |cd examples/rhyme"
WHEELS_ONLY = r"uv venv"
FROM_OUTSIDE = r".*Qwen"
"""Commands of a block that is left out: of the other way to begin, and with a model from the hub."""


def follow(folder: Path, *, skipped: str, before_own_task: tuple[str, ...], **variables: str) -> None:
    """Type the commands and the Python session of both pages, in their order, and compare what they print."""
    (folder / "session").write_text("".join(code for _, code in blocks(OWN, "python") if ">>>" in code))
    session = Command(f"python -m doctest {folder / 'session'}", ())
    pages = {FIRST: command_blocks(FIRST), OWN: [*([Command(text, ())] for text in before_own_task)]}
    pages[OWN] += [*command_blocks(OWN), [session]]
    steps = [
        (page, command)
        for page, each in pages.items()
        for block in each
        if not any(re.match(f"{skipped}|{FROM_OUTSIDE}", command.text) for command in block)
        for command in block
    ]
    typed = [command.text.replace("git clone …", f"git clone -q {ROOT}") for _, command in steps]
    # Of this environment and its tests; UV_PYTHON would win over an activated environment.
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "OMP_NUM_THREADS", "UV_RUN_RECURSION_DEPTH", "UV_PYTHON")
    clean = {key: value for key, value in os.environ.items() if key not in hidden}
    outcomes = run_in_one_shell(typed, folder, clean | variables)
    for (page, command), (code, output) in zip(steps, outcomes, strict=True):
        check_output(page, command, code, output, any_number=True)


def test_from_a_clone(tmp_path: Path) -> None:
    follow(tmp_path, skipped=WHEELS_ONLY, before_own_task=())


def test_from_the_packages_alone(wheels: Path, tmp_path: Path) -> None:
    (plugin := tmp_path / "plugin").mkdir()
    for name, language in (("rhyme.py", "python"), ("pyproject.toml", "toml")):
        written = [code for source, code in blocks(OWN, language) if source == f"examples/rhyme/{name}"]
        (plugin / name).write_text("\n\n".join(written))
    follow(
        tmp_path,
        skipped=CLONE_ONLY,
        before_own_task=(f"cd {plugin}",),
        UV_FIND_LINKS=",".join(filter(None, (str(wheels), os.environ.get("UV_FIND_LINKS")))),
        UV_CONSTRAINT=str(wheels / "constraints.txt"),
    )
