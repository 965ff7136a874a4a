"""Tasks whose tools are those of released MCP servers; MCP_COMMAND of the environment starts the server."""

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from grpo_sdk import Call, Environment, Row, Task, mcp, reward

PROMPT = "Go: "
COMMAND = os.environ["MCP_COMMAND"]


class Folder(Environment):
    """A repository with a letter in it."""

    def reset(self, row: Row, folder: Path) -> None:
        """Write it."""
        self.folder = folder
        (folder / "letter.txt").write_text("meet me at noon")
        subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)


def task(name: str, tool: str, arguments: dict[str, Any], **options: Any) -> Task:
    """A task of a single problem; its demos are the call."""
    call = {"name": tool, "arguments": arguments}

    def load() -> Iterable[Row]:
        return [Row(id="1", gold=json.dumps({"turns": [{"text": "", "calls": [call]}]}))]

    def demos() -> Iterable[tuple[str, str]]:
        return [(PROMPT, f"<tool_call>{json.dumps(call, separators=(',', ':'))}</tool_call>")] * 64

    return Task(
        name,
        load,
        lambda row: PROMPT,
        lambda text: text,
        [has_called],
        row=Row,
        demos=demos,
        tools=mcp(COMMAND, **options),
        environment=Folder,
        max_turns=2,
        max_completion_length=256,
        timeout_s=20,
    )


@reward()
def has_called(calls: tuple[Call, ...]) -> float:
    """Share of the calls that the server answered."""
    return sum(call.ok for call in calls) / max(1, len(calls))


ENTITY = {"name": "A", "entityType": "b", "observations": []}  # the call has to fit the context of tiny
FILES = task("files", "read_text_file", {"path": "letter.txt"}, only=["read_text_file", "write_file"])
MEMORY = task("memory", "create_entities", {"entities": [ENTITY]}, env=["MEMORY_FILE_PATH={folder}/memory.jsonl"])
TIME = task("time", "convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"})
GIT = task("git", "git_status", {"repo_path": "."})
