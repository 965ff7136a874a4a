"""What the workers of test_killable*.py run: a payload is `verb:argument`."""

import atexit
import ctypes
import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

kept: list[bytes] = []


def fork_sleeper() -> int:
    """A forked grandchild: unlike a started one it holds every descriptor of the worker."""
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid


def start_sleeper() -> int:
    return subprocess.Popen(["sleep", "600"]).pid


def escape(log: str) -> None:
    """Start processes that leave the worker's session: one at once, and one that forks twice as daemons do."""
    note(log, subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
    subprocess.run(["/bin/sh", "-c", f"setsid sh -c 'sleep 600 & echo $! >> \"{log}\"'"], check=True)


def note(path: str, line: object) -> None:
    with Path(path).open("a") as file:
        file.write(f"{line}\n")


def verbs(argument: str) -> dict[str, object]:
    return {
        "echo": lambda: argument,
        "pid": os.getpid,
        "cwd": os.getcwd,
        "variable": lambda: os.environ.get(argument, ""),
        "environ": lambda: Path("/proc/self/environ").read_text(),
        "modules": lambda: ",".join(sorted(sys.modules)),
        "sleep": lambda: time.sleep(float(argument)),
        "raise": lambda: int(argument),
        "wrong": lambda: None,
        "spin": spin,
        "compute": lambda: compute(float(argument)),
        "started_compute": lambda: started_compute(float(argument)),
        "regex": lambda: re.match(r"(a+)+$", "a" * 64 + "b"),
        "fork": lambda: os.fork() and "parent",
        "fork_exit": lambda: "parent" if os.fork() else sys.exit("child"),
        "fork_twice": lambda: subprocess.run(["/bin/sh", "-c", "true &"], check=True),
        "die": lambda: os._exit(3),
        "die_once": lambda: die_once(argument),
        "segfault": lambda: ctypes.string_at(0),
        "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
        "late_bomb": late_bomb,
        "bomb": lambda: "x" * (1 << 40),
        "bomb_in_steps": bomb_in_steps,
        "keep": lambda: kept.append(bytes(int(argument) << 20)),
        "print": lambda: chatter(int(argument)),
        "print_pieces": lambda: print(*argument, sep="", end=""),
        "stdin": lambda: os.read(0, 10),
        "long": lambda: "x" * int(argument),
        "sleeper": lambda: note(argument, start_sleeper()),
        "escape": lambda: escape(argument),
        "escape_spin": lambda: (escape(argument), spin()),
        "escape_die": lambda: (escape(argument), os._exit(3)),
        "escape_pid": lambda: (escape(argument), os.getpid())[1],
        "forked_die": lambda: (note(argument, fork_sleeper()), os._exit(3)),
        "pid_power": lambda: (note(argument, os.getpid()), note(argument, start_sleeper()), pow(3, 10**9)),
    }


def spin() -> None:
    while True:
        pass


def compute(seconds: float) -> None:
    """Take so many seconds of processor time, however long that takes."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def started_compute(seconds: float) -> None:
    """Wait for a process that computes."""
    program = f"import time\nwhile time.thread_time() < {seconds}: pass"
    subprocess.run([sys.executable, "-S", "-c", program], check=True)


def late_bomb() -> None:
    time.sleep(0.25)
    raise MemoryError


def die_once(flag: str) -> str:
    if not Path(flag).exists():
        Path(flag).touch()
        os._exit(3)
    return "survived"


def bomb_in_steps() -> None:
    hoard = []
    while True:
        hoard.append(bytearray(16 << 20))


def chatter(count: int) -> None:
    for _ in range(count):
        print("chatter " * 8)
    sys.stdout.buffer.write(b"bytes\n")
    os.write(1, b"descriptor 1\n" * 10)
    os.write(2, b"descriptor 2\n" * 10)


def run(payload: bytes) -> bytes:
    verb, _, argument = payload.decode().partition(":")
    result = verbs(argument)[verb]()
    if verb == "wrong":
        return result
    return result if isinstance(result, bytes) else str(result).encode()


def make(*_arguments: object):
    return run


def make_on_one_processor():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return run


def make_echo():
    return lambda payload: payload


def make_slowly(seconds: float):
    time.sleep(seconds)
    return run


def make_arguments(*arguments: object):
    return lambda payload: repr(arguments).encode()


def make_counted(path: str):
    note(path, os.getpid())
    os._exit(7)


def make_when_there(path: str):
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} is not there yet")
    return run


def make_with_exit_handler(path: str):
    @atexit.register
    def leave() -> None:
        time.sleep(0.1)
        note(path, "left in peace")

    return run


def make_nothing():
    return None


def make_loudly():
    sys.stderr = io.StringIO()
    raise ValueError("long " * 1000)
