from __future__ import annotations

from grpo_core import InfrastructureError


class SandboxUnavailableError(InfrastructureError):
    """No level of isolation that is allowed works here: what is missing, and what to do."""


class ServerError(InfrastructureError):
    """A server did not start, or is gone; the message says why."""


class BusyError(ServerError):
    """The machine kept a program from running for so long that nothing can be said of it."""
