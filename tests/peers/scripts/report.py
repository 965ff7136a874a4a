"""What a script says of its trainer: one line of JSON, which the test compares with our scorer's scores."""

import importlib.metadata
import json
import subprocess
import sys
from typing import Any


def batch() -> list[dict[str, Any]]:
    """The samples to score; see `make_batch`."""
    with open(sys.argv[1], encoding="utf-8") as file:
        return json.load(file)


def answer(value: float | None, parts: dict[str, float] | None = None, unscored: str = "") -> dict[str, Any]:
    """What a trainer's own code returned for a sample.

    Args:
        value: Reward; None where the trainer holds none.
        parts: What it logs of the sample: the task's rewards, `solved` and `valid`; None where it logs nothing.
        unscored: What became of the sample where there is no reward, in a few words.
    """
    return {"value": value, "parts": parts, "unscored": unscored}


def commit_of(source: str) -> str:
    """The commit of a checkout."""
    command = ["git", "-C", source, "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def report(package: str, path: str, answers: list[dict[str, Any]]) -> None:
    """Print the result.

    Args:
        package: Package of the trainer, for its version; or `name commit` of a source tree.
        path: The trainer's own code that ran: module and functions.
        answers: An answer for each sample of the batch.
    """
    version = package if " " in package else f"{package} {importlib.metadata.version(package)}"
    print(json.dumps({"version": version, "path": path, "answers": answers}))
