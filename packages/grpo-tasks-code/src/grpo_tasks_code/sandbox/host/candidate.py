"""A program under test, in its process: questions and answers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from grpo_tasks_code.sandbox.execution import Execution, TestStatus, all_text
from grpo_tasks_code.sandbox.host.job import Job

_NONCE_BITS = 62
"""Of a question's number. A program cannot foresee it, so what it wrote before a question is no answer to it."""

Answer = list[Any]
"""["value", values], ["raised", classes, text], ["callback", number, values, keywords], or a verdict: [status, reason];
see `inside.answering`."""


class Candidate:
    """Asks a program, one question at a time, and takes exactly one answer to each.

    Args:
        job: The program's run, in mode CANDIDATE.

    Attributes:
        fault: Why set-up failed in the program's process, before the program ran.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.fault = ""
        self._execution: Execution | None = None

    def load(self, before: str, classes: Sequence[str]) -> bool:
        """Have the program run, after the set-up that it may see; whether it can be asked now."""
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
        """Put a question, of the kinds that `inside.answering` knows."""
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
        if reply is not None:  # it writes on the channel itself, and no longer in step
            self.job.kill("runtime_error")
        return list(verdict_without_answer(self.end()))

    def end(self) -> Execution:
        """Let it come to its end, and tell how it was."""
        if self._execution is None:
            self._execution = self.job.finish()
        return self._execution


def verdict_without_answer(execution: Execution) -> tuple[TestStatus, str]:
    """A test's status when the program ended before it answered."""
    if execution.status == "ok":
        return "failed", "the program ended before it answered"
    lines = execution.stderr.strip().splitlines() or [f"the program ended with {execution.status}"]
    return execution.status, lines[-1]
