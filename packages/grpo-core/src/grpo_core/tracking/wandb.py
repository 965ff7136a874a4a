"""Weights & Biases: online, offline (`wandb sync` sends it later) or disabled."""

from __future__ import annotations

import contextlib
import netrc
import os
import secrets
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import get_args

from grpo_core.tracking.base import Cell, Mode, TrackedRun, recall_id, remember_id
from grpo_sdk.errors import UserError, unknown_name
from grpo_sdk.hub.network import is_reachable

DEFAULT_HOST = "https://api.wandb.ai"

CLOUD = ("api.wandb.ai", "api.forge.coreweave.com")
"""W&B's own server, by the name in older and in newer versions of wandb; a key is kept under either."""

_OLD_MODES = {"dryrun": "offline", "run": "online"}
"""Older names of W&B's modes."""


class WandB:
    """Logs a run to Weights & Biases.

    Args:
        run: Run to log.
    """

    def __init__(self, run: TrackedRun) -> None:
        import wandb as library

        self._library = library
        identifier = recall_id(run.run_dir, "wandb") or secrets.token_hex(8)
        remember_id(run.run_dir, "wandb", identifier)
        self._run = library.init(
            project=run.project,
            name=run.name,
            id=identifier,
            dir=str(run.run_dir / "logs"),
            config=dict(run.config),
            mode=run.mode,
            resume="allow" if run.mode == "online" else None,
            # The console shows our progress report; the user's code is not uploaded.
            settings=library.Settings(console="off", quiet=True, save_code=False),
        )
        # A resumed run logs some steps again, which W&B's own step counter would refuse.
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Log numbers with our own step as the axis."""
        self._run.log({"step": step, **values})

    def table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Log a table."""
        table = self._library.Table(columns=list(columns), data=[list(row) for row in rows], allow_mixed_types=True)
        self._run.log({"step": step, name: table})

    def note(self, step: int, text: str) -> None:
        """Raise an alert, which W&B sends to users who enabled alerts."""
        self._run.alert(title=f"step {step}", text=text)

    def close(self, *, failed: bool) -> None:
        """Flush and close with the status of the run."""
        self._run.finish(exit_code=1 if failed else 0)


def choose_mode(
    mode: str | None, environ: Mapping[str, str] | None = None, *, offline: bool = False
) -> tuple[Mode, str]:
    """Choose the mode of W&B: the configured one, but offline without a network.

    Args:
        mode: `tracking.wandb_mode`; by default `WANDB_MODE`, else online if possible.
        environ: Environment; by default that of the process.
        offline: Whether the run uses no network.

    Returns:
        (mode, reason).

    Raises:
        UserError: no such mode, or online is configured without a key.
    """
    environ = os.environ if environ is None else environ
    setting = "tracking.wandb_mode"
    if mode is None and (name := environ.get("WANDB_MODE", "")):
        mode, setting = _OLD_MODES.get(name, name), "WANDB_MODE"
        if mode not in get_args(Mode):
            raise unknown_name("WANDB_MODE", name, get_args(Mode))
    if mode == "disabled":
        return "disabled", f"{setting} says so"
    if mode == "offline":
        return "offline", f"{setting} says so; `wandb sync` sends it later"
    if offline:
        return "offline", "offline=true; `wandb sync` sends it later"
    host = environ.get("WANDB_BASE_URL") or DEFAULT_HOST
    if not has_key(host, environ):
        if mode == "online":
            raise UserError(
                f"{setting}=online needs a key: run `wandb login`, or put WANDB_API_KEY into the environment or .env."
            )
        return "offline", "no key: `wandb login`, or WANDB_API_KEY in the environment or .env; `wandb sync` sends it"
    if not is_reachable(host):
        return "offline", f"{urllib.parse.urlsplit(host).hostname} cannot be reached; `wandb sync` sends it later"
    return "online", f"{setting} says so" if mode else "a key and a network are available"


def has_key(host: str, environ: Mapping[str, str]) -> bool:
    """Whether there is a key for a server: in the environment, or where `wandb login` keeps it."""
    if environ.get("WANDB_API_KEY"):
        return True
    address = urllib.parse.urlsplit(host)
    names = {address.hostname or "", address.netloc, *(CLOUD if address.hostname in CLOUD else ())}
    for file in (environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        with contextlib.suppress(OSError, netrc.NetrcParseError, ValueError):
            if file and any(map(netrc.netrc(os.path.expanduser(file)).authenticators, names)):
                return True
    return False
