"""An ssh server of this machine, with a key made for it; tmux and GPUs of its sessions are the test's own."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
SetEnv TMUX_TMPDIR={folder}/tmux PATH={folder}/bin:/usr/local/bin:/usr/bin:/bin {environment}
"""


class ServerError(Exception):
    """No server can be started here; the message says why."""


@contextmanager
def ssh_server(folder: Path, **environment: str) -> Iterator[str]:
    """Start a server.

    Args:
        folder: Holds its keys; programs in its `bin` come first on the PATH of sessions.
        **environment: Variables of its sessions.

    Yields:
        The ssh command that reaches it as 127.0.0.1.

    Raises:
        ServerError: a program is missing, or the server does not come up.
    """
    path = f"{os.environ['PATH']}:/usr/sbin"
    programs = {name: shutil.which(name, path=path) for name in ("sshd", "ssh", "ssh-keygen", "tmux", "rsync", "bash")}
    if missing := [name for name, found in programs.items() if found is None]:
        raise ServerError(f"no {', '.join(missing)}: apt-get install openssh-server openssh-client tmux rsync")
    for name in ("bin", "tmux"):
        (folder / name).mkdir(exist_ok=True)
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = " ".join(f'"{name}={value}"' for name, value in environment.items())
    (folder / "sshd_config").write_text(CONFIG.format(port=port, folder=folder, environment=variables))
    if getpass.getuser() == "root":
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd separates its privileges
    command = ["ssh", "-F", "none", "-p", str(port), "-i", str(folder / "key"), "-o", "IdentitiesOnly=yes"]
    command += ["-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={folder}/known", "-o", "LogLevel=ERROR"]
    with (folder / "sshd.log").open("wb") as log:
        server = subprocess.Popen([programs["sshd"] or "", "-D", "-e", "-f", folder / "sshd_config"], stderr=log)
    try:
        deadline = time.monotonic() + 30
        while subprocess.run([*command, "127.0.0.1", "true"], capture_output=True).returncode:
            if server.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"sshd does not start here: {(folder / 'sshd.log').read_text()[-300:]}")
            time.sleep(0.2)
        yield shlex.join(command)
    finally:
        subprocess.run([*command, "127.0.0.1", "tmux kill-server"], capture_output=True)
        server.terminate()
        server.wait(20)
