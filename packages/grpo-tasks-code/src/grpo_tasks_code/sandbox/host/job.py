"""One run of a program: its descriptors, its clock and its output, from the side that asked for it."""

from __future__ import annotations

import contextlib
import math
import os
import random
import select
import signal
import socket
import time
from typing import Any

from grpo_tasks_code.sandbox.arguments import Limits, patience_s
from grpo_tasks_code.sandbox.errors import BusyError, ServerError
from grpo_tasks_code.sandbox.execution import Execution, Status
from grpo_tasks_code.sandbox.host.pipes import OutputPipe, StatusPipe, memory_file
from grpo_tasks_code.sandbox.host.process import ServerProcess
from grpo_tasks_code.sandbox.host.scheduling import delay_of_this_thread_s
from grpo_tasks_code.sandbox.inside import wire

SETUP_TIMEOUT_S = 60.0
"""From the request to the first sign of the program, some milliseconds on an idle machine; more is a broken sandbox."""
RECHECK_S = 0.05
"""Given at most to a program that waits for a processor when its time is over, until the kernel counts the wait."""
DEATH_TIMEOUT_S = 10.0
"""From the order to kill to the notice of death, likewise."""
CHANNEL_TIMEOUT_S = 5.0
"""For a program that reads its channel to make room in it."""
_READ_BYTES = 1 << 16


class Clock:
    """Seconds that a program has been waited for, without those that who waits was kept from looking."""

    def __init__(self) -> None:
        self._before_s = 0.0
        self._since: float | None = None
        self._delay_s = delay_of_this_thread_s()

    @property
    def is_running(self) -> bool:
        """Whether it goes."""
        return self._since is not None

    @property
    def spent_s(self) -> float:
        """So far."""
        if self._since is None:
            return self._before_s
        late_s = delay_of_this_thread_s() - self._delay_s
        return self._before_s + max(0.0, time.monotonic() - self._since - late_s)

    def start(self) -> None:
        """Go on."""
        self._since, self._delay_s = time.monotonic(), delay_of_this_thread_s()

    def start_at(self, moment: float) -> None:
        """Begin with a moment of the monotonic clock since it was made."""
        self._since = moment

    def stop(self) -> None:
        """Stand still."""
        self._before_s, self._since = self.spent_s, None


