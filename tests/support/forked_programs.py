"""Programs in a shell that are forks of one process: it has imported torch, which takes each program seconds.

`python -P forked_programs.py SOCKET` serves until its standard input ends. The programs `grpo`, `grpo-run` and `python`
that `forked_programs` writes have it fork. A fork is a process with an id, arguments, environment, folder and streams
of its own, and it ends as a Python program does, but for the modules, whose end takes torch's seconds. What it does not
do is start: entry points and what an import costs have tests of their own.
"""

import atexit
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import psutil

PROGRAMS = ("grpo", "grpo-run", "python")

CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps([{name!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(int(server.recv(10) or 1))
"""


@contextmanager
def forked_programs(folder: Path) -> Iterator[Path]:
    """Serve for as long as the context lasts; yields a folder of programs, to be put before others in PATH."""
    address = str(folder / "socket")
    command = [sys.executable, "-P", __file__, address]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for name in PROGRAMS:
            (program := folder / name).write_text(CLIENT.format(python=sys.executable, address=address, name=name))
            program.chmod(0o755)
        yield folder
        process.stdin.close()


def next_request(address: str) -> tuple[str, list[str]]:
    """Serve; returns in the processes that are to be a program, with its name and arguments."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for a program
        while True:
            if sys.stdin in select.select([listening, sys.stdin], [], [])[0]:
                os._exit(0)
            connection, _ = listening.accept()
            assert psutil.Process().num_threads() == 1, "a fork has none of the other threads"
            if not os.fork():
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, *_ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as received:
        name, arguments, folder, environment = json.load(received)
    if pid := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.sendall(str(code if code >= 0 else 128 - code).encode())  # as a shell has it
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return name, arguments


def run_python(option: str, *more: str) -> None:
    """What `python` does with these arguments."""
    if option == "-c":
        sys.argv = ["-c", *more[1:]]
        exec(more[0], vars(sys.modules["__main__"]))
    elif option == "-m":
        sys.argv = [*more]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(more[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [option, *more]
        sys.path.insert(0, os.path.dirname(os.path.abspath(option)))
        runpy.run_path(option, run_name="__main__")


def main(address: str) -> object:
    import peft  # noqa: F401
    import torch  # noqa: F401
    from transformers.models.llama import modeling_llama  # noqa: F401

    import grpo_core.training.new_run  # noqa: F401
    from grpo_core.cli.start import main_run
    from grpo_sdk.cli.start import main as grpo

    name, arguments = next_request(address)
    if name == "python":
        run_python(*arguments)
        return None
    sys.argv = [name, *arguments]
    return main_run() if name == "grpo-run" else grpo()


def leave(code: object) -> NoReturn:
    """End as `sys.exit` does, leaving the modules as they are."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:  # as json.tool leaves it
            stream.flush()
    os._exit(code if isinstance(code, int) else bool(code))


if __name__ == "__main__":
    try:
        status = main(sys.argv[1])
    except SystemExit as exit:
        status = exit.code
    leave(status)
