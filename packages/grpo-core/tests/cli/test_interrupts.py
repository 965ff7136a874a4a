"""Ctrl-C while a command starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAID = "stopped: interrupted; nothing more is written.\n"

STOPS = "import signal; signal.raise_signal(signal.SIGINT)\n"

GOES_ON = """
import signal
try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    pass
while True:
    pass
"""

MAKES_ANOTHER_ERROR = """
import signal
try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    raise ModuleNotFoundError("Could not import module 'PreTrainedModel'") from None
"""

LISTENS = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.path.insert(0, '.')\n"
"""What a suite in the background needs: it ignores Ctrl-C, and so do its children."""

PROGRAM = f"""{LISTENS}
import click
from grpo_sdk.cli.main import run_command
@click.command()
def command():
    import library
sys.exit(run_command(command, [], "x"))
"""

COMMAND = f"""{LISTENS}
from grpo_sdk.cli import group, main
group.COMMANDS["stop"] = ("library:stop", "")
sys.exit(main.main(["stop"]))
"""

STOP = f"import click\n@click.command()\ndef stop():\n    {STOPS}"

START = f"{LISTENS}from grpo_sdk.cli.start import main; sys.exit(main())"


@pytest.mark.parametrize(
    ("program", "module", "source", "rank", "said"),
    [
        (PROGRAM, "library", GOES_ON, "", f"\n{SAID}"),
        (PROGRAM, "library", MAKES_ANOTHER_ERROR, "", SAID),
        (COMMAND, "library", STOP, "0", f"\n{SAID}"),  # which ends the terminal's line with ^C
        (COMMAND, "library", STOP, "1", ""),
        (START, "click", STOPS, "", "stopped: interrupted.\n"),
    ],
    ids=["an import goes on", "an import fails", "first rank", "second rank", "before the commands"],
)
def test_ctrl_c_ends_as_interrupted_without_a_traceback(
    tmp_path: Path, program: str, module: str, source: str, rank: str, said: str
) -> None:
    (tmp_path / f"{module}.py").write_text(source)
    ranks = {"RANK": rank, "WORLD_SIZE": "2"} if rank else {}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False,
        env={**os.environ, **ranks},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, said)
