"""A host that is reached by the system's own ssh, with its keys, agents and configuration."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from grpo_core.errors import GrpoError, UserError
from grpo_core.launch.ssh_scripts import facts_script

LOST = 255
"""Exit code of ssh where there is no connection."""

BUSY_MIB = 1024
"""Memory in use, in MiB, from which a GPU is busy, even if its processes cannot be seen from here."""

_HOST = re.compile(r"[\w.@:%\[\]-]{1,255}", re.ASCII)
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a host has.

    Attributes:
        missing: Programs that are needed.
        grpo: Path of its grpo; empty where it has none.
        session: `running`, the exit code of the last run, or empty.
        busy: What runs on its GPUs, one line each.
    """

    missing: Sequence[str] = ()
    grpo: str = ""
    session: str = ""
    busy: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """A host and the session on it.

    Attributes:
        name: As ssh takes it: a name of its configuration, or USER@ADDRESS.
        folder: Working folder there; relative to the home folder.
        session: Name of the tmux session, and of its folder in the working folder.
        ssh: Words of the ssh command.
        options: Options by which several commands share a connection.

    Raises:
        UserError: a name is not allowed.
    """

    name: str
    folder: str = "grpo"
    session: str = "run"
    ssh: Sequence[str] = ("ssh",)
    options: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Check the names."""
        if not _HOST.fullmatch(self.name) or self.name.startswith("-"):
            raise UserError(f"{self.name[:60]!r} is not a host: give a name of ssh's configuration, or USER@ADDRESS.")
        if not _SESSION.fullmatch(self.session) or self.session.startswith("-"):
            raise UserError(f"--session {self.session[:60]!r}: use letters, digits, - and _, at most 40.")
        if not self.folder.isprintable() or self.folder.startswith(("-", "~")):
            raise UserError(f"--folder {self.folder[:60]!r}: give a path, relative to the home folder of {self.name}.")
        if not self.ssh or shutil.which(self.ssh[0]) is None:
            raise UserError(f"no {self.ssh[0] if self.ssh else 'ssh'} here: install OpenSSH's client, or give --ssh.")

    @property
    def place(self) -> str:
        """Folder of the session: its run, its log."""
        return f"{self.folder}/{self.session}"

    def run(self, script: str, *, shows: bool = False) -> str:
        """Run a script; returns what it prints.

        Args:
            script: Script for bash.
            shows: Whether what it says on stderr is shown meanwhile.

        Raises:
            GrpoError: it failed, or there is no connection.
        """
        done = subprocess.run(
            [*self.ssh, *self.options, "--", self.name, "bash -s"],
            input=f"main() {{\n{script}}}\nmain < /dev/null\n",  # no command of it reads the rest of the script
            stdout=subprocess.PIPE,
            stderr=None if shows else subprocess.PIPE,
            text=True,
            errors="replace",
        )
        if done.returncode:
            output = (done.stderr or "").strip() or f"a script failed there with exit code {done.returncode}"
            lines = output.splitlines()
            raise GrpoError(f"ssh {self.name}: {lines[-1] if done.returncode == LOST else chr(10).join(lines[-20:])}")
        return done.stdout

    def facts(self) -> Facts:
        """Look at the host.

        Raises:
            GrpoError: as for `run`.
        """
        lines = [line.partition("=") for line in self.run(facts_script(self.folder, self.session)).splitlines()]
        values: dict[str, list[str]] = {}
        for name, _, value in lines:
            values.setdefault(name, []).append(value)
        return Facts(
            missing=values.get("missing", ()),
            grpo=values.get("grpo", [""])[0],
            session=values.get("session", [""])[0],
            busy=_busy(values.get("gpu", ()), values.get("process", ())),
        )

    def become(self, command: str) -> NoReturn:
        """Replace this process by a command of the host in a terminal."""
        os.execvp(self.ssh[0], [*self.ssh, "-t", "--", self.name, command])

    def send(self, paths: Sequence[str]) -> None:
        """Copy files and folders into the working folder, under their relative names.

        Raises:
            GrpoError: as for `pull`.
        """
        self._rsync("--relative", *paths, f"{self.name}:{self.folder}/")

    def send_into(self, folder: Path, name: str) -> None:
        """Copy the content of a folder into one of the working folder.

        Raises:
            GrpoError: as for `pull`.
        """
        self._rsync(f"{folder}/", f"{self.name}:{self.folder}/{name}/")

    def pull(self, folder: Path) -> None:
        """Copy the session's folder into a folder of this machine; what is there already is not copied again.

        Raises:
            GrpoError: rsync failed.
        """
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)  # rsync makes the folder, if there is something
        # Links stay links, and none may lead out of the folder.
        self._rsync("--safe-links", f"{self.name}:{self.place}/", f"{folder}/")

    def _rsync(self, *words: str) -> None:
        if shutil.which("rsync") is None:
            raise UserError("no rsync here: install it; files are copied with it.")
        shell = shlex.join([*self.ssh, *self.options])
        command = ["rsync", "--archive", "--partial", "--protect-args", f"--rsh={shell}", *words]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise GrpoError(f"rsync {self.name}: {lines[0] if lines else f'exit code {done.returncode}'}")


@contextmanager
def connected(host: Host) -> Iterator[Host]:
    """The host with one connection that its commands share, so that a password or a second factor is given once."""
    with tempfile.TemporaryDirectory(prefix="grpo-ssh-") as folder:
        path = f"ControlPath={folder}/%C"
        options = ("-o", "ControlMaster=auto", "-o", path, "-o", "ControlPersist=60", "-o", "ConnectTimeout=20")
        try:
            yield replace(host, options=options)
        finally:
            closing = [*host.ssh, "-o", path, "-O", "exit", "--", host.name]
            subprocess.run(closing, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _busy(gpus: Sequence[str], processes: Sequence[str]) -> list[str]:
    """What uses the GPUs: their processes, or memory whose processes cannot be seen."""
    busy = []
    for line in processes:
        pid, memory, name = (*(part.strip() for part in line.split(",", 2)), "", "")[:3]
        busy.append(f"process {pid} ({name}) uses {memory} MiB of a GPU")
    for line in gpus:
        index, _, memory = (part.strip() for part in line.partition(","))
        if not busy and memory.isdigit() and int(memory) >= BUSY_MIB:
            busy.append(f"{memory} MiB of GPU {index} are in use")
    return busy
