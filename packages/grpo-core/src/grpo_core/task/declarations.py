"""What a task declares about itself by functions of its options: opponent, conditions, evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_core.errors import UserError
from grpo_core.task.calling import call_by_name, raised
from grpo_core.task.evaluation import EvaluationDefaults
from grpo_core.task.opponent import Opponent
from grpo_core.task.row import TaskConfig
from grpo_core.task.score import one_line
from grpo_core.task.task import Task


class Declarations:
    """Calls the functions by which a task declares something, and checks what they return.

    Every method raises `UserError` where the function raises or returns something else than its kind.

    Args:
        task: The task.
        name: Full name of the task, for messages.
        config: Options of the task.
    """

    def __init__(self, task: Task, name: str, config: TaskConfig) -> None:
        self._task, self._name, self._config = task, name, config

    def specialized(self) -> Task:
        """Return the task under the options; see `Task.specialize`."""
        if self._task.specialize is None:
            return self._task
        task = self._call("specialize", self._task)
        if not isinstance(task, Task):
            raise UserError(f"task {self._name!r}: specialize() must give a Task, not {task!r:.80}.")
        if (task.name, task.config, task.specialize) != (self._task.name, self._task.config, None):
            raise UserError(
                f"task {self._name!r}: specialize() gave another task: name and config must be those of "
                "this one, and specialize None."
            )
        return task

    def opponent(self) -> Opponent | None:
        """Return the opponent; see `Task.opponent`."""
        declared = self._task.opponent
        if declared is None or isinstance(declared, Opponent):
            return declared
        opponent = self._call("opponent", None)
        if not isinstance(opponent, Opponent):
            raise UserError(f"task {self._name!r}: opponent() must give an Opponent, not {opponent!r:.80}.")
        return opponent

    def conditions(self) -> dict[str, str]:
        """Return what scores depend on, by name; see `Task.conditions`."""
        texts = self._call("conditions", {})
        if not isinstance(texts, Mapping) or not all(isinstance(text, str) for pair in texts.items() for text in pair):
            raise UserError(f"task {self._name!r}: conditions() must give text by name, not {texts!r:.80}.")
        return {name: one_line(text) for name, text in texts.items()}

    def evaluation(self) -> EvaluationDefaults:
        """Return the defaults of the task's evaluation; see `Task.evaluation`."""
        defaults = self._call("evaluation", EvaluationDefaults())
        if not isinstance(defaults, EvaluationDefaults):
            raise UserError(f"task {self._name!r}: evaluation() must give EvaluationDefaults, not {defaults!r:.80}.")
        return defaults

    def max_turns(self) -> int:
        """Return the bound on the turns; see `Task.max_turns`."""
        declared = self._task.max_turns
        turns = declared if isinstance(declared, int) else self._call("max_turns", 1)
        if not isinstance(turns, int) or turns < 1:
            raise UserError(f"task {self._name!r}: max_turns() must give a whole number from 1, not {turns!r:.80}.")
        return turns

    def _call(self, declaration: str, absent: Any) -> Any:
        function = getattr(self._task, declaration)
        if function is None:
            return absent
        try:
            return call_by_name(function, {"config": self._config, "task": self._task}, positional=1)
        except UserError as error:  # the task's own message to its user
            raise UserError(f"task {self._name!r}: {error}") from error
        except (Exception, SystemExit) as error:  # the task's code, called before a run: it names itself
            raise UserError(f"task {self._name!r}: {declaration}() {raised(error)}") from error
