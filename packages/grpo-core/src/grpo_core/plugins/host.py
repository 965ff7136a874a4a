"""Finding plugins: which there are, what each gives, importing only those that are needed, naming what is broken."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from typing import TYPE_CHECKING

from grpo_core.algorithms.variant import Variant
from grpo_core.errors import PluginError, UnknownNameError, near_match, unknown_name
from grpo_core.plugins.facts import GROUP, EmbeddedModel, PluginFacts, TaskFacts
from grpo_core.plugins.memory import PluginMemory, stamp_of

if TYPE_CHECKING:  # pydantic and pluggy, which `grpo --help` does without
    from grpo_core.plugins.loading import LoadedPlugin
    from grpo_core.task.task import Task

CORE = "core"
"""The plugin of grpo-core itself; no restriction excludes it, so `GRPO_PLUGINS=math` keeps the embedded model."""

PROBE_TIMEOUT_S = 20.0
"""Of importing a plugin to see what it gives: longer is a hang, or a plugin that nobody waits for."""


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


class PluginHost:
    """Knows what every plugin gives, and imports one only to use it, so that a broken one harms only who asks for it.

    A plugin is imported for the first time in a process that may be killed; what it gives is remembered until its
    files change (`PluginMemory`). Only a plugin that came through that is imported here.

    Args:
        entry_points: What is installed; by default the environment's entry points of group `grpo`.
        only: Names to restrict to; by default the comma-separated `GRPO_PLUGINS`, if set.
    """

    def __init__(
        self, entry_points: Iterable[metadata.EntryPoint] | None = None, only: Iterable[str] | None = None
    ) -> None:
        if only is None and os.environ.get("GRPO_PLUGINS"):
            only = [name.strip() for name in os.environ["GRPO_PLUGINS"].split(",") if name.strip()]
        allowed = None if only is None else {*only, CORE}
        found, self._unreadable = installed() if entry_points is None else (tuple(entry_points), ())
        self._claims: dict[str, dict[tuple[str, str], metadata.EntryPoint]] = {}
        for point in found:
            if allowed is None or point.name in allowed:
                # One distribution may be on the path twice (an editable install over a wheel): that is no conflict.
                self._claims.setdefault(point.name, {}).setdefault((_distribution(point), point.value), point)
        if allowed is not None and (missing := allowed - {CORE} - set(self._claims)):
            raise unknown_name("plugin (from GRPO_PLUGINS)", sorted(missing)[0], {p.name for p in found})
        self._loaded: dict[str, LoadedPlugin | PluginError] = {}
        self._facts: dict[str, PluginFacts] = {}
        self._fresh: set[str] = set()
        self._memory = PluginMemory()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the installed plugins, sorted."""
        return tuple(sorted(self._claims))

    def distribution(self, plugin: str) -> str:
        """Name and version of the packages that declare `plugin`."""
        return " and ".join(sorted(distribution for distribution, _ in self._claims[plugin]))

    def facts(
        self, plugins: Iterable[str] | None = None, *, anew: bool = False, timeout_s: float | None = None
    ) -> dict[str, PluginFacts]:
        """What plugins give, or what is wrong with them, importing none of them here.

        Args:
            plugins: Which; by default all.
            anew: Whether to look at them even where it is remembered; at most once in a process.
            timeout_s: Of a plugin's import; by default `PROBE_TIMEOUT_S`.
        """
        asked = self.names if plugins is None else tuple(plugins)
        unknown = [name for name in asked if name not in self._facts or (anew and name not in self._fresh)]
        if unknown:
            self._look(unknown, anew, timeout_s or PROBE_TIMEOUT_S)
        return {name: self._facts[name] for name in asked}

    def task(self, full_name: str) -> Task:
        """Return the task `plugin.task`, importing only that plugin.

        Raises:
            UnknownNameError: no such plugin or task; says what exists and the near match.
            PluginError: the plugin is broken, claimed twice or misspelt.
        """
        plugin, _, _ = full_name.partition(".")
        if plugin not in self._claims:
            raise self._unknown_task(full_name)
        tasks = self.tasks(plugin)
        if full_name not in tasks:
            raise self._unknown_task(full_name)
        return tasks[full_name]

    def tasks(self, plugin: str) -> dict[str, Task]:
        """The tasks of one plugin, by full name.

        Raises:
            PluginError: as for `task`.
        """
        return self._load(plugin).tasks()

    def models(self) -> dict[str, EmbeddedModel]:
        """Every embedded model that one plugin alone gives, by name; no plugin is imported."""
        models = {model.name: model for facts in self.facts().values() for model in facts.models}
        return {name: models[name] for name, givers in self._givers(_model_names).items() if len(givers) == 1}

    def model(self, name: str) -> EmbeddedModel | None:
        """An embedded model, from its plugin; None where there is none of that name.

        Raises:
            PluginError: two plugins give it, or its plugin is broken.
        """
        plugin = self._giver("model", name, _model_names)
        return None if plugin is None else self._load(plugin).models().get(name)

    def variants(self, kind: str) -> dict[str, Variant]:
        """Every variant of a kind that one plugin alone gives, by name; no plugin is imported."""
        given = [facts.variants.get(kind, {}) for facts in self.facts().values()]
        found = {name: variant for variants in given for name, variant in variants.items()}
        givers = self._givers(lambda facts: facts.variants.get(kind, ()))
        return {name: found[name] for name, plugins in givers.items() if len(plugins) == 1}

    def variant(self, kind: str, name: str) -> Variant | None:
        """A variant, from its plugin; None where there is none of that name.

        Raises:
            PluginError: as for `model`.
        """
        plugin = self._giver(kind, name, lambda facts: facts.variants.get(kind, ()))
        return None if plugin is None else self._load(plugin).variants().get(kind, {}).get(name)

    def commands(self) -> dict[str, str]:
        """Every command that one plugin alone gives: name -> its help line; no plugin is imported."""
        lines = {name: line for facts in self.facts().values() for name, line in facts.commands.items()}
        givers = self._givers(lambda facts: facts.commands)
        return {
            name: lines[name] or f"From {self.distribution(plugins[0])}."
            for name, plugins in sorted(givers.items())
            if len(plugins) == 1
        }

    def command(self, name: str) -> str | None:
        """A command's "module:click command", from its plugin; None where there is none of that name.

        Raises:
            PluginError: as for `model`.
        """
        plugin = self._giver("command", name, lambda facts: facts.commands)
        return None if plugin is None else self._load(plugin).commands().get(name)

    def conflicts(self) -> list[str]:
        """Names of models, commands and variants that several plugins give: none of them can be used."""
        kinds = sorted({kind for facts in self.facts().values() for kind in facts.variants})
        asked: list[tuple[str, Callable[[PluginFacts], Iterable[str]]]] = [
            ("model", _model_names),
            ("command", lambda facts: facts.commands),
            *((kind, lambda facts, kind=kind: facts.variants.get(kind, ())) for kind in kinds),
        ]
        return [
            self._conflict(what, name, plugins)
            for what, given in asked
            for name, plugins in self._givers(given).items()
            if len(plugins) > 1
        ]

    def reports(self) -> list[PluginReport]:
        """Every installed plugin with its tasks or its error; none is imported, none raises."""
        reports = [
            PluginReport(name, self.distribution(name), facts.tasks, facts.error)
            for name, facts in self.facts().items()
        ]
        unreadable = [PluginReport(name, package, {}, error) for name, package, error in self._unreadable]
        return sorted([*reports, *unreadable], key=lambda report: report.name)

    def not_loaded(self) -> str:
        """Lines that name every broken plugin with the reason, for an error about a name that may be one of theirs."""
        return "".join(f"\n  not loaded: {report.error}" for report in self.reports() if report.error)

    def _retry(self, plugins: Iterable[str]) -> None:
        """Look once more at those that failed: what they missed may be there by now."""
        self.facts([name for name, facts in self.facts(plugins).items() if facts.error], anew=True)

    def _look(self, plugins: Iterable[str], anew: bool, timeout_s: float) -> None:
        """Fill in the facts of some plugins."""
        elsewhere: dict[str, tuple[metadata.EntryPoint, str]] = {}
        stamps: dict[str, str] = {}
        for name in plugins:
            points = list(self._claims[name].values())
            if name in self._loaded or _must_be_here(points):
                self._facts[name] = self._own_facts(name)
                continue
            stamps[name] = stamp_of(points, self.distribution(name))
            known = None if anew else self._memory.recall(name, stamps[name])
            if known is not None:
                self._facts[name] = known
            elif _is_inside_worker():  # which may be killed itself
                self._facts[name] = self._own_facts(name)
            else:
                elsewhere[name] = (points[0], self._who(name))
        if not elsewhere:
            return
        from grpo_core.plugins.probe import UNSEEN, probe

        found = probe(elsewhere, timeout_s)
        self._facts |= found
        self._fresh |= set(found)
        seen = {name: facts for name, facts in found.items() if UNSEEN not in facts.error}
        self._memory.remember({name: (stamps[name], facts) for name, facts in seen.items()})

    def _own_facts(self, plugin: str) -> PluginFacts:
        try:
            return self._import(plugin).facts()
        except PluginError as error:
            return PluginFacts(error=str(error))

    def _load(self, plugin: str) -> LoadedPlugin:
        """Import a plugin here, unless that would hang or end this process."""
        if not (plugin in self._loaded or _must_be_here(self._claims[plugin].values()) or _is_inside_worker()):
            self._retry([plugin])
            if self._facts[plugin].is_dangerous:
                raise PluginError(self._facts[plugin].error)
        return self._import(plugin)

    def _import(self, plugin: str) -> LoadedPlugin:
        if plugin not in self._loaded:
            try:
                if len(self._claims[plugin]) > 1:
                    raise PluginError(f"{self._who(plugin)}: two packages claim this name; uninstall one.")
                (point,) = self._claims[plugin].values()
                from grpo_core.plugins.loading import LoadedPlugin

                self._loaded[plugin] = LoadedPlugin(point, self._who(plugin))
            except PluginError as error:
                self._loaded[plugin] = error
        loaded = self._loaded[plugin]
        if isinstance(loaded, PluginError):
            raise loaded
        return loaded

    def _who(self, plugin: str) -> str:
        return f"plugin {plugin!r} ({self.distribution(plugin)})"

    def _givers(self, given: Callable[[PluginFacts], Iterable[str]]) -> dict[str, list[str]]:
        """Name -> the plugins that give it."""
        givers: dict[str, list[str]] = {}
        for plugin, facts in self.facts().items():
            for name in given(facts):
                givers.setdefault(name, []).append(plugin)
        return givers

    def _giver(self, what: str, name: str, given: Callable[[PluginFacts], Iterable[str]]) -> str | None:
        """The one plugin that gives a name; plugins that failed are looked at once more before there is none."""
        plugins = self._givers(given).get(name, [])
        if not plugins:
            self._retry(self.names)
            plugins = self._givers(given).get(name, [])
        if len(plugins) > 1:
            raise PluginError(self._conflict(what, name, plugins))
        return plugins[0] if plugins else None

    def _conflict(self, what: str, name: str, plugins: Iterable[str]) -> str:
        owners = " and ".join(sorted(self.distribution(plugin) for plugin in plugins))
        return f"{what} {name!r} is given by {owners}; uninstall one."

    def _unknown_task(self, full_name: str) -> UnknownNameError:
        self._retry(self.names)
        by_distribution: dict[str, list[str]] = {}
        for report in self.reports():
            if report.tasks:
                by_distribution.setdefault(report.distribution, []).extend(report.tasks)
        names = sorted(name for tasks in by_distribution.values() for name in tasks)
        listed = ", ".join(f"{', '.join(sorted(tasks))} ({dist})" for dist, tasks in sorted(by_distribution.items()))
        return UnknownNameError(
            f"no task {full_name!r}.{near_match(full_name, names)} Installed: {listed or '(none)'}{self.not_loaded()}"
        )


