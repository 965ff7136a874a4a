"""A process that evaluates one checkpoint: started, listened to, and killed when its time is up."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import IO, Any

from grpo_core.callbacks import Callbacks, ResolvedDefault
from grpo_core.evaluation.worker import Job

WORKER = (sys.executable, "-m", "grpo_core.evaluation.worker")

MAX_REASON_CHARS = 300
"""Longest excerpt of a dead process's last line."""


class Relay:
    """Passes the messages of workers on to callbacks, a choice that several checkpoints share comes once.

    Args:
        callbacks: Notified of choices, progress and warnings.
    """

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._choices: list[ResolvedDefault] = []

    def __call__(self, step: str, message: Mapping[str, Any]) -> None:
        """Pass a message on from the worker that evaluates the checkpoint `step`."""
        choices = [ResolvedDefault(**fields) for fields in message.get("choices", ())]
        new = [choice for choice in choices if choice not in self._choices]
        self._choices += new
        if new:
            self._callbacks.on_choices(new)
        if "progress" in message:
            what, done, total = message["progress"]
            self._callbacks.on_progress(f"{step}: {what}", done, total)
        if "warning" in message:
            self._callbacks.on_warning(f"{step}: {message['warning']}")


def run_worker(command: Sequence[str], job: Job, timeout_s: float, relay: Relay) -> str:
    """Evaluate one checkpoint in a process of its own.

    Returns:
        Why it failed, or an empty string.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError):  # it died at once: its exit code says why
                process.stdin.write(json.dumps(asdict(job)) + "\n")
                process.stdin.flush()  # and stays open: its end is the end of the process
            deadline = time.monotonic() + timeout_s
            reason = ""
            for message in _messages(process.stdout, deadline):
                if message is None:
                    return f"not finished within {timeout_s:g} s (--timeout-s)"
                reason = message.get("error", reason)
                relay(job.step, message)
            try:
                code = process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return f"not finished within {timeout_s:g} s (--timeout-s)"
            return "" if code == 0 else reason or _last_words(code, stderr)
        finally:
            if process.poll() is None:  # also after Ctrl-C here: nothing goes on unseen
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()


def _messages(stream: IO[str], deadline: float) -> Iterator[dict[str, Any] | None]:
    """Messages of the process until it ends; None when the time is up."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        with contextlib.suppress(ValueError):  # closed under our feet, after the time was up
            for line in stream:
                lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            yield None
            return
        if not line:
            return
        with contextlib.suppress(json.JSONDecodeError):  # a plugin may have printed before the output was moved
            message = json.loads(line)
            if isinstance(message, dict):
                yield message


def _last_words(code: int, stderr: IO[str]) -> str:
    stderr.seek(0)
    lines = [line.strip() for line in stderr.read().splitlines() if line.strip()]
    last = lines[-1][:MAX_REASON_CHARS] if lines else "it said nothing"
    if code < 0:
        killed = "; out of memory?" if code == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-code).name}{killed}: {last}"
    return f"exit code {code}: {last}"
