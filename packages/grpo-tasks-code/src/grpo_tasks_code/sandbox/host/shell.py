"""`ShellBox`: runs shell commands on this machine, in namespaces of their own."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from grpo_sdk import refuse_at_import
from grpo_tasks_code.sandbox.arguments import patience_s
from grpo_tasks_code.sandbox.errors import SandboxUnavailableError, ServerError
from grpo_tasks_code.sandbox.host.process import START_TIMEOUT_S, InsideProcess
from grpo_tasks_code.sandbox.inside import wire
from grpo_tasks_code.sandbox.results import Level

TOOLS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Folders of the host that commands see."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ALWAYS_WRITABLE = ("/tmp", "/var/tmp", "/dev/shm", "/root", "/logs/agent", "/logs/artifacts")

GUARANTEE = (
    "commands see the host's /usr, read-only, and no other host files, no host processes and no network; "
    "shares the kernel"
)
REMEDY = (
    "Shell commands need Linux with user namespaces (sysctl user.max_user_namespaces, "
    "kernel.apparmor_restrict_unprivileged_userns=0)"
)


@dataclass(frozen=True, slots=True)
class BoxFile:
    """A file to be put into a box.

    Attributes:
        content: Its bytes; None for a folder.
        is_executable: Whether it may be executed.
    """

    content: bytes | None
    is_executable: bool = False


@dataclass(frozen=True, slots=True)
class ShellRun:
    """What became of a command.

    Attributes:
        status: `ended` by itself, or by a limit: `timeout`, `output_limit`.
        code: Exit code; negative for a signal; None where a limit ended it.
        output: stdout and stderr; beyond the limit their beginning and end. Bytes that are not UTF-8 are written as
            escapes.
    """

    status: Literal["ended", "timeout", "output_limit"]
    code: int | None
    output: str


class ShellBox(InsideProcess):
    """A file system and namespaces for commands: the host's tools, read-only, and writable folders, in memory.

    Args:
        writable: Folders that commands may write to, beside `ALWAYS_WRITABLE`.
        tools: Further folders of the host that commands see.
        storage_bytes: Limit of all files that commands write.
        memory_bytes: Limit of the memory of one process; of all together where control groups can be made.

    Raises:
        ServerError: the box does not start, or the system lacks what it needs.
    """

    name = "the box for commands"

    def __init__(
        self,
        writable: Sequence[str] = (),
        *,
        tools: Sequence[str] = (),
        storage_bytes: int = 256 << 20,
        memory_bytes: int = 2048 << 20,
    ) -> None:
        if sys.platform != "linux":
            raise ServerError("needs Linux")
        refuse_at_import("the sandbox")
        self._memory_bytes = memory_bytes
        super().__init__("box")
        if self._cgroup is not None:
            self._cgroup.limit_memory(memory_bytes + storage_bytes)
        try:
            self.receive(START_TIMEOUT_S)
            shown = [*dict.fromkeys([*TOOLS, *tools])]
            own = [*dict.fromkeys([*ALWAYS_WRITABLE, *writable])]
            built, _ = self._order(START_TIMEOUT_S, do="build", tools=shown, writable=own, storage_bytes=storage_bytes)
            self.has_proc = bool(built["has_proc"])
        except BaseException:
            self.close()
            raise

    def put(self, files: Mapping[str, BoxFile], *, fresh: Sequence[str] = ()) -> None:
        """Write files.

        Args:
            files: Absolute path -> file.
            fresh: Folders that are emptied before, whatever was done to them.

        Raises:
            ServerError: the box failed, or there is no room.
        """
        listed = [
            [path, 0o755 if file.is_executable else 0o644, -1 if file.content is None else len(file.content)]
            for path, file in files.items()
        ]
        data = b"".join(file.content or b"" for file in files.values())
        self._order(START_TIMEOUT_S, data, do="put", files=listed, fresh=list(fresh))

    def run(
        self,
        command: Sequence[str],
        *,
        folder: str,
        environment: Mapping[str, str],
        timeout_s: float,
        output_bytes: int = 1 << 16,
    ) -> ShellRun:
        """Run a command to its end; all that it started ends with it.

        Args:
            command: Program and arguments.
            folder: Folder in which it starts.
            environment: Environment variables.
            timeout_s: Time limit in seconds by the clock.
            output_bytes: Bytes of its output that are kept.

        Raises:
            ServerError: the box failed.
        """
        reply, output = self._order(
            patience_s(timeout_s),
            do="run",
            command=list(command),
            folder=folder,
            environment=dict(environment),
            timeout_s=timeout_s,
            memory_bytes=self._memory_bytes,
            output_bytes=output_bytes,
        )
        return ShellRun(reply["status"], reply["code"], output.decode("utf-8", "backslashreplace"))

    def read(self, path: str, limit: int) -> bytes | None:
        """Return the first bytes of a file; None if there is no regular file.

        Raises:
            ServerError: the box failed.
        """
        reply, data = self._order(START_TIMEOUT_S, do="read", path=path, limit=limit)
        return None if "missing" in reply else data

    def cut(self, places: Sequence[str]) -> str:
        """Remove links to some places, and to what is below them, from the folders that commands can write to.

        Returns:
            Why there may be links that were not found: folders that are nested too deep, or too many links.

        Raises:
            ServerError: the box failed.
        """
        reply, _ = self._order(START_TIMEOUT_S, do="cut", places=list(places))
        return str(reply.get("hidden", ""))

    def list(self, path: str) -> list[str]:
        """Return the names in a folder.

        Raises:
            ServerError: the box failed, or there is no such folder.
        """
        reply, _ = self._order(START_TIMEOUT_S, do="list", path=path)
        return list(map(str, reply["names"]))

    def _order(self, within_s: float, data: bytes = b"", **order: Any) -> tuple[dict[str, Any], bytes]:
        try:
            wire.send(self.control, order, data)
        except OSError as error:
            raise self._ended(f"is gone: {error}") from None
        return self.receive(within_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_ATTACKS = """
test -e "$SECRET" && echo 'sees a file of the host'
kill -0 "$HOST" 2>/dev/null && [ "$HOST" != $$ ] && echo 'signals a process of the host'
(: > /usr/written) 2>/dev/null && echo 'writes to the tools'
(: > /etc/written) 2>/dev/null && echo 'writes to /etc'
test -r /etc/shadow && echo 'reads the passwords of the host'
mount -t tmpfs none /tmp 2>/dev/null && echo 'mounts'
unshare -U true 2>/dev/null && echo 'makes a user namespace'
for device in /sys/class/net/*; do test -e "$device" && echo 'sees network devices'; done
echo survived
"""


@lru_cache(maxsize=1)
def shell_level() -> Level:
    """Attack a box, and return its isolation level if it withstands.

    Raises:
        SandboxUnavailableError: it does not work here; says what is missing and what to do.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="grpo-bait-") as folder, ShellBox() as box:
            bait = Path(folder, "secret")
            bait.write_text("bait", encoding="ascii")
            environment = {"PATH": PATH, "SECRET": str(bait), "HOST": str(os.getpid())}
            run = box.run(["/bin/bash", "-c", _ATTACKS], folder="/tmp", environment=environment, timeout_s=20.0)
            lines = run.output.splitlines()
            if lines != ["survived"]:
                raise ServerError(f"a box for commands does not hold: {'; '.join(lines) or run.status}")
            reason = "it withstood attack here" + ("" if box.has_proc else "; without /proc, which is hidden here")
    except ServerError as error:
        raise SandboxUnavailableError(f"no sandbox for shell commands: {error}. {REMEDY}.") from None
    return Level("L3", "namespaces", GUARANTEE, reason)
