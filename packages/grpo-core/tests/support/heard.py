"""A callback that remembers what a run told it."""

from collections.abc import Sequence

from grpo_sdk.callbacks import Callback, ResolvedDefault, RunInfo


class Heard(Callback):
    """Remembers what was chosen, in order and by name, the numbers of rows, settings, and warnings."""

    def __init__(self) -> None:
        self.chosen: list[ResolvedDefault] = []
        self.warnings: list[str] = []

    @property
    def choices(self) -> dict[str, ResolvedDefault]:
        return {choice.what: choice for choice in self.chosen}

    def on_run_start(self, info: RunInfo) -> None:
        self.rows, self.settings = info.tasks, info.settings
        self.on_choices(info.choices)

    def on_choices(self, choices: Sequence[ResolvedDefault]) -> None:
        self.chosen += choices

    def on_warning(self, message: str) -> None:
        self.warnings.append(message)
