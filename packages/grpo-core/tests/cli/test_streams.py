"""Standard streams as a shell may leave them, with real processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

GRPO = f"{sys.executable} -m grpo_core"


def shell(command: str) -> tuple[int, str]:
    """Exit code of a command line in bash, and what stands on its stderr."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPO_")}
    done = subprocess.run(
        ["bash", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=environment
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(("command", "code", "said"), [
    (f"{GRPO} models >&-", 1, "error: stdout cannot be written: it is closed. Its output is lost.\n"),
    (f"{GRPO} models --json > /dev/full", 1, "error: stdout cannot be written: No space left on device."),
    (f"{GRPO} no-such-command 2>&-", 2, ""),
    (f"{GRPO} models <&- >&- 2>&-", 1, ""),
    (f"{GRPO} models | true; exit ${{PIPESTATUS[0]}}", 0, ""),
    (f"{GRPO} no-such-command 2>&1 | true; exit ${{PIPESTATUS[0]}}", 2, ""),
    (f"{GRPO} run --show-config no_such=1 >&-", 2, "error: no setting 'no_such'"),
])  # fmt: skip
def test_a_stream_that_cannot_be_written_has_the_right_words(command: str, code: int, said: str) -> None:
    found, stderr = shell(command)
    assert found == code
    assert stderr.startswith(said) if said else not stderr
    assert stderr.count("\n") <= 1


def test_a_file_does_not_take_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from grpo_sdk.cli.terminal import standard_streams\n"
        "with standard_streams(), open(__file__) as file:\n"
        "    assert file.fileno() > 2\n"
    )
    assert shell(f"{sys.executable} {script} <&- >&-") == (0, "")
