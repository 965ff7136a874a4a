"""Tasks whose tools are those of programs/notes_server.py."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from grpo_sdk import Environment, Row, Task, mcp, reward, tool

SERVER = (sys.executable, str(Path(__file__).with_name("programs") / "notes_server.py"))


def load() -> Iterable[Row]:
    return [Row(id="1")]


@tool
def length(text: str) -> int:
    """Length of a text."""
    return len(text)


class Desk(Environment):
    """A folder with a letter in it."""

    def reset(self, row: Row, folder: Path) -> str:
        (folder / "letter.txt").write_text("dear")
        self.folder = folder
        return f"Row {row.id}."


@reward(maximum=9.0)
def calls_made(calls: tuple[object, ...]) -> float:
    return len(calls)


PLAIN = Task(
    "plain", load, lambda row: "Take notes. ", lambda text, row: text, [calls_made], max_turns=9, timeout_s=20,
    tools=mcp(SERVER, only=["read", "write"]),
)  # fmt: skip
NOTES = replace(PLAIN, name="notes", tools=(*mcp(SERVER, env={"NOTES_MARK": "{folder}"}), length), environment=Desk)
