"""Contributions of plugins by name: tasks, models, variants and commands; broken and ambiguous ones are named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from grpo_sdk.errors import PluginError, UnknownNameError, near_match
from grpo_sdk.plugins.facts import COMMAND, MODEL, PROFILE, EmbeddedModel, Frame, TaskFacts
from grpo_sdk.plugins.finder import PluginFinder
from grpo_sdk.plugins.gpu_profile import GpuProfile
from grpo_sdk.plugins.variant import Variant

if TYPE_CHECKING:  # pydantic, which `grpo --help` does without
    from grpo_sdk.task.score import Score
    from grpo_sdk.task.task import Task

MANY_TASKS = 40
"""Tasks of a plugin from which on listings count them; `grpo tasks --plugin NAME` names them."""


@dataclass(frozen=True, slots=True)
class PluginReport:
    """One row of `grpo tasks`.

    Attributes:
        name: The entry point's name.
        distribution: Name and version of the package that declares it.
        tasks: Its tasks by full name.
        error: Why it, or one of its hooks, could not be used, or an empty string.
    """

    name: str
    distribution: str
    tasks: Mapping[str, TaskFacts]
    error: str = ""


class PluginHost(PluginFinder):
    """Looks contributions up by name, and imports a plugin only to use it, so that a broken one harms nothing else."""

    def task(self, full_name: str) -> Task:
        """Return the task `plugin.task`, importing only that plugin.

        Raises:
            UnknownNameError: no such plugin or task; says what exists and the near match.
            PluginError: the plugin is broken, claimed twice or misspelt.
        """
        plugin, _, name = full_name.partition(".")
        tasks = self.tasks(plugin) if plugin in self.names else {}
        task = tasks.get(full_name) or (self.load(plugin).find_task(name) if plugin in self.names else None)
        if task is None:
            raise self._unknown_task(full_name)
        return task

    def tasks(self, plugin: str) -> dict[str, Task]:
        """The tasks of one plugin, by full name.

        Raises:
            PluginError: as for `task`.
        """
        return self.load(plugin).tasks()

    def draw(self, task: str, row: Mapping[str, Any], text: str, score: Score) -> tuple[Frame, ...]:
        """Pictures of a completion by the plugin of its task, given by its full name; none if it is not installed.

        Raises:
            PluginError: the plugin is broken.
        """
        plugin, _, name = task.partition(".")
        return self.load(plugin).draw(name, row, text, score) if plugin in self.names else ()

    def models(self) -> dict[str, EmbeddedModel]:
        """Every embedded model that one plugin alone gives, by name; no plugin is imported."""
        return {name: model for name, (_, model) in self._unambiguous(MODEL).items()}

    def model(self, name: str) -> EmbeddedModel | None:
        """An embedded model, from its plugin; None where there is none of that name.

        Raises:
            PluginError: two plugins give it, or its plugin is broken.
        """
        plugin = self._giver(MODEL, name)
        return None if plugin is None else self.load(plugin).models().get(name)

    def variants(self, kind: str) -> dict[str, Variant]:
        """Every variant of a kind that one plugin alone gives, by name; no plugin is imported."""
        return {name: variant for name, (_, variant) in self._unambiguous(kind).items()}

    def variant(self, kind: str, name: str) -> Variant | None:
        """A variant, from its plugin; None where there is none of that name.

        Raises:
            PluginError: as for `model`.
        """
        plugin = self._giver(kind, name)
        return None if plugin is None else self.load(plugin).variants().get(kind, {}).get(name)

    def profiles(self) -> dict[str, GpuProfile]:
        """Every GPU profile that one plugin alone gives, by name; no plugin is imported."""
        return {name: profile for name, (_, profile) in self._unambiguous(PROFILE).items()}

    def profile(self, name: str) -> GpuProfile | None:
        """A GPU profile; None where no plugin gives one of that name.

        Raises:
            PluginError: two plugins give it.
        """
        plugin = self._giver(PROFILE, name)
        return None if plugin is None else self.facts()[plugin].contributions(PROFILE)[name]

    def commands(self) -> dict[str, str]:
        """Every command that one plugin alone gives: name -> its help line; no plugin is imported."""
        return {
            name: line or f"From {self.distribution(plugin)}."
            for name, (plugin, line) in sorted(self._unambiguous(COMMAND).items())
        }

    def command(self, name: str) -> str | None:
        """A command's "module:click command", from its plugin; None where there is none of that name.

        Raises:
            PluginError: as for `model`.
        """
        plugin = self._giver(COMMAND, name)
        return None if plugin is None else self.load(plugin).commands().get(name)

    def conflicts(self) -> list[str]:
        """Names of models, commands and variants that several plugins give: none of them can be used."""
        kinds = sorted({kind for facts in self.facts().values() for kind in facts.variants})
        return [
            self._conflict(kind, name, plugins)
            for kind in (MODEL, COMMAND, PROFILE, *kinds)
            for name, plugins in self._givers(kind).items()
            if len(plugins) > 1
        ]

    def reports(self) -> list[PluginReport]:
        """Every installed plugin with its tasks or its error; none is imported, none raises."""
        reports = [
            PluginReport(name, self.distribution(name), facts.tasks, facts.error)
            for name, facts in self.facts().items()
        ]
        unreadable = [PluginReport(name, package, {}, error) for name, package, error in self.unreadable]
        return sorted([*reports, *unreadable], key=lambda report: report.name)

    def not_loaded(self) -> str:
        """Lines that name every broken plugin with the reason, for an error about a name that may be one of theirs."""
        return "".join(f"\n  not loaded: {report.error}" for report in self.reports() if report.error)

    def _givers(self, kind: str) -> dict[str, list[str]]:
        """Name -> the plugins that give it."""
        givers: dict[str, list[str]] = {}
        for plugin, facts in self.facts().items():
            for name in facts.contributions(kind):
                givers.setdefault(name, []).append(plugin)
        return givers

    def _unambiguous(self, kind: str) -> dict[str, tuple[str, Any]]:
        """Name -> (the one plugin that gives it, what it gives)."""
        facts = self.facts()
        return {
            name: (plugins[0], facts[plugins[0]].contributions(kind)[name])
            for name, plugins in self._givers(kind).items()
            if len(plugins) == 1
        }

    def _giver(self, kind: str, name: str) -> str | None:
        """The one plugin that gives a name; plugins that failed are looked at once more before there is none."""
        plugins = self._givers(kind).get(name, [])
        if not plugins:
            self.retry(self.names)
            plugins = self._givers(kind).get(name, [])
        if len(plugins) > 1:
            raise PluginError(self._conflict(kind, name, plugins))
        return plugins[0] if plugins else None

    def _conflict(self, kind: str, name: str, plugins: Iterable[str]) -> str:
        owners = " and ".join(sorted(self.distribution(plugin) for plugin in plugins))
        return f"{kind} {name!r} is given by {owners}; uninstall one."

    def _unknown_task(self, full_name: str) -> UnknownNameError:
        self.retry(self.names)
        by_distribution: dict[str, list[str]] = {}
        for report in self.reports():
            if report.tasks:
                by_distribution.setdefault(report.distribution, []).extend(report.tasks)
        names = sorted(name for tasks in by_distribution.values() for name in tasks)
        listed = ", ".join(
            f"{', '.join(sorted(tasks)) if len(tasks) <= MANY_TASKS else f'{len(tasks)} tasks'} ({dist})"
            for dist, tasks in sorted(by_distribution.items())
        )
        near = near_match(full_name, names)
        if full_name.endswith(".py"):
            near = f" A file starts with ./ or /, as in ./{full_name}:task."
        return UnknownNameError(f"no task {full_name!r}.{near} Installed: {listed or '(none)'}{self.not_loaded()}")


@lru_cache(maxsize=1)
def default_host() -> PluginHost:
    """The host over what is installed, shared by the process."""
    return PluginHost()
