"""The child process: arranges its descriptors, confines itself, compiles the program and runs it like a script."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # no stub; without the enumerations of `signal`, whose pages would be copied
import ast
import atexit
import builtins
import fcntl
import io
import linecache
import os
import random
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Sequence
from typing import Any

from grpo_tasks_code.sandbox.inside import answering, judging, wire
from grpo_tasks_code.sandbox.inside.confinement import MAX_OPEN_FILES, Confinement

FILE_NAME = "main.py"
"""File name of the program in its tracebacks."""
MODULE_NAME = "solution"
"""Module name of a tested program, whose code behind `if __name__ == "__main__"` is not to run."""

_STATUS_FD, _CHANNEL_FD = 3, 4
_FREE_FD = 16
"""Descriptors are first moved above this one, so that none overwrites another."""
_ENVIRONMENT = {"LANG": "C.UTF-8", "LOGNAME": "sandbox", "PATH": "/nonexistent", "PYTHONHASHSEED": "0"}
_OWN_PACKAGE = __name__.partition(".")[0]
_SIGCHLD = int(signal.SIGCHLD)


def freshen(confinement: Confinement) -> None:
    """In the server, when everything is loaded: make Python look as if it had just started for a program.

    Each child has its own random numbers: the module `random` takes a new seed after a fork.
    """
    home = "/" if confinement.box is None else confinement.box.path
    os.environ.clear()
    os.environ.update(_ENVIRONMENT, HOME=home, OPENBLAS_NUM_THREADS="1")
    sys.argv[:] = sys.orig_argv[:] = [FILE_NAME]
    sys.path_hooks[:] = [hook for hook in sys.path_hooks if hook.__module__ != "__main__"]
    for name in [name for name in sys.modules if name.partition(".")[0] == _OWN_PACKAGE]:
        _kept.append(sys.modules.pop(name))
        for attribute in ("__file__", "__cached__", "__loader__", "__path__", "__spec__"):
            _kept[-1].__dict__.pop(attribute, None)
    for folder in [folder for folder in sys.path_importer_cache if not folder.startswith(tuple(sys.path))]:
        del sys.path_importer_cache[folder]
    if confinement.box is not None:  # after that: this package may lie in a folder of the same name, as /tmp
        sys.path.insert(0, home)


_kept: list[types.ModuleType] = []
"""The sandbox's own modules, which are needed but hidden from programs."""


def run(
    request: wire.Request,
    descriptors: Sequence[int],
    confinement: Confinement,
    server: int,
    policy: types.ModuleType | None,
) -> int:
    """Run the program in the child; return its exit code. An exception before STARTED is a failure of the sandbox.

    Args:
        request: Mode and limits of the program.
        descriptors: Source of the program, stdin, stdout, stderr, the status pipe, and a channel if it has one.
        confinement: Confinement to apply.
        server: Process id of the parent.
        policy: Module `restricting`, if the server loaded it.
    """
    _signal.set_wakeup_fd(-1)
    _signal.signal(_SIGCHLD, _signal.SIG_DFL)
    os.setsid()
    source = io.FileIO(descriptors[0], closefd=False).readall()
    _arrange(descriptors[1:])
    confinement.put_on(request, server)
    os.closerange(_CHANNEL_FD + (request.mode != wire.SCRIPT), MAX_OPEN_FILES)
    confinement.filter_calls()
    os.write(_STATUS_FD, wire.STARTED + wire.START.pack(time.process_time(), time.monotonic()))
    if request.mode == wire.JUDGE:
        os.write(_STATUS_FD, wire.COMPILED)
        os.close(_STATUS_FD)
        return judging.judge(wire.Channel(_CHANNEL_FD))
    code = _compile(source, policy if request.is_restricted else None)
    if code is None:
        return wire.EXIT_SYNTAX
    os.write(_STATUS_FD, wire.COMPILED)
    # From here on the program can imitate neither a syntax error nor a failed set-up.
    os.close(_STATUS_FD)
    if request.mode == wire.CANDIDATE:
        module = _module(MODULE_NAME)
        return _ending(lambda: answering.answer(code, module.__dict__, wire.Channel(_CHANNEL_FD)))
    module = _module("__main__")
    if request.mode == wire.INTERPRETER:
        return _ending(lambda: _interpret(module.__dict__, wire.Channel(_CHANNEL_FD)))
    if request.is_restricted and policy is not None:
        policy.fill(module.__dict__)
    return _ending(lambda: _execute(code, module.__dict__))


