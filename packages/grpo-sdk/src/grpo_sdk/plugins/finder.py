"""Finds the installed plugins and their contributions, and imports them, first in a process that may be killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import metadata
from typing import TYPE_CHECKING

from grpo_sdk.errors import PluginError, unknown_name
from grpo_sdk.plugins.facts import GROUP, PluginFacts
from grpo_sdk.plugins.memory import PluginMemory, stamp_of

if TYPE_CHECKING:  # pydantic and pluggy, which `grpo --help` does without
    from grpo_sdk.plugins.loading import LoadedPlugin

OURS = frozenset({"core", "trainer"})
"""The plugins of grpo-sdk and grpo-core; no restriction excludes them: `GRPO_PLUGINS=math` keeps the embedded model."""

PROBE_TIMEOUT_S = 20.0
"""Limit of importing a plugin to list its contributions: longer is a hang, or a plugin that nobody waits for."""


class PluginFinder:
    """Finds the installed plugins, and imports one only to use it.

    A plugin is imported for the first time in a process that may be killed; what it gives is remembered until its
    files change (`PluginMemory`). Only a plugin that came through that is imported here.

    Args:
        entry_points: What is installed; by default the environment's entry points of group `grpo`.
        only: Names to restrict to; by default the comma-separated `GRPO_PLUGINS`, if set.

    Attributes:
        unreadable: Packages whose entry_points.txt cannot be read: (name, name and version, error).
    """

    def __init__(
        self, entry_points: Iterable[metadata.EntryPoint] | None = None, only: Iterable[str] | None = None
    ) -> None:
        if only is None and os.environ.get("GRPO_PLUGINS"):
            only = [name.strip() for name in os.environ["GRPO_PLUGINS"].split(",") if name.strip()]
        allowed = None if only is None else {*only, *OURS}
        points, self.unreadable = installed() if entry_points is None else (tuple(entry_points), ())
        self._claims: dict[str, dict[tuple[str, str], metadata.EntryPoint]] = {}
        for point in points:
            if allowed is None or point.name in allowed:
                # One distribution may be on the path twice (an editable install over a wheel): that is no conflict.
                self._claims.setdefault(point.name, {}).setdefault((_distribution(point), point.value), point)
        if allowed is not None and (missing := allowed - OURS - set(self._claims)):
            raise unknown_name("plugin (from GRPO_PLUGINS)", sorted(missing)[0], {point.name for point in points})
        self._loaded: dict[str, LoadedPlugin | PluginError] = {}
        self._facts: dict[str, PluginFacts] = {}
        self._fresh: set[str] = set()
        self._memory = PluginMemory()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the installed plugins, sorted."""
        return tuple(sorted(self._claims))

    def of_package(self, package: str) -> tuple[str, ...]:
        """Names of the plugins that are modules of a package."""
        return tuple(
            name
            for name in self.names
            if any(point.value.partition(".")[0] == package for point in self._claims[name].values())
        )

    def distribution(self, plugin: str) -> str:
        """Name and version of the packages that declare `plugin`."""
        return " and ".join(sorted(distribution for distribution, _ in self._claims[plugin]))

    def facts(
        self, plugins: Iterable[str] | None = None, *, anew: bool = False, timeout_s: float | None = None
    ) -> dict[str, PluginFacts]:
        """Contributions of plugins, or their errors; none of them is imported here.

        Args:
            plugins: Names of plugins; by default all.
            anew: Whether remembered facts are ignored; at most once in a process.
            timeout_s: Limit of a plugin's import; by default `PROBE_TIMEOUT_S`.
        """
        chosen = self.names if plugins is None else tuple(plugins)
        unknown = [name for name in chosen if name not in self._facts or (anew and name not in self._fresh)]
        if unknown:
            self._look(unknown, anew, timeout_s or PROBE_TIMEOUT_S)
        return {name: self._facts[name] for name in chosen}

    def is_remembered(self, plugin: str) -> bool:
        """Whether the facts of a plugin are those of an earlier process, since when its files have not changed."""
        return plugin in self._facts and plugin not in self._fresh and plugin not in self._loaded

    def retry(self, plugins: Iterable[str]) -> None:
        """Probe the plugins that failed once more: what they missed may be installed by now."""
        self.facts([name for name, facts in self.facts(plugins).items() if facts.error], anew=True)

    def load(self, plugin: str) -> LoadedPlugin:
        """Import a plugin here, unless that would hang or end this process.

        Raises:
            PluginError: the plugin is broken or claimed twice.
        """
        if not (plugin in self._loaded or _must_be_here(self._claims[plugin].values()) or _is_inside_worker()):
            self.retry([plugin])
            if self._facts[plugin].is_dangerous:
                raise PluginError(self._facts[plugin].error)
        return self._import(plugin)

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
            remembered = None if anew else self._memory.recall(name, stamps[name])
            if remembered is not None:
                self._facts[name] = remembered
            elif _is_inside_worker():  # which may be killed itself
                self._facts[name] = self._own_facts(name)
            else:
                elsewhere[name] = (points[0], self._who(name))
        if not elsewhere:
            return
        from grpo_sdk.plugins.probe import UNSEEN, probe

        probed = probe(elsewhere, timeout_s)
        self._facts |= probed
        self._fresh |= set(probed)
        seen = {name: facts for name, facts in probed.items() if UNSEEN not in facts.error}
        self._memory.remember({name: (stamps[name], facts) for name, facts in seen.items()})

    def _own_facts(self, plugin: str) -> PluginFacts:
        try:
            return self._import(plugin).facts()
        except PluginError as error:
            return PluginFacts(error=str(error))

    def _import(self, plugin: str) -> LoadedPlugin:
        if plugin not in self._loaded:
            try:
                if len(self._claims[plugin]) > 1:
                    raise PluginError(f"{self._who(plugin)}: two packages claim this name; uninstall one.")
                (point,) = self._claims[plugin].values()
                from grpo_sdk.plugins.loading import LoadedPlugin

                self._loaded[plugin] = LoadedPlugin(point, self._who(plugin))
            except PluginError as error:
                self._loaded[plugin] = error
        loaded = self._loaded[plugin]
        if isinstance(loaded, PluginError):
            raise loaded
        return loaded

    def _who(self, plugin: str) -> str:
        return f"plugin {plugin!r} ({self.distribution(plugin)})"


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
    from grpo_sdk.killable.importing import inside_worker

    return inside_worker()


def _distribution(point: metadata.EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "(unknown package)"
