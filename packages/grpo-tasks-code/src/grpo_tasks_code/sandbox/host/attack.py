"""The self-attack: a level is judged by what it prevents on this machine, not by the kernel's version."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from grpo_tasks_code.sandbox.arguments import Limits
from grpo_tasks_code.sandbox.errors import ServerError
from grpo_tasks_code.sandbox.host.job import Job
from grpo_tasks_code.sandbox.host.process import ServerProcess

_LIMITS = Limits(timeout_s=20.0, memory_mib=256, output_bytes=1 << 16)
"""The time is generous, since the attack runs while everything else starts."""

_ATTACKS = """
import json, os, sys

bait = json.loads(sys.stdin.read())

def reads_host_file():
    return open(bait["secret"]).read() == bait["content"]

def lists_host_folder():
    return os.path.basename(bait["secret"]) in os.listdir(os.path.dirname(bait["secret"]))

def reads_users():
    return "root" in open("/etc/passwd").read()

def writes_host_file():
    open(bait["writable"] + "/written", "w").close()
    return os.path.exists(bait["secret"])

def opens_network_socket():
    import socket
    socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    return True

def sends_to_host_socket():
    import socket
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return a.sendto(b"x", bait["socket"]) == 1

def starts_process():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return True

def signals_asker():
    if bait["pid"] == os.getpid():  # the asker's number, in its own namespace, is the program's in this one
        return False
    os.kill(bait["pid"], 0)
    return True

def signals_server():
    os.kill(os.getppid(), 0)
    return True

def reads_processes():
    return "1" in os.listdir("/proc")

def changes_mode():
    os.chmod(bait["secret"], 0o777)
    return True

won = []
for attack in [each for name, each in sorted(globals().items()) if name[0] != "_" and hasattr(each, "__code__")]:
    try:
        if attack():
            won.append(attack.__name__)
    except OSError:
        pass

import csv, sqlite3, threading, zoneinfo  # an ordinary program finds the library
thread = threading.Thread(target=len, args=("",))
thread.start()
thread.join()
print(json.dumps(won), flush=True)
try:
    os.execv("/bin/sh", ["sh", "-c", "echo sh"])
except OSError:
    pass
"""

_FATAL = "import ctypes; ctypes.CDLL(None).unshare(0); print('it lives')"
"""A program that calls unshare(2) wants to leave the sandbox, and must be ended."""


@contextlib.contextmanager
def _bait() -> Iterator[dict[str, object]]:
    """Provide a file to read, a folder to write to and a socket to send to, all open to every user."""
    with (
        tempfile.TemporaryDirectory(prefix="grpo-sandbox-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
    ):
        os.chmod(folder, 0o755)
        secret, writable = Path(folder, "secret"), Path(folder, "writable")
        content = os.urandom(8).hex()
        secret.write_text(content, encoding="ascii")
        secret.chmod(0o666)
        writable.mkdir()
        writable.chmod(0o777)
        address = str(Path(folder, "socket"))
        listener.bind(address)
        os.chmod(address, 0o777)
        yield {
            "secret": str(secret),
            "content": content,
            "writable": str(writable),
            "socket": address,
            "pid": os.getpid(),
        }


def withstands(server: ServerProcess) -> None:
    """Check that every attack fails on a server, and that an ordinary program runs.

    Raises:
        ServerError: an attack succeeded, or the ordinary program failed.
    """
    with _bait() as bait:
        ordinary = Job(server, _ATTACKS.encode(), json.dumps(bait).encode(), _LIMITS).finish()
    if ordinary.status != "ok":
        raise ServerError(f"an ordinary program ends with {ordinary.status}: {ordinary.last_line or 'no message'}")
    first, *more = ordinary.stdout.splitlines()
    won = [*json.loads(first), *(["runs_program"] if more else [])]
    if won:
        raise ServerError(f"attacks of its own succeed: {', '.join(won)}")
    fatal = Job(server, _FATAL.encode(), b"", _LIMITS).finish()
    if fatal.status != "denied":
        raise ServerError(f"a program that calls unshare(2) ends with {fatal.status}, not denied")