def _arrange(descriptors: Sequence[int]) -> None:
    """Put stdin, stdout, stderr, the status pipe and the channel on descriptors 0 to 4."""
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FREE_FD) for fd in descriptors]
    for target, fd in enumerate(moved):
        os.dup2(fd, target)


def _compile(source: bytes, policy: types.ModuleType | None) -> types.CodeType | None:
    """Compile the program; None if that fails, with the reason on stderr."""
    try:
        text = source.decode().removeprefix("\ufeff")
        code = compile(text, FILE_NAME, "exec", dont_inherit=True)
        lines = io.StringIO(text).readlines()
        linecache.cache[FILE_NAME] = (len(text), None, lines, FILE_NAME)  # for tracebacks and inspect.getsource
        checked = code if policy is None else policy.compile_policy(text, FILE_NAME)
    except Exception as error:  # odd text and nesting can raise more than SyntaxError, even SystemError
        _show(error)
        return None
    if isinstance(checked, types.CodeType):
        return checked
    os.write(_STATUS_FD, wire.REFUSED)
    print(checked, file=sys.stderr)
    return None


def _module(name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__dict__.update(__builtins__=builtins, __file__=FILE_NAME)
    sys.modules[name] = module
    return module


def _execute(code: types.CodeType, namespace: dict[str, Any]) -> None:
    """Run a script and end it as the interpreter would."""
    try:
        exec(code, namespace)  # this is what the sandbox is for
    finally:
        threading = sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()  # waits for its threads
        atexit._run_exitfuncs()
    namespace.clear()  # finalizers of its objects may print


def _interpret(namespace: dict[str, Any], channel: wire.Channel) -> None:
    """Run one source after another until the channel closes.

    A message is [number, source]; when it has run, the answer is [number, whether an exception ended it].
    """
    os.dup2(1, 2)  # what goes to stdout and to stderr is read in the order in which it was written
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    random.seed(0)
    count = 0
    while (message := channel.receive()) is not None:
        number, source = message
        count += 1
        has_raised = _run_cell(source, f"<call {count}>", namespace)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        channel.send([number, has_raised])


def _run_cell(source: str, name: str, namespace: dict[str, Any]) -> bool:
    """Run a source as an interactive interpreter does, which shows the value of a last expression."""
    linecache.cache[name] = (len(source), None, io.StringIO(source).readlines(), name)
    try:
        tree = ast.parse(source, name)
        last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        exec(compile(tree, name, "exec", dont_inherit=True), namespace)
        exec(compile(ast.Interactive(last), name, "single", dont_inherit=True), namespace)
    except SystemExit:  # ends the interpreter
        raise
    except BaseException as error:  # any exception is shown
        _show(error, name)
        return True
    return False


def _ending(body: Callable[[], None]) -> int:
    """Run the program and return the exit code that Python would have had."""
    leave, out, err = os._exit, sys.stdout, sys.stderr
    exit_code = 0
    try:
        body()
    except SystemExit as request:
        exit_code = _exit_code_of(request)
    except MemoryError as error:
        exit_code = wire.EXIT_MEMORY
        _show(error)
    except BaseException as error:  # any exception ends a program with a traceback
        exit_code = wire.EXIT_FAILED
        _show(error)
    try:
        for stream in (out, err):
            if not stream.closed:
                stream.flush()
    except BaseException:  # the descriptor may be closed, and methods replaced
        exit_code = exit_code or wire.EXIT_FAILED
    leave(exit_code)
    return exit_code


def _exit_code_of(request: SystemExit) -> int:
    if request.code is None:
        return 0
    if isinstance(request.code, int):
        code = request.code & 0xFF
        return wire.EXIT_FAILED if code == wire.EXIT_MEMORY else code
    print(request.code, file=sys.stderr)
    return wire.EXIT_FAILED


def _show(error: BaseException, file_name: str = FILE_NAME) -> None:
    """Print an exception as Python does, without the frames of this module."""
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename != file_name:
        tb = tb.tb_next
    try:
        hook = sys.excepthook
        if hook is sys.__excepthook__:
            traceback.print_exception(type(error), error, tb)
        else:
            hook(type(error), error, tb)
    except BaseException:  # the program's code formats the exception, and memory may have run out
        return
