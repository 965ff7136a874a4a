"""Verdicts that were given before, kept in one SQLite file; it holds no text but the beginning of the reason."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path

from grpo_core.judges.database import Database
from grpo_core.task.judging import PROTOCOL_VERSION, JudgedReward, JudgeQuestion

MAX_REASON_CHARS = 1000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS verdicts (
    key BLOB PRIMARY KEY, value REAL NOT NULL, reason TEXT NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
"""


class VerdictCache:
    """Verdicts by what decides them.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA)

    def get(self, key: bytes) -> tuple[float, str] | None:
        """Value and reason of a verdict; None where there is none."""
        row = self._database.run(
            lambda connection: connection.execute("SELECT value, reason FROM verdicts WHERE key = ?", (key,)).fetchone()
        )
        if row is None or not isinstance(row[0], float) or not (math.isfinite(row[0]) and 0 <= row[0] <= 1):
            return None
        return row[0], str(row[1])

    def put(self, key: bytes, value: float, reason: str) -> None:
        """Keep a verdict."""
        content = (key, value, reason[:MAX_REASON_CHARS], time.time())
        self._database.run(
            lambda connection: connection.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?)", content)
        )

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def key_of(judge: JudgedReward, question: JudgeQuestion, files: Sequence[object] = ()) -> bytes:
    """Hash of what decides a verdict: model, address, sampling, criterion, texts, and the version of the prompts.

    Args:
        judge: The judged reward.
        question: What it is asked.
        files: Fingerprint of the model's files, of a model that is in a folder.
    """
    content = [
        PROTOCOL_VERSION, judge.kind, judge.criterion, judge.scale, judge.model.address, judge.model.meaning(),
        question.as_json(), *files,
    ]  # fmt: skip
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=24).digest()
