"""A real terminal, of tmux."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest


class Terminal:
    """A terminal that runs a command.

    Args:
        folder: Working directory.
        command: Command of a shell.
        columns: Width.
        rows: Height.
    """

    def __init__(self, folder: Path, command: str, columns: int = 80, rows: int = 24) -> None:
        if shutil.which("tmux") is None:
            pytest.skip("tmux is not installed: apt-get install tmux")
        self._socket = ["tmux", "-S", str(folder / "tmux"), "-f", os.devnull]
        size = ["-x", str(columns), "-y", str(rows)]
        command = f"unset COLUMNS LINES; {command}; sleep 60"
        subprocess.run([*self._socket, "new-session", "-d", *size, command], check=True, cwd=folder)

    def until(self, text: str) -> str:
        """Wait for a text; return the screen."""
        for _ in range(300):
            screen = self.tmux("capture-pane", "-p")
            if text in screen:
                return screen
            time.sleep(0.1)
        raise AssertionError(f"{text!r} does not come:\n{screen}")

    def codes(self) -> str:
        """The screen with the control codes of its colours."""
        return self.tmux("capture-pane", "-p", "-e")

    def press(self, *keys: str) -> None:
        """Press keys, or type texts."""
        self.tmux("send-keys", *keys)

    def tmux(self, *words: str) -> str:
        return subprocess.run([*self._socket, *words], check=True, capture_output=True, text=True).stdout

    def close(self) -> None:
        subprocess.run([*self._socket, "kill-server"], check=False, capture_output=True)
