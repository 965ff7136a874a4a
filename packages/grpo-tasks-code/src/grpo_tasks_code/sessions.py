"""Tools that run code: the base classes `PythonSession` and `ShellSession` of a task's environment."""

from __future__ import annotations

import posixpath
import re
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from grpo_sdk import Environment, ToolError, tool
from grpo_tasks_code.sandbox import default_executor, level
from grpo_tasks_code.sandbox.arguments import MAX_MEMORY_MIB, Limits, check_number, check_whole
from grpo_tasks_code.sandbox.host.interpreter import Interpreter
from grpo_tasks_code.sandbox.host.shell import PATH, BoxFile, ShellBox, shell_level
from grpo_tasks_code.sandbox.results import Status, readable

_MAX_CALL_S = 60.0
_BACKSTOP_S = 600.0
"""Limit of the worker for a call, which has a limit of its own: it may wait for a busy machine."""
_MAX_OUTPUT_BYTES, _MAX_SHOWN_CHARS = 1 << 20, 9_000
"""Of a call; what is shown has room for a remark within the 10,000 characters of a tool's result."""

_WORK, _SCRIPTS, _SCRIPT = "/work", "/run", "/run/command.sh"
_SHELL_ENVIRONMENT = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": PATH, "PYTHONHASHSEED": "0"}

_ADDRESS = re.compile(r"\bat 0x[0-9a-f]+")
"""Where an object lies, as `<function f at 0x7f…>` says: no call would give the same result again."""


class _Session(Environment):
    """Limits of each call, and the end of what runs.

    Attributes:
        timeout_s: Seconds of a call, at most 60.
        memory_mib: Memory in MiB of the interpreter, or of each process of a command.
        output_chars: Characters of output that the policy reads, at most 9,000; longer output is cut in the middle.
    """

    timeout_s: ClassVar[float] = 10.0
    memory_mib: ClassVar[int] = 512
    output_chars: ClassVar[int] = 8_000

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_number(f"{cls.__name__}.timeout_s", cls.timeout_s, 0.0, _MAX_CALL_S, is_open=True)
        check_whole(f"{cls.__name__}.memory_mib", cls.memory_mib, 64, MAX_MEMORY_MIB)
        check_whole(f"{cls.__name__}.output_chars", cls.output_chars, 100, _MAX_SHOWN_CHARS)

    @classmethod
    def conditions(cls) -> dict[str, str]:
        """Isolation of each tool, for `Task(conditions=…)`.

        Raises:
            InfrastructureError: this machine has none.
        """
        return {}

    def _ends_with_it(self, close: Callable[[], None]) -> Callable[[], None]:
        """Have a function called when the episode is closed, or forgotten; at exit, all ends by itself."""
        finalizer = weakref.finalize(self, close)
        finalizer.atexit = False
        return finalizer

    def _shown(self, output: str) -> str:
        """Output as the policy reads it: escapes in place of what is no text, and no addresses."""
        text = _ADDRESS.sub("at 0x…", readable(output, kept="\n\t"))
        half = self.output_chars // 2
        text = text if len(text) <= 2 * half else f"{text[:half]}\n[… cut here …]\n{text[-half:]}"
        return text.removesuffix("\n")


class PythonSession(_Session):
    """An environment with the tool `python`: an interpreter whose variables stay for the episode.

    It runs in the sandbox, which has the standard library and NumPy, and no network. A subclass may add `reset`, tools
    and limits. Code that raises is a call that is not `ok`; its result is the output with the traceback.
    """

    _interpreter: Interpreter | None = None

    @classmethod
    def conditions(cls) -> dict[str, str]:
        """As described in the base class."""
        return {**super().conditions(), "python": str(level())}

    @tool(timeout_s=_BACKSTOP_S)
    def python(self, code: str) -> str:
        """Run Python code. The result is what it prints, and the value of a last expression; variables stay.

        Args:
            code: Statements, with the standard library and NumPy, without a network.
        """
        if self._interpreter is None:
            limits = Limits(self.timeout_s, self.memory_mib, _MAX_OUTPUT_BYTES)
            self._interpreter = default_executor().interpreter(limits)
            self._close_python = self._ends_with_it(self._interpreter.close)
        ran = self._interpreter.run(code)
        output = ran.output.decode("utf-8", "backslashreplace")
        if ran.status == "output_limit":  # when it was ended is chance
            output = output[: self.output_chars]
        shown = self._shown(output)
        if not ran.is_kept:
            why = _ENDED.get(ran.status, "the code ended the interpreter").format(
                seconds=self.timeout_s, mebibytes=self.memory_mib
            )
            raise ToolError(_remarked(shown, f"{why}: it starts anew, all variables are gone"))
        if ran.status != "ok":
            raise ToolError(shown)
        return shown

    def close(self) -> None:
        """End the interpreter."""
        if self._interpreter is not None:
            self._close_python()
            self._interpreter = None
        super().close()


