"""The state of an episode with tools."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from grpo_sdk.errors import UserError
from grpo_sdk.task.calling import GATHERING, binding_of
from grpo_sdk.task.row import Message, Row
from grpo_sdk.task.tools.tool import is_marked


class Environment:
    """The state of one episode; its methods that are marked with `@tool` are tools.

    It is made without arguments, used and dropped in one worker process, which is killed if a tool hangs. `reset`
    begins the episode; validator and rewards see the state at the end by the name `environment`. Where a score is
    asked for later, it is made anew and the calls are repeated: what tools do must follow from row and calls.

    Attributes:
        is_over: Whether the episode ends with the call that was made last, as with `@tool(ends=True)`.
    """

    is_over: bool = False

    def reset(self, row: Row) -> str | Sequence[Message] | None:
        """Begin the episode of a row.

        It may take `config`, the task's options, and `folder`, an empty folder of the episode, where commands of `mcp`
        start when it is done. The policy reads and writes its path as `/episode`.

        Returns:
            Text or messages that follow the row's prompt; None adds nothing.
        """

    def close(self) -> None:
        """End the episode, e.g. close files; what a process started is killed with its worker anyway."""


def check_environment(environment: Any) -> None:
    """Check the class of an environment.

    Raises:
        UserError: it is none, needs arguments, or has methods that cannot be called as they are.
    """
    if environment is None:
        return
    if not (isinstance(environment, type) and issubclass(environment, Environment)):
        raise UserError(f"environment={environment!r:.80} must be a subclass of Environment, e.g. environment=Shop.")
    name = environment.__name__
    try:
        inspect.signature(environment).bind()
    except TypeError as error:
        raise UserError(f"environment {name} is made without arguments ({error}); take the row in reset().") from None
    if callable(environment.is_over):
        raise UserError(f"environment {name}: is_over must be an attribute or a property, True or False, not a method.")
    for method in ("reset", "close"):
        function = getattr(environment, method)
        if inspect.iscoroutinefunction(function) or is_marked(function):
            raise UserError(f"environment {name}: {method}() must be a plain method, neither async nor a tool.")
    gathering = [each for each in inspect.signature(environment.reset).parameters.values() if each.kind in GATHERING]
    if gathering:
        takes = "row, config, folder"
        raise UserError(f"environment {name}: reset() takes {gathering[0]}; it must name what it takes: {takes}.")
    binding_of(environment.reset, ("self", "row", "config", "folder"), 2)
