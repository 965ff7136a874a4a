"""Choice of the isolation level."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import get_args

from grpo_sdk import UserError
from grpo_tasks_code.sandbox.errors import SandboxUnavailableError, ServerError
from grpo_tasks_code.sandbox.host.attack import withstands
from grpo_tasks_code.sandbox.host.process import ServerProcess
from grpo_tasks_code.sandbox.inside.confinement import LevelName
from grpo_tasks_code.sandbox.results import Level

LEVEL_VARIABLE = "GRPO_SANDBOX_LEVEL"
ALLOW_WEAK_VARIABLE = "GRPO_SANDBOX_ALLOW_WEAK"

TITLES: Mapping[LevelName, str] = {"L3": "namespaces", "L2": "landlock", "L1": "rlimits"}

GUARANTEES: Mapping[LevelName, str] = {
    "L3": "no host files, processes or network; shares the kernel",
    "L2": "opens no host file but Python's library, starts no process, no network, filtered system calls; "
    "sees which files exist; shares the kernel",
    "L1": "accident protection only: limits on time, memory and output; a hostile program can do what its user can",
}
"""Guarantee of each level; printed, and logged with every reward."""

REMEDY = (
    "Allow user namespaces (Linux: sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0) or "
    "Landlock (Linux 5.13, boot option lsm=landlock,…), or use a remote executor"
)


def chosen(forced: str | None, *, allow_weak: bool) -> tuple[Level, ServerProcess]:
    """Attack the levels from the strongest on; return the first that withstands, with its server.

    Args:
        forced: The only level to try; by default that of `GRPO_SANDBOX_LEVEL`, if set.
        allow_weak: Whether L1 may be used where neither L3 nor L2 works; `GRPO_SANDBOX_ALLOW_WEAK=1` allows it too.

    Raises:
        UserError: the level does not exist.
        SandboxUnavailableError: no allowed level works; says why each fails, and what to do.
    """
    forced = forced or os.environ.get(LEVEL_VARIABLE) or None
    allow_weak = allow_weak or os.environ.get(ALLOW_WEAK_VARIABLE) == "1"
    if forced is not None and forced not in TITLES:
        raise UserError(f"sandbox level {forced!r}: must be one of {', '.join(get_args(LevelName))}.")
    failures: list[str] = []
    for name in TITLES:
        if forced not in (None, name):
            continue
        try:
            server = _start(name, allow_weak=allow_weak)
        except ServerError as error:
            failures.append(f"{name} {TITLES[name]}: {error}")
        else:
            reason = "; ".join(
                ["it was asked for" if forced else "the strongest that withstands attack here", *failures]
            )
            return Level(name, TITLES[name], GUARANTEES[name], reason), server
    raise SandboxUnavailableError(
        f"no sandbox: {'; '.join(failures)}. {REMEDY}; {ALLOW_WEAK_VARIABLE}=1 accepts L1, "
        "which protects from accidents only."
    )


def _start(name: LevelName, *, allow_weak: bool) -> ServerProcess:
    """Start a server of a level, and attack it.

    Raises:
        ServerError: the level does not work here.
    """
    if name == "L1":
        if not allow_weak:
            raise ServerError("not allowed")
        if os.getuid() == 0:
            raise ServerError("refused to root, as which a program could do anything; run as an ordinary user")
        return ServerProcess(name)
    if sys.platform != "linux":
        raise ServerError("needs Linux")
    server = ServerProcess(name)
    try:
        withstands(server)
    except BaseException:
        server.close()
        raise
    return server