_ENDED: Mapping[Status, str] = {
    "timeout": "the interpreter was ended after {seconds:g} s",
    "output_limit": "the interpreter was ended for its output of more than 1 MiB",
    "memory": "the interpreter ran out of its {mebibytes} MiB of memory",
    "killed": "a signal ended the interpreter",
    "denied": "the interpreter was ended for a system call that is not allowed",
}


class ShellSession(_Session):
    """An environment with the tool `shell`: bash, with files that stay for the episode.

    Commands see the host's /usr, read-only, no other files of the host, and no network; see `ShellBox`.

    Attributes:
        storage_mib: Size in MiB of all files.
    """

    storage_mib: ClassVar[int] = 256
    _box: ShellBox | None = None

    @classmethod
    def conditions(cls) -> dict[str, str]:
        """As described in the base class."""
        return {**super().conditions(), "shell": str(shell_level())}

    @tool(timeout_s=_BACKSTOP_S)
    def shell(self, command: str) -> str:
        """Run a command with bash on Linux, without a network. Each call is a new shell in /work; files stay.

        Args:
            command: A command, or a script of several lines; what it leaves running ends with it.
        """
        box = self._opened()
        box.put({_SCRIPT: BoxFile(command.encode("utf-8", "replace"))}, fresh=[_SCRIPTS])
        run = box.run(
            ["/bin/bash", _SCRIPT],
            folder=_WORK,
            environment=_SHELL_ENVIRONMENT,
            timeout_s=self.timeout_s,
            output_bytes=_MAX_OUTPUT_BYTES,
        )
        if run.status == "ended":
            shown, code = self._shown(run.output), run.code if run.code is None or run.code >= 0 else 128 - run.code
            return shown if code == 0 else _remarked(shown, f"exit code {code}")
        why = f"after {self.timeout_s:g} s" if run.status == "timeout" else "for its output of more than 64 MiB"
        output = run.output[: self.output_chars] if run.status == "output_limit" else run.output
        raise ToolError(_remarked(self._shown(output), f"the command was ended {why}; files stay"))

    def put(self, files: Mapping[str, str | bytes]) -> None:
        """Write files, e.g. in `reset`.

        Args:
            files: Path, in /work where it is relative -> content.
        """
        self._opened().put(
            {
                posixpath.join(_WORK, path): BoxFile(content.encode() if isinstance(content, str) else content)
                for path, content in files.items()
            }
        )

    def read(self, path: str, limit: int = 1 << 20) -> bytes | None:
        """Read a file, e.g. in a validator.

        Args:
            path: Its path, in /work where it is relative.
            limit: Bytes to be read.

        Returns:
            Its first bytes; None where there is no regular file, also for a link.
        """
        return self._opened().read(posixpath.join(_WORK, path), limit)

    def _opened(self) -> ShellBox:
        if self._box is None:
            shell_level()
            self._box = ShellBox([_WORK], storage_bytes=self.storage_mib << 20, memory_bytes=self.memory_mib << 20)
            self._close_shell = self._ends_with_it(self._box.close)
        return self._box

    def close(self) -> None:
        """End the shell, with all files."""
        if self._box is not None:
            self._close_shell()
            self._box = None
        super().close()


def _remarked(shown: str, remark: str) -> str:
    """Output with a remark in a line of its own."""
    return f"{shown}\n[{remark}]" if shown else f"[{remark}]"
