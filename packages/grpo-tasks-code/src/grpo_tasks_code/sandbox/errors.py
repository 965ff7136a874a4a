from __future__ import annotations

from grpo_sdk import InfrastructureError


class SandboxUnavailableError(InfrastructureError):
    """No allowed isolation level works here; the message says what is missing and what to do."""


class ServerError(InfrastructureError):
    """A sandbox server did not start or has ended; the message says why."""


class BusyError(ServerError):
    """The machine was too busy to let a program run, so the program has no verdict."""
