"""Ctrl-C while a command starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

GOES_ON = """
import signal, time
try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    pass
end = time.monotonic() + 60
while time.monotonic() < end:
    pass
"""

MAKES_ANOTHER_ERROR = """
import signal
try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    raise ModuleNotFoundError("Could not import module 'PreTrainedModel'") from None
"""

LISTENS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""What a suite in the background needs: it ignores Ctrl-C, and so do its children."""

PROGRAM = f"""{LISTENS}
import sys
import click
from grpo_core.cli.main import run_command

@click.command()
def command():
    import library

sys.exit(run_command(command, [], "x"))
"""


@pytest.mark.parametrize("library", [GOES_ON, MAKES_ANOTHER_ERROR])
def test_an_import_that_catches_ctrl_c_ends_as_interrupted(tmp_path: Path, library: str) -> None:
    (tmp_path / "library.py").write_text(library)
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, "stopped: interrupted; nothing more is written.")


@pytest.mark.parametrize(("rank", "said"), [("0", "stopped: interrupted; nothing more is written."), ("1", "")])
def test_of_several_ranks_the_first_says_that_it_was_interrupted(tmp_path: Path, rank: str, said: str) -> None:
    (tmp_path / "library.py").write_text("import signal; signal.raise_signal(signal.SIGINT)")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False,
        env={**os.environ, "RANK": rank, "WORLD_SIZE": "2"},
    )  # fmt: skip
    assert (done.returncode, done.stderr.strip()) == (130, said)


@pytest.mark.parametrize(("rank", "said"), [("0", "\nstopped: interrupted; nothing more is written.\n"), ("1", "")])
def test_of_several_ranks_the_first_ends_the_line_of_ctrl_c(tmp_path: Path, rank: str, said: str) -> None:
    (tmp_path / "stops.py").write_text(
        "import click, signal\n@click.command()\ndef stop(): signal.raise_signal(signal.SIGINT)\n"
    )
    program = (
        f"{LISTENS}import sys; sys.path.insert(0, '.'); from grpo_core.cli import group, main; "
        "group.COMMANDS['stop'] = ('stops:stop', ''); sys.exit(main.main(['stop']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False,
        env={**os.environ, "RANK": rank, "WORLD_SIZE": "2"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, said)


def test_ctrl_c_before_the_commands_are_imported_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import signal; signal.raise_signal(signal.SIGINT)")
    program = f"{LISTENS}import sys; sys.path.insert(0, '.'); from grpo_core.cli.start import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "stopped: interrupted.\n")
