"""The hooks of a plugin: what the functions that it marks with `hookimpl` may return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

from grpo_sdk.plugins.facts import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from grpo_sdk.plugins.facts import EmbeddedModel, Frame
    from grpo_sdk.plugins.gpu_profile import GpuProfile
    from grpo_sdk.plugins.variant import Variant
    from grpo_sdk.task.game import Game
    from grpo_sdk.task.score import Score
    from grpo_sdk.task.task import Task

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)
"""Decorator that marks a function of a plugin's module as one of its hooks: `@hookimpl`, without arguments."""


class Hooks:
    """Hooks of a plugin; each is optional, at least one must exist."""

    @hookspec
    def grpo_tasks(self) -> Iterable[Task]:  # type: ignore[empty-body] # a specification has no body
        """The plugin's tasks."""

    @hookspec
    def grpo_find_task(self, name: str) -> Task | None:
        """A task that is not in the plugin's list, since not all are known beforehand; None where there is none.

        Args:
            name: Name of the task within the plugin.

        Raises:
            UserError: there is none, where the message says what to do.
        """

    @hookspec
    def grpo_games(self) -> Iterable[Game]:  # type: ignore[empty-body] # a specification has no body
        """The plugin's turn-based games; each is also a task of its name."""

    @hookspec
    def grpo_models(self) -> Iterable[EmbeddedModel]:  # type: ignore[empty-body] # a specification has no body
        """Models that ship with the plugin."""

    @hookspec
    def grpo_variants(self) -> Mapping[str, Mapping[str, Variant | str]]:  # type: ignore[empty-body] # a specification has no body
        """Algorithm variants: kind -> name -> `Variant`, or "module:function".

        The kinds are `advantage`, `engine`, `entropy_controller`, `judge`, `kl`, `kl_controller`, `loss`, `metric`,
        `schedule` and `tracker`.
        """

    @hookspec
    def grpo_profiles(self) -> Iterable[GpuProfile]:  # type: ignore[empty-body] # a specification has no body
        """GPU profiles: sizes that suit an accelerator."""

    @hookspec
    def grpo_commands(self) -> Mapping[str, str]:  # type: ignore[empty-body] # a specification has no body
        """Commands of the plugin's own: name -> "module:click command", run as `grpo NAME …`."""

    @hookspec
    def grpo_diagnostics(self) -> Mapping[str, str]:  # type: ignore[empty-body] # a specification has no body
        """What `grpo doctor` asks: name -> "module:function", a function of nothing -> iterable of `Diagnosis`."""

    @hookspec
    def grpo_draw_rollout(self, task: str, row: Mapping[str, Any], text: str, score: Score) -> Sequence[Frame] | None:
        """Pictures of a completion for `grpo report`, in their order; None where there is nothing to draw.

        Args:
            task: Name of the task within the plugin.
            row: The row, as JSON.
            text: The completion, as it was scored; whatever the model wrote.
            score: Its score.
        """


HOOK_NAMES = tuple(name for name in vars(Hooks) if name.startswith("grpo_"))
