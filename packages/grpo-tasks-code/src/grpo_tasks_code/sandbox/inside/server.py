"""The server: prepares one level, then forks and watches one program after another until its socket is closed."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
from pathlib import Path
from types import ModuleType

from grpo_tasks_code.sandbox.inside import library, program, wire
from grpo_tasks_code.sandbox.inside.command_line import forget_command_line
from grpo_tasks_code.sandbox.inside.confinement import Confinement, LevelName, prepare

_FIRST_TO_DIE = "1000"
"""Score with which the kernel kills a process first when memory runs out."""


def main(
    control_fd: str, parent: str, cgroup: str, level: LevelName, restricted_path: str, box: str, numpy_path: str
) -> None:
    """Serve on a socket at an isolation level.

    Args:
        control_fd: Descriptor of the socket.
        parent: Process id of the caller.
        cgroup: Folder of a control group to join; empty if there is none.
        level: Isolation level.
        restricted_path: Folder of RestrictedPython, if it is to be loaded.
        box: At L1, a folder that programs may write to.
        numpy_path: Folder of NumPy, which programs and tests can import; empty if there is none.
    """
    control = socket.socket(fileno=int(control_fd))
    control.set_inheritable(False)
    _reset_signals()
    try:
        if cgroup:
            with contextlib.suppress(OSError):  # without access, the limits of each process still hold
                Path(cgroup, "cgroup.procs").write_text("0", encoding="ascii")
        policy = _load(int(parent), restricted_path, numpy_path)
        del parent, restricted_path, cgroup  # programs can look at this frame
        confinement = prepare(level, library.folders(numpy_path), box)
        confinement.settle()
        program.freshen(confinement)
        if numpy_path:
            sys.meta_path.append(library.InstalledFinder("numpy", numpy_path))
    except (OSError, ImportError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        wire.send(control, {"error": reason})
        return
    with contextlib.suppress(ConnectionError):
        wire.send(control, {})
        Server(control, confinement, policy).serve()


def _load(parent: int, restricted_path: str, numpy_path: str) -> ModuleType | None:
    """Import what programs will need; return the module `restricting` if RestrictedPython is to be loaded."""
    if sys.platform == "linux":
        from grpo_tasks_code.sandbox.inside import kernel

        kernel.die_with_parent(parent, int(signal.SIGKILL))
        with contextlib.suppress(OSError):  # when memory runs out, the kernel is to kill programs, not the trainer
            Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_DIE, encoding="ascii")
    for name in library.PRELOADED:
        with contextlib.suppress(ImportError):  # a build of Python may lack one
            importlib.import_module(name)
    _add_builtins_of_site()
    library.load_shared_objects(numpy_path)
    with contextlib.suppress(FileNotFoundError, PermissionError):  # there is no /proc
        forget_command_line()
    if not restricted_path:
        return None
    sys.path.append(restricted_path)
    from grpo_tasks_code.sandbox.inside import restricting

    sys.path.remove(restricted_path)
    return restricting


def _reset_signals() -> None:
    """Reset inherited signal settings: with SIGCHLD blocked or ignored, the end of a program would go unnoticed."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # these two Python itself ignores
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _add_builtins_of_site() -> None:
    """Add `exit`, `quit` and `help`, which Python lacks without the module `site`."""
    import _sitebuiltins
    import builtins

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    builtins.help = _sitebuiltins._Helper()


class Server:
    """The loop of the server: single-threaded, one program at a time."""

    def __init__(self, control: socket.socket, confinement: Confinement, policy: ModuleType | None) -> None:
        self._control, self._confinement, self._policy = control, confinement, policy
        self._pid = os.getpid()
        self._wake, wake = os.pipe()
        for fd in (self._wake, wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        if confinement.threads is not None:
            self._poll.register(confinement.threads.fd, select.POLLIN)
        gc.collect()
        gc.freeze()  # a collection in a child would otherwise copy every page that holds an object

    def serve(self) -> None:
        """Serve requests until the other side closes the socket."""
        while (received := wire.receive(self._control)) is not None:
            message, _, descriptors = received
            if "run" not in message:
                continue  # an order to kill that arrived too late
            request = wire.Request(**message["run"])
            pid = os.fork()
            if pid == 0:
                self._be_the_program(request, descriptors)
            for fd in descriptors:
                os.close(fd)
            status, cpu_s = self._watch(pid, request.number)
            wire.send(self._control, {"number": request.number, "status": status, "cpu_s": cpu_s})
            self._confinement.clean()  # after the answer: nobody waits for it

    def _be_the_program(self, request: wire.Request, descriptors: list[int]) -> None:
        code = wire.EXIT_SETUP
        try:
            code = program.run(request, descriptors, self._confinement, self._pid, self._policy)
        except BaseException as error:  # before the program's first line
            with contextlib.suppress(BaseException):
                os.write(2, f"sandbox: {type(error).__name__}: {error}\n".encode("utf-8", "backslashreplace"))
        finally:
            os._exit(code)

    def _watch(self, pid: int, number: int) -> tuple[int, float]:
        """Wait for the program to end, or kill it on request; return its wait status and processor seconds."""
        while True:
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                break
            ready = dict(self._poll.poll())
            if self._wake in ready:
                os.read(self._wake, 4096)
            threads = self._confinement.threads
            if threads is not None and threads.fd in ready:
                threads.answer()
            if self._control.fileno() in ready:
                received = wire.receive(self._control)
                match {"kill": number} if received is None else received[0]:
                    case {"kill": killed} if killed == number:
                        self._kill(pid)
                        self._kill_rest(pid)
                    case {"pause": paused} if paused == number:
                        os.kill(pid, signal.SIGSTOP)
                    case {"resume": resumed} if resumed == number:
                        os.kill(pid, signal.SIGCONT)
                if received is None:
                    os._exit(0)
        self._kill_rest(pid)
        with contextlib.suppress(ChildProcessError):
            while self._pid == 1 and os.waitpid(-1, 0)[0]:
                pass
        return status, usage.ru_utime + usage.ru_stime

    def _kill_rest(self, pid: int) -> None:
        """Kill what the program may have started: everything in its process namespace, or else in its group."""
        self._kill(-1 if self._pid == 1 else -pid)

    @staticmethod
    def _kill(pid: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS reports EPERM for a group of zombies
            os.kill(pid, signal.SIGKILL)
