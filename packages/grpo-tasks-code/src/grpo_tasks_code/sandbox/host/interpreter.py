"""`Interpreter`: runs one source after another in a process of the sandbox, where their variables stay."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass

from grpo_tasks_code.sandbox.arguments import MAX_TIMEOUT_S, Limits
from grpo_tasks_code.sandbox.errors import ServerError
from grpo_tasks_code.sandbox.host.job import Job
from grpo_tasks_code.sandbox.host.pool import ServerPool
from grpo_tasks_code.sandbox.inside import wire
from grpo_tasks_code.sandbox.results import Status

_NONCE_BITS = 53
"""Bits of a call's number, which no earlier call can foresee: what it wrote to the channel is no answer."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a source.

    Attributes:
        status: `ok`, or `runtime_error` for an exception; where the process ended, how it did.
        output: stdout and stderr, up to the limit.
        is_kept: Whether the process goes on, with its variables.
    """

    status: Status
    output: bytes
    is_kept: bool


class Interpreter:
    """A Python process whose variables stay from call to call; it is paused in between, and started anew where it ends.

    Args:
        pool: Servers for interpreters.
        limits: Limits of each call; memory is that of the process.
    """

    def __init__(self, pool: ServerPool, limits: Limits) -> None:
        self._pool, self._limits = pool, limits
        self._job: Job | None = None
        self._server = contextlib.ExitStack()

    def run(self, source: str) -> Ran:
        """Run a source to its end, or to that of the process.

        Raises:
            ServerError: the sandbox failed; nothing is known of the source.
        """
        job, number = self._job or self._started(), secrets.randbits(_NONCE_BITS)
        job.resume()
        job.send([number, source])
        answer = job.receive()
        if job.is_within_limits():
            match answer:
                case [int(answered), bool(has_raised)] if answered == number:
                    job.pause()
                    return Ran("runtime_error" if has_raised else "ok", job.forget_stdout(), is_kept=True)
        try:
            execution = job.finish()
            job.check_server()
        finally:
            self._job = None
            self._server.close()
        if execution.status == "sandbox_error":
            raise ServerError(execution.stderr)
        return Ran(execution.status, job.forget_stdout(), is_kept=False)

    def _started(self) -> Job:
        server = self._server.enter_context(self._pool.server())
        server.is_lost = True  # until the process has been seen to end
        try:
            self._job = Job(server, b"", b"", self._limits, mode=wire.INTERPRETER, most_cpu_s=MAX_TIMEOUT_S)
        except BaseException:
            self._server.close()
            raise
        return self._job

    def close(self) -> None:
        """End the process."""
        job, self._job = self._job, None
        with self._server, contextlib.suppress(ServerError):  # nobody waits for what it says
            if job is not None:
                job.kill("killed")
                job.finish()
                job.check_server()
