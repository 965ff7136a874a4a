"""The state of an episode with tools."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_sdk.task.row import Message, Row


class Environment:
    """The state of one episode; its methods that are marked with `@tool` are tools.

    It is made without arguments, used and dropped in one worker process, which is killed if a tool hangs. `reset`
    begins the episode; validator and rewards see the state at the end by the name `environment`. Where a score is
    asked for later, it is made anew and the calls are repeated: what tools do must follow from row and calls.
    """

    def reset(self, row: Row) -> str | Sequence[Message] | None:
        """Begin the episode of a row, which other parameters may name as `config`.

        Returns:
            Text or messages that follow the row's prompt; None adds nothing.
        """

    def close(self) -> None:
        """End the episode, e.g. close files; what a process started is killed with its worker anyway."""
