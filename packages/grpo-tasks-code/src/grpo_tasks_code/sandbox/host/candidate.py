"""A program under test, in its process: questions and answers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from grpo_tasks_code.sandbox.execution import Execution, TestStatus, all_text
from grpo_tasks_code.sandbox.host.job import Job

_NONCE_BITS = 62
"""Bits of a question's number, which a program cannot foresee: what it wrote before is no answer."""

Answer = list[Any]
"""["value", values], ["raised", classes, text], ["callback", number, values, keywords], or a verdict: [status, reason];
see `inside.answering`."""


class Candidate:
    """Asks a program one question at a time, and accepts exactly one answer to each.

    Args:
        job: Run of the program, in mode CANDIDATE.

    Attributes:
        fault: Why the set-up failed, before the program ran; empty if it did not.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.fault = ""
        self._execution: Execution | None = None

    def load(self, before: str, classes: Sequence[str]) -> bool:
        """Run the set-up that the program may see, then the program; return whether it can answer questions."""
        self.job.send(["begin", before, list(classes)])
        match self.job.receive():
            case ["prepared"]:
                if self.job.receive() == ["ready"]:
                    return True
            case ["failed", str(reason)]:
                self.fault = reason
        self.end()
        return False

    def ask(self, kind: str, *details: Any) -> Answer:
        """Ask a question of one of the kinds in `inside.answering`."""
        if self._execution is not None:
            return list(verdict_without_answer(self._execution))
        number = secrets.randbits(_NONCE_BITS)
        self.job.send([kind, number, *details])
        reply = self.job.receive()
        match reply:
            case [int(answered), "value", [list(), list()]] if answered == number:
                return list(reply[1:])
            case [int(answered), "raised", list(classes), str()] if answered == number and all_text(classes):
                return list(reply[1:])
            case [int(answered), "callback", int(), [list(), list()], list(names)] if answered == number:
                if all_text(names):
                    return list(reply[1:])
        if reply is not None:  # the program itself writes to the channel, out of step
            self.job.kill("runtime_error")
        return list(verdict_without_answer(self.end()))

    def end(self) -> Execution:
        """Wait for the program to end, and return its execution."""
        if self._execution is None:
            self._execution = self.job.finish()
        return self._execution


def verdict_without_answer(execution: Execution) -> tuple[TestStatus, str]:
    """Return the status of a test whose program ended before it answered."""
    if execution.status == "ok":
        return "failed", "the program ended before it answered"
    lines = execution.stderr.strip().splitlines() or [f"the program ended with {execution.status}"]
    return execution.status, lines[-1]