class Job:
    """A program that runs on a server, driven by the thread that waits for it.

    Args:
        server: An idle server; it is this job's until `finish` returns.
        program: The program's text.
        stdin: Its input.
        limits: What it may use.
        mode: As in `wire.Request`; unless it is SCRIPT the program has a channel.
        is_restricted: Whether RestrictedPython compiles it.
        most_cpu_s: Processor seconds, if more than by the clock: of a program whose clock is renewed.

    Raises:
        ServerError: the server is gone.
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
        self._is_starved = False
        self._allowed_s = limits.timeout_s
        self._clock = Clock()
        self._is_awaited = True
        self._is_begun = False
        self._deadline = time.monotonic() + SETUP_TIMEOUT_S
        self._channel: socket.socket | None = None
        self._inbox = bytearray()
        self._open(program, stdin, mode, is_restricted)

    def _open(self, program: bytes, stdin: bytes, mode: int, is_restricted: bool) -> None:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            given = []
            for content in (program, stdin):
                given.append(memory_file(content))
                theirs.callback(os.close, given[-1])
            self._stdout, self._stderr = OutputPipe(self._limits.output_bytes), OutputPipe(self._limits.output_bytes)
            self._status = StatusPipe()
            for pipe in (self._stdout, self._stderr, self._status):
                ours.callback(pipe.close)
                given.append(pipe.write_end)
            if mode != wire.SCRIPT:
                self._channel, their_end = socket.socketpair()
                ours.callback(self._channel.close)
                theirs.callback(their_end.close)
                self._channel.setblocking(False)
                given.append(their_end.fileno())
            memory_bytes = self._limits.memory_mib << 20
            request = wire.Request(wire.RUN, self._number, mode, is_restricted, self._cpu_s, memory_bytes)
            self._server.run(request, given)
            self._descriptors = ours.pop_all()
        self._outputs = {pipe.read_end: pipe for pipe in (self._stdout, self._stderr)}
        self._poll = select.poll()
        for fd in (*self._outputs, self._server.control.fileno()):
            self._poll.register(fd, select.POLLIN)
        if self._channel is not None:
            self._poll.register(self._channel, select.POLLIN)

    @property
    def is_over(self) -> bool:
        """Whether the program has ended, or nothing more will be heard of it."""
        return self._reply is not None or bool(self._fault)

    def check_server(self) -> None:
        """After `finish`: note whether the server can run another program.

        Raises:
            ServerError: it was gone before it started this one, which may be tried again on another.
            BusyError: the machine hardly let the program run; it may be tried again too.
        """
        self._server.is_lost = self._reply is None
        if self._is_starved and not self._has_ended_by_itself:
            raise BusyError(
                f"the machine is too busy: in {self._clock.spent_s:.1f} s the program could not use its "
                f"{self._limits.timeout_s:g} s; have fewer workers"
            )
        if self._server.is_lost and not self._status.has_started:
            raise ServerError(self._fault)

    # Conversation

    def send(self, message: Any) -> None:
        """Send a message; from now on the program is waited for."""
        data = wire.frame(message)
        if self._channel is not None:
            self._channel.settimeout(CHANNEL_TIMEOUT_S)
            try:
                self._channel.sendall(data)
                self._channel.setblocking(False)
            except OSError:  # it does not listen; then it will not answer either
                self._hang_up()
        self._await(True)

    def receive(self) -> Any:
        """The program's next message; None when there is none: it ended, ran out of time, or sent no message."""
        self._await(True)
        while (message := self._take_message()) is None and self._channel is not None and not self.is_over:
            self._pump()
        self._await(False)
        return message

    def renew_clock(self) -> None:
        """Give the program its whole time again; it is not waited for at this moment."""
        self._clock, self._allowed_s = Clock(), self._limits.timeout_s

    @property
    def _has_message(self) -> bool:
        """Whether a message has come whole, or one that is too long for that."""
        if len(self._inbox) < wire.LENGTH.size:
            return False
        (length,) = wire.LENGTH.unpack_from(self._inbox)
        return bool(length > wire.MAX_FRAME_BYTES) or len(self._inbox) >= wire.LENGTH.size + length

    def _take_message(self) -> Any:
        if not self._has_message:
            return None
        (length,) = wire.LENGTH.unpack_from(self._inbox)
        end = wire.LENGTH.size + length
        data = bytes(self._inbox[wire.LENGTH.size : end])
        del self._inbox[:end]
        try:
            return wire.parse(data)
        except ValueError:  # too long, or no JSON: it does not speak the language
            self._hang_up()
            return None

    def _hang_up(self) -> None:
        """Close the channel: a program that reads from it then comes to its end."""
        if self._channel is not None:
            self._poll.unregister(self._channel)
            self._channel.close()
            self._channel = None
        self._inbox.clear()

    # Life and death

    def finish(self) -> Execution:
        """Wait for the program's end, and tell how it was."""
        with self._descriptors:
            self._hang_up()
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
        spent_s = self._clock.spent_s
        return Execution(status, self._stdout.text, stderr, self._spent_cpu_s, spent_s, self._server.level)

    def kill(self, why: Status) -> None:
        """End the program, with a status; the first one counts."""
        if self._why is None and not self.is_over:
            self._why = why
            self._deadline = time.monotonic() + DEATH_TIMEOUT_S
            self._server.kill_program(self._number)

    def cancel(self) -> None:
        """End the program from another thread; whoever waits for it finds it killed."""
        self._server.kill_program(self._number)

    def _await(self, is_awaited: bool) -> None:
        """Have the clock run while the program is waited for, and since it has begun."""
        self._begin()
        self._is_awaited = is_awaited
        if not is_awaited:
            self._clock.stop()
        elif self._is_begun and not self._clock.is_running:
            self._clock.start()

    def _begin(self) -> None:
        """Start the clock if the program has begun; the first wait, for its first sign, is never interrupted."""
        if not self._is_begun:
            self._status.look()
            if self._status.has_started:
                self._is_begun = True
                self._clock.start_at(self._status.started[0])

    def _pump(self) -> None:
        """Wait for something to happen, and attend to it."""
        self._begin()
        if self._why is None and self._is_begun:
            patience_s = self._allowed_s - self._clock.spent_s
        else:
            patience_s = self._deadline - time.monotonic()
        # Before it has begun it cannot run out of time, and may have begun by then.
        wait_s = patience_s if self._is_begun else min(patience_s, self._limits.timeout_s)
        for fd, _ in self._poll.poll(math.ceil(max(0.0, wait_s) * 1000)):
            if fd == self._server.control.fileno():
                self._reply = self._server.receive()
                if self._reply is None:
                    self._fault = "the server of the sandbox died while the program ran"
            elif fd in self._outputs:
                output = self._outputs[fd]
                output.take()
                if output.is_over_limit:
                    self.kill("output_limit")
            elif self._channel is not None:
                self._read_channel(self._channel)
        # Only after a look: this process may have been kept from running itself, and the program be done for long.
        if patience_s <= 0 and not self.is_over and not self._has_message:
            self._run_out()

    def _run_out(self) -> None:
        if self._why is not None:
            self._fault = f"the program was not seen to die within {DEATH_TIMEOUT_S:g} s"
        elif self._is_begun:
            self._run_out_of_time()
        else:
            self._fault = f"the program was not started within {SETUP_TIMEOUT_S:g} s"

    def _run_out_of_time(self) -> None:
        """End the program, unless its time passed while others had the processor: that is given back, up to a point."""
        spent_s, limit_s = self._clock.spent_s, self._limits.timeout_s
        scheduling = self._server.scheduling()
        cpu_s = scheduling.cpu_s - self._status.started[1]
        left_s = limit_s - max(0.0, cpu_s, spent_s - scheduling.delay_s)
        if left_s <= 0 and scheduling.is_ready and cpu_s < limit_s:
            # It waits for a processor, and the kernel counts a wait when it is over. At a moment that nobody can know:
            # a program that sleeps, and is awake whenever it is looked at, would never run out of time.
            left_s = random.uniform(RECHECK_S / 10, RECHECK_S)
        if left_s <= 0:
            self.kill("timeout")
        elif spent_s < patience_s(limit_s):
            self._allowed_s = min(spent_s + left_s, patience_s(limit_s))
        else:
            self._is_starved = True
            self.kill("sandbox_error")

    def _read_channel(self, channel: socket.socket) -> None:
        try:
            data = channel.recv(_READ_BYTES)
        except OSError:
            data = b""
        self._inbox += data
        if not data or len(self._inbox) > wire.LENGTH.size + wire.MAX_FRAME_BYTES:
            self._hang_up()

    @property
    def _has_ended_by_itself(self) -> bool:
        """Whether the order to kill it for its time found it at its end, of which a busy machine tells late."""
        reply = self._reply
        if reply is None or not (self._why == "timeout" or self._is_starved):
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
        if self._stdout.is_over_limit or self._stderr.is_over_limit:
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
        code = os.WEXITSTATUS(self._reply.status)
        if not self._status.is_compiled:  # whatever kept it from that, the sandbox was ready: it is the program's doing
            return "denied" if self._status.is_refused else "syntax_error"
        if code == 0:
            return "ok"
        return "memory" if code == wire.EXIT_MEMORY else "runtime_error"
