"""The task of inspect-ai, as users write it: `inspect.task?file=…&name=…`. Imports nothing of inspect-ai."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import model_validator

from grpo_sdk import Task, hookimpl
from grpo_tasks_gym.foreign.options import ForeignConfig
from grpo_tasks_gym.foreign.task import foreign_task


class InspectConfig(ForeignConfig):
    """Options of `inspect.task`.

    Attributes:
        file: Python file with tasks marked `@task`.
        name: Name of the task in the file, which may be left out where it is the only one; without a file, the name of
            one that a package registers: `inspect_evals/gsm8k`.
    """

    library: ClassVar[tuple[str, str, str]] = ("inspect_ai", "inspect-ai", "inspect")
    opener: ClassVar[str] = "grpo_tasks_gym.inspect.task:open_task"

    file: str | None = None
    name: str | None = None

    @model_validator(mode="after")
    def _packages_have_a_slash(self) -> InspectConfig:
        if self.file is None and self.name is not None and "/" not in self.name:
            raise ValueError(f"name={self.name}: give its file=, or the name of a package's task, PACKAGE/{self.name}")
        return self

    def missing(self) -> str:
        """How to name a task, where neither file nor name is given."""
        if self.file is None and self.name is None:
            return "which task? give ?file=evals.py&name=TASK, or ?name=PACKAGE/TASK of a package."
        return ""

    def stamp(self) -> str:
        """Time and size of the file's last change."""
        try:
            status = Path(self.target()["file"]).stat()
        except OSError:  # whoever reads it says so
            return ""
        return f"{status.st_mtime_ns} {status.st_size}"

    def target(self) -> dict[str, str]:
        """The file, as an absolute path, and the name."""
        file = "" if self.file is None else str(Path(self.file).expanduser().absolute())
        return {"file": file, "name": self.name or ""}


@hookimpl
def grpo_tasks() -> list[Task]:
    """The one task."""
    about = "A task of inspect-ai: ?file=evals.py&name=TASK, or ?name=PACKAGE/TASK."
    return [foreign_task("task", InspectConfig, about, lambda config: f"the code of {config.file or config.name}")]