def installed() -> tuple[tuple[metadata.EntryPoint, ...], tuple[tuple[str, str, str], ...]]:
    """The environment's entry points of group `grpo`.

    Returns:
        (entry points, packages whose entry_points.txt cannot be read: (name, name and version, error)).
    """
    points: list[metadata.EntryPoint] = []
    unreadable: list[tuple[str, str, str]] = []
    seen: set[str] = set()
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt") or ""
        except (OSError, ValueError):  # unreadable, or no UTF-8: whose it is cannot be known, and it is no plugin
            continue
        if f"[{GROUP}]" not in text:
            continue
        name, version = str(distribution.metadata["Name"]), str(distribution.metadata["Version"])
        normal = name.lower().replace("_", "-").replace(".", "-")
        if normal in seen:  # the path has an older one further down, which Python does not see either
            continue
        seen.add(normal)
        try:
            points += distribution.entry_points.select(group=GROUP)
        except Exception as error:  # Python reads the file without checking it
            unreadable.append(
                (name, f"{name} {version}", f"package {name} {version}: its entry_points.txt cannot be read ({error}).")
            )
    return tuple(points), tuple(unreadable)


def _must_be_here(points: Iterable[metadata.EntryPoint]) -> bool:
    """Whether a plugin is asked in this process: it is imported already, or cannot be anywhere."""
    points = list(points)
    module = points[0].value.partition(":")[0].strip()
    is_sound = points[0].name.isidentifier() and metadata.EntryPoint.pattern.match(points[0].value) is not None
    return len(points) > 1 or not is_sound or module in sys.modules


def _is_inside_worker() -> bool:
    from grpo_core.killable.importing import inside_worker

    return inside_worker()


def _model_names(facts: PluginFacts) -> list[str]:
    return [model.name for model in facts.models]


def _distribution(point: metadata.EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "(unknown package)"


@lru_cache(maxsize=1)
def default_host() -> PluginHost:
    """The host over what is installed, shared by the process."""
    return PluginHost()
