"""The store at which the machines of a run meet, with waits that signals end: torch's own waits do not look at them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from grpo_core.launch.processes import Machine
from grpo_sdk.errors import InfrastructureError, UserError, first_line

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

MEETING_S = 15 * 60
"""Time that a machine waits for the others at a start, as torchrun does."""

CONNECT_S = 10
"""Time for the store of the first machine to answer, once its port is open."""

LOOK_S = 0.5
"""Time between two looks at what is waited for."""


class Meeting:
    """The meeting of a run's machines, which outlives the starts; a single machine waits for nothing.

    Args:
        machine: Which of them this is.
        say: Receives a line of each wait.

    Raises:
        UserError: the address of the first machine has no such name.
        InfrastructureError: the store cannot be opened here, or reached from here.
    """

    def __init__(self, machine: Machine, say: Callable[[str], None]) -> None:
        self.machine, self._say = machine, say
        self._where = f"{machine.first}:{machine.port}"
        self._store: Store | None = None
        if machine.count == 1:
            return
        import torch.distributed as dist

        hosts = machine.number == 0
        try:
            self._find_first()
            if not hosts:
                self._wait_for_first()
            self._store = dist.TCPStore(  # type: ignore[attr-defined] # public, but not in torch's list of exports
                machine.first, machine.port, is_master=hosts, timeout=timedelta(seconds=CONNECT_S),
                wait_for_workers=False, multi_tenant=True,
            )  # fmt: skip
        except (OSError, RuntimeError) as error:
            what = "cannot be opened on this machine" if hosts else "cannot be reached from this machine"
            raise InfrastructureError(
                f"--rdzv-endpoint {self._where} {what}: {first_line(error)}. It is an address of the machine with "
                "--node-rank 0, and a free port that the others can reach."
            ) from None

    def gather(self, attempt: int) -> None:
        """Wait until every machine is here for a start.

        Raises:
            RuntimeError: one has not come in time, or the first one has gone.
        """
        if self._store is None:
            return
        keys = [f"{self.machine.job}/here/{attempt}/{number}" for number in range(self.machine.count)]
        own = keys[self.machine.number]
        self._store.set(own, "")
        try:
            self._wait(keys)
        except BaseException:  # a signal, too: the others wait for this machine until it is started again
            with suppress(RuntimeError):
                self._store.delete_key(own)
            raise

    def agreed(self, attempt: int, words: Sequence[str]) -> list[str]:
        """The words of the next start, which the first machine chooses: it may be that not all know the run's folder.

        Raises:
            InfrastructureError: it cannot be reached.
        """
        if self._store is None:
            return list(words)
        key = f"{self.machine.job}/words/{attempt}"
        try:
            if self.machine.number == 0:
                self._store.set(key, json.dumps(list(words)))
            self._wait([key])
            return cast(list[str], json.loads(cast(Any, self._store.get(key))))
        except RuntimeError as error:
            raise InfrastructureError(
                f"no restart: the machine with --node-rank 0 cannot be reached ({first_line(error)})."
            ) from None

    def _find_first(self) -> None:
        try:
            socket.getaddrinfo(self.machine.first, self.machine.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise UserError(f"--rdzv-endpoint {self._where:.200}: no such host ({error}).") from None

    def _wait_for_first(self) -> None:
        until = None
        while True:
            try:
                return socket.create_connection((self.machine.first, self.machine.port), CONNECT_S).close()
            except OSError:
                if until is None:
                    until = time.monotonic() + MEETING_S
                    self._say(f"waiting   for the machine with --node-rank 0 at {self._where}")
                elif time.monotonic() > until:
                    raise
            time.sleep(LOOK_S)

    def _wait(self, keys: Sequence[str]) -> None:
        """Wait until the store has the keys, each of which a machine sets."""
        store, until = cast("Store", self._store), None
        while missing := sum(not store.check([key]) for key in keys):
            if until is None:
                until = time.monotonic() + MEETING_S
                self._say(f"waiting   for {missing} more machine{'s' * (missing > 1)} at {self._where}")
            elif time.monotonic() > until:
                raise RuntimeError(f"{missing} of {self.machine.count} machines have not come in {MEETING_S // 60} min")
            time.sleep(LOOK_S)
