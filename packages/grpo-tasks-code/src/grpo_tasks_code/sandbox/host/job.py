"""One run of a program, as the calling process sees it: descriptors, time limit and output."""

from __future__ import annotations

import contextlib
import math
import os
import random
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from grpo_tasks_code.sandbox.arguments import Limits, patience_s
from grpo_tasks_code.sandbox.errors import BusyError, ServerError
from grpo_tasks_code.sandbox.host.channel import MessageChannel
from grpo_tasks_code.sandbox.host.pipes import OutputPipe, StatusPipe, memory_file
from grpo_tasks_code.sandbox.host.process import ServerProcess
from grpo_tasks_code.sandbox.host.scheduling import Scheduling, delay_of_this_thread_s
from grpo_tasks_code.sandbox.inside import wire
from grpo_tasks_code.sandbox.results import Execution, Status

RECHECK_S = 0.05
"""Most that a program gets which waits for a processor when its time is over, until the kernel counts the wait."""


class TimeLimit:
    """The time of one program. Seconds in which other processes had the processor are given back, up to a point.

    Seconds in which the waiting thread itself could not run are not counted.

    Args:
        limit_s: Seconds, by the clock and on the processor.

    Attributes:
        is_running: Whether the clock runs: the program is waited for.
        is_starved: Whether the machine was too busy for the program to use its time.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.is_starved = False
        self.renew()

    def renew(self) -> None:
        """Stop the clock, and give the program its whole time again."""
        self.is_running, self._before_s, self._allowed_s = False, 0.0, self._limit_s
        self._since, self._delay_s = 0.0, delay_of_this_thread_s()

    def start(self) -> None:
        """Start the clock, or let it go on."""
        self.is_running, self._since, self._delay_s = True, time.monotonic(), delay_of_this_thread_s()

    def start_at(self, moment: float) -> None:
        """Start the clock at a past moment of the monotonic clock, after the time was given."""
        self.is_running, self._since = True, moment

    def stop(self) -> None:
        """Stop the clock; `start` lets it go on from here."""
        self._before_s, self.is_running = self.spent_s, False

    @property
    def spent_s(self) -> float:
        """Seconds so far."""
        if not self.is_running:
            return self._before_s
        late_s = delay_of_this_thread_s() - self._delay_s
        return self._before_s + max(0.0, time.monotonic() - self._since - late_s)

    @property
    def left_s(self) -> float:
        """Seconds until `extend` has to decide."""
        return self._allowed_s - self.spent_s

    def extend(self, scheduling: Callable[[], Scheduling], before: Scheduling) -> Status | None:
        """Give back the time that other processes took; the status to end the program with where none is left.

        Args:
            scheduling: What the kernel counts for the program's process.
            before: What it counted when this time began.
        """
        spent_s, limit_s = self.spent_s, self._limit_s
        counted = scheduling()
        cpu_s, delay_s = counted.cpu_s - before.cpu_s, counted.delay_s - before.delay_s
        left_s = limit_s - max(0.0, cpu_s, spent_s - delay_s)
        if left_s <= 0 and counted.is_ready and cpu_s < limit_s:
            # It waits for a processor, and the kernel counts a wait when it is over. The moment is random: a program
            # that sleeps, and is awake whenever it is looked at, would otherwise never run out of time.
            left_s = random.uniform(RECHECK_S / 10, RECHECK_S)
        if left_s <= 0:
            return "timeout"
        if spent_s < patience_s(limit_s):
            self._allowed_s = min(spent_s + left_s, patience_s(limit_s))
            return None
        self.is_starved = True
        return "sandbox_error"


SETUP_TIMEOUT_S = 60.0
"""From the request to the first sign of the program: milliseconds on an idle machine."""
DEATH_TIMEOUT_S = 10.0
"""From the order to kill to the notice of death: milliseconds on an idle machine."""


class Job:
    """A program that runs on a server, driven by the thread that waits for it.

    Args:
        server: Idle server, reserved for this job until `finish` returns.
        program: Source of the program.
        stdin: Standard input.
        limits: Resource limits.
        mode: Mode, as in `wire.Request`; in every mode but SCRIPT the program has a channel.
        is_restricted: Whether RestrictedPython compiles the program.
        most_cpu_s: Processor seconds, if more than the time limit: for a program whose clock is renewed.

    Raises:
        ServerError: the server has ended.
    """

    def __init__(
        self,
        server: ServerProcess,
        program: bytes,
        stdin: bytes,
        limits: Limits,
        *,
        mode: int = wire.SCRIPT,
        is_restricted: bool = False,
        most_cpu_s: float = 0.0,
    ) -> None:
        self._server, self._limits = server, limits
        # The kernel knows whole seconds; the clock is finer.
        self._cpu_s = math.ceil(max(limits.timeout_s, most_cpu_s)) + 1
        server.number = self._number = (server.number + 1) % (1 << 32)
        self._reply: wire.Reply | None = None
        self._why: Status | None = None
        self._fault = ""
        self._time = TimeLimit(limits.timeout_s)
        self._is_begun = False
        self._before: Scheduling | None = None
        self._deadline = time.monotonic() + SETUP_TIMEOUT_S
        self._channel: MessageChannel | None = None
        self._open(program, stdin, mode, is_restricted)

    def _open(self, program: bytes, stdin: bytes, mode: int, is_restricted: bool) -> None:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            descriptors = []
            for content in (program, stdin):
                descriptors.append(memory_file(content))
                theirs.callback(os.close, descriptors[-1])
            self._stdout, self._stderr = (OutputPipe(self._limits.output_bytes) for _ in range(2))
            self._status = StatusPipe()
            for pipe in (self._stdout, self._stderr, self._status):
                ours.callback(pipe.close)
                descriptors.append(pipe.write_end)
            if mode != wire.SCRIPT:
                self._channel = MessageChannel()
                ours.callback(self._channel.close)
                theirs.callback(self._channel.program_end.close)
                descriptors.append(self._channel.program_end.fileno())
            request = wire.Request(self._number, mode, is_restricted, self._cpu_s, self._limits.memory_mib << 20)
            self._server.run(request, descriptors)
            self._descriptors = ours.pop_all()
        self._poll = select.poll()
        self._outputs = {pipe.read_end: pipe for pipe in (self._stdout, self._stderr)}
        for fd in (*self._outputs, self._server.control.fileno()):
            self._poll.register(fd, select.POLLIN)
        if self._channel is not None:
            self._channel.watch(self._poll)

    @property
    def is_over(self) -> bool:
        """Whether the program has ended, or its end cannot be observed any more."""
        return self._reply is not None or bool(self._fault)

    def check_server(self) -> None:
        """After `finish`, record whether the server can run another program.

        Raises:
            ServerError: the server ended before it started the program, which may be tried again on another server.
            BusyError: the machine was too busy for the program, which may be tried again.
        """
        self._server.is_lost = self._reply is None
        if self._time.is_starved and not self._has_ended_by_itself:
            raise BusyError(
                f"the machine is too busy: in {self._time.spent_s:.1f} s the program could not use its "
                f"{self._limits.timeout_s:g} s; have fewer workers"
            )
        if self._server.is_lost and not self._status.has_started:
            raise ServerError(self._fault)

    def send(self, message: Any) -> None:
        """Send a message and start waiting for the program."""
        if self._channel is not None:
            self._channel.send(message)
        self._await(True)

    def receive(self) -> Any:
        """Return the program's next message; None if it ended, ran out of time, or broke the protocol."""
        self._await(True)
        message, channel = None, self._channel
        while channel is not None and (message := channel.take()) is None and channel.is_open and not self.is_over:
            self._pump()
        self._await(False)
        return message

    def renew_clock(self) -> None:
        """Give the program its whole time again; call it while the clock is stopped."""
        self._time.renew()

    def pause(self) -> None:
        """Stop the program until `resume`; its threads do nothing meanwhile."""
        self._server.tell("pause", self._number)

    def resume(self) -> None:
        """Let the program go on, with its whole time again."""
        self._time.renew()
        if self._is_begun:
            self._before = self._server.scheduling()
        self._server.tell("resume", self._number)

    def is_within_limits(self) -> bool:
        """Read all output; whether the program runs still, and is not being ended."""
        for output in self._outputs.values():
            output.drain()
            if output.is_over_limit:
                self.kill("output_limit")
        return self._why is None and not self.is_over

    def forget_stdout(self) -> bytes:
        """Return what was read of stdout, which then is empty."""
        return self._stdout.forget()

    def finish(self) -> Execution:
        """Wait for the program to end, and return its execution."""
        with self._descriptors:
            if self._channel is not None:
                self._channel.close()
            self._await(True)
            while not self.is_over:
                self._pump()
            self._await(False)
            self._status.look()
            self._stdout.drain()
            self._stderr.drain()
        status, stderr = self._verdict(), self._stderr.text
        if status == "sandbox_error":
            stderr = f"{stderr.rstrip()}\n{self._fault}".strip() or "the program was not started"
        wall_s = self._time.spent_s
        return Execution(status, self._stdout.text, stderr, self._spent_cpu_s, wall_s, self._server.level)

    def kill(self, why: Status) -> None:
        """End the program with a status; the first call counts."""
        if self._why is None and not self.is_over:
            self._why = why
            self._deadline = time.monotonic() + DEATH_TIMEOUT_S
            self._server.tell("kill", self._number)

    def cancel(self) -> None:
        """End the program from another thread; its status is then `killed`."""
        self._server.tell("kill", self._number)

    def _await(self, is_awaited: bool) -> None:
        """Run the clock while the program is waited for, once it has begun."""
        self._begin()
        if not is_awaited:
            self._time.stop()
        elif self._is_begun and not self._time.is_running:
            self._time.start()

    def _begin(self) -> None:
        """Start the clock if the program has begun."""
        if not self._is_begun:
            self._status.look()
            if self._status.has_started:
                self._is_begun = True
                self._time.start_at(self._status.started[0])

    def _pump(self) -> None:
        """Wait for the next event and handle it."""
        self._begin()
        is_timed = self._why is None and self._is_begun
        left_s = self._time.left_s if is_timed else self._deadline - time.monotonic()
        # Before it has begun it cannot run out of time, but it may have begun when the wait ends.
        wait_s = left_s if self._is_begun else min(left_s, self._limits.timeout_s)
        for fd, _ in self._poll.poll(math.ceil(max(0.0, wait_s) * 1000)):
            if fd == self._server.control.fileno():
                self._reply = self._server.reply()
                if self._reply is None:
                    self._fault = "the server of the sandbox died while the program ran"
            elif (output := self._outputs.get(fd)) is not None:
                output.take()
                if output.is_over_limit:
                    self.kill("output_limit")
            elif self._channel is not None:
                self._channel.read()
        # Only after reading events: this process itself may have been delayed, and the program long done.
        has_message = self._channel is not None and self._channel.has_message
        if left_s <= 0 and not self.is_over and not has_message:
            if self._why is not None:
                self._fault = f"the program was not seen to die within {DEATH_TIMEOUT_S:g} s"
            elif not self._is_begun:
                self._fault = f"the program was not started within {SETUP_TIMEOUT_S:g} s"
            elif status := self._time.extend(
                self._server.scheduling, self._before or Scheduling(self._status.started[1])
            ):
                self.kill(status)

    @property
    def _has_ended_by_itself(self) -> bool:
        """Whether the program had ended before it was killed for its time; a busy machine reports the end late."""
        reply = self._reply
        if reply is None or not (self._why == "timeout" or self._time.is_starved):
            return False
        is_killed = os.WIFSIGNALED(reply.status) and os.WTERMSIG(reply.status) == signal.SIGKILL
        return not is_killed and self._spent_cpu_s <= self._limits.timeout_s

    @property
    def _spent_cpu_s(self) -> float:
        """Processor seconds of the program, once it has ended."""
        if self._reply is None or not self._status.has_started:
            return 0.0
        return max(0.0, self._reply.cpu_s - self._status.started[1])

    def _verdict(self) -> Status:
        """Return how the program ended."""
        if any(output.is_over_limit for output in self._outputs.values()):
            return "output_limit"
        if self._why is not None and not self._has_ended_by_itself:
            return self._why
        if self._reply is None or not self._status.has_started:
            return "sandbox_error"
        if os.WIFSIGNALED(self._reply.status):
            number = os.WTERMSIG(self._reply.status)
            is_out_of_time = self._reply.cpu_s >= self._cpu_s
            if number == signal.SIGXCPU or (number == signal.SIGKILL and is_out_of_time):
                return "timeout"
            return "denied" if number == getattr(signal, "SIGSYS", None) else "killed"
        if not self._status.is_compiled:  # the sandbox was ready, so the program is the cause
            return "denied" if self._status.is_refused else "syntax_error"
        code = os.WEXITSTATUS(self._reply.status)
        return "ok" if code == 0 else "memory" if code == wire.EXIT_MEMORY else "runtime_error"
