"""Finding task plugins: hook specifications, loading one plugin at a time, and naming what is broken."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from types import ModuleType
from typing import Any, Literal, TypeVar, cast, get_args

import pluggy

from grpo_core.errors import PluginError, UnknownNameError, UserError, near_match, unknown_name
from grpo_core.task.game import Game, game_task
from grpo_core.task.task import Task

GROUP = "grpo"
"""Entry-point group; the entry point's name is the plugin's name."""

Collected = TypeVar("Collected")
Wanted = TypeVar("Wanted")

CORE = "core"
"""The plugin of grpo-core itself; no restriction excludes it, so `GRPO_PLUGINS=math` keeps the embedded model."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model that ships inside a package.

    Attributes:
        name: What `--model` calls it.
        path: Its folder: config, safetensors, tokenizer.
        description: One line for `grpo models`.
        defaults: Settings recommended for it: dotted key -> value (`{"trainer.learning_rate": 5e-5}`).
        task_options: Options of tasks that it was made with (`{"style": "short"}`); a task that has such an option and
            is not given it is run so, which is said.
    """

    name: str
    path: str
    description: str
    defaults: Mapping[str, object] = field(default_factory=dict)
    task_options: Mapping[str, str] = field(default_factory=dict)


Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line of `grpo doctor`.

    Attributes:
        name: What was looked at, as `sandbox`.
        status: `ok`; `warn` where something is missing or slower than it could be; `fail` where something is broken.
        text: What was found, and with `warn` or `fail` what to do.

    Raises:
        UserError: there is no such status.
    """

    name: str
    status: Status
    text: str

    def __post_init__(self) -> None:
        if self.status not in get_args(Status):
            raise UserError(f"Diagnosis({self.name!r}, status={self.status!r}): must be {', '.join(get_args(Status))}.")


class Hooks:
    """What a plugin may contribute; each hook is optional, at least one must be there."""

    @hookspec
    def grpo_tasks(self) -> Iterable[Task]:  # type: ignore[empty-body] # a specification has no body
        """The plugin's tasks."""

    @hookspec
    def grpo_games(self) -> Iterable[Game]:  # type: ignore[empty-body] # a specification has no body
        """The plugin's turn-based games; each is also a task of its name."""

    @hookspec
    def grpo_models(self) -> Iterable[EmbeddedModel]:  # type: ignore[empty-body] # a specification has no body
        """Models that ship with the plugin."""

    @hookspec
    def grpo_variants(self) -> Mapping[str, Mapping[str, str]]:  # type: ignore[empty-body] # a specification has no body
        """Algorithm variants: kind (`advantage`, `loss`, …) -> name -> "module:function"."""

    @hookspec
    def grpo_commands(self) -> Mapping[str, str]:  # type: ignore[empty-body] # a specification has no body
        """Commands of the plugin's own: name -> "module:click command", run as `grpo NAME …`."""

    @hookspec
    def grpo_diagnostics(self) -> Mapping[str, str]:  # type: ignore[empty-body] # a specification has no body
        """What `grpo doctor` asks: name -> "module:function", a function of nothing -> iterable of `Diagnosis`."""


HOOK_NAMES = tuple(name for name in vars(Hooks) if name.startswith("grpo_"))


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
    tasks: Mapping[str, Task]
    error: str = ""


class PluginHost:
    """Loads plugins one by one, so that a broken one harms only who asks for it.

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
        found = tuple(metadata.entry_points(group=GROUP) if entry_points is None else entry_points)
        self._claims: dict[str, dict[tuple[str, str], metadata.EntryPoint]] = {}
        for point in found:
            if allowed is None or point.name in allowed:
                # One distribution may be on the path twice (an editable install over a wheel): that is no conflict.
                self._claims.setdefault(point.name, {}).setdefault((_distribution(point), point.value), point)
        if allowed is not None and (missing := allowed - {CORE} - set(self._claims)):
            raise unknown_name("plugin (from GRPO_PLUGINS)", sorted(missing)[0], {p.name for p in found})
        self._managers: dict[str, pluggy.PluginManager | PluginError] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the installed plugins, sorted."""
        return tuple(sorted(self._claims))

    def distribution(self, plugin: str) -> str:
        """Name and version of the packages that declare `plugin`."""
        return " and ".join(sorted(distribution for distribution, _ in self._claims[plugin]))

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
        tasks: dict[str, Task] = {}
        games = map(game_task, self._given_as(plugin, "grpo_games", Game))
        for task in (*self._given_as(plugin, "grpo_tasks", Task), *games):
            full_name = f"{plugin}.{task.name}"
            if full_name in tasks:
                raise PluginError(f"plugin {plugin!r} ({self.distribution(plugin)}) gives task {full_name!r} twice.")
            tasks[full_name] = task
        return tasks

    def _given_as(self, plugin: str, hook: str, wanted: type[Wanted]) -> list[Wanted]:
        given = self._given(plugin, hook, list)
        for each in given:
            if not isinstance(each, wanted):
                raise PluginError(
                    f"plugin {plugin!r} ({self.distribution(plugin)}): {hook}() gave a {type(each).__name__}, "
                    f"it must give {wanted.__name__} objects."
                )
        return given

    def models(self) -> dict[str, EmbeddedModel]:
        """Every embedded model of every plugin that loads, by name.

        Raises:
            PluginError: two plugins give a model of one name.
        """
        models: dict[str, EmbeddedModel] = {}
        owner: dict[str, str] = {}
        for plugin, given in self._each("grpo_models", _models):
            for model in given:
                if model.name in models:
                    raise PluginError(
                        f"model {model.name!r} is given by {owner[model.name]} and {self.distribution(plugin)}."
                    )
                models[model.name], owner[model.name] = model, self.distribution(plugin)
        return models

    def variants(self, kind: str) -> dict[str, str]:
        """Every variant of a kind that plugins contribute: name -> "module:function"."""
        given = self._each("grpo_variants", _variants)
        return self._merge((plugin, variants.get(kind, {})) for plugin, variants in given)

    def commands(self) -> dict[str, str]:
        """Every command group that plugins contribute: name -> "module:command"."""
        return self._merge(self._each("grpo_commands", dict))

    def diagnostics(self) -> dict[str, dict[str, str]]:
        """What plugins have `grpo doctor` ask: plugin -> name -> "module:function"."""
        return {plugin: given for plugin, given in self._each("grpo_diagnostics", dict) if given}

    def reports(self) -> list[PluginReport]:
        """Every installed plugin with its tasks or its error; never raises for a broken one."""
        reports = []
        for plugin in self.names:
            tasks: dict[str, Task] = {}
            error = ""
            try:
                tasks = self.tasks(plugin)
                self._given(plugin, "grpo_models", _models)
                self._given(plugin, "grpo_variants", _variants)
                self._given(plugin, "grpo_commands", dict)
                self._given(plugin, "grpo_diagnostics", dict)
            except PluginError as problem:
                error = str(problem)
            reports.append(PluginReport(plugin, self.distribution(plugin), tasks, error))
        return reports

    def _merge(self, given: Iterable[tuple[str, Mapping[str, str]]]) -> dict[str, str]:
        merged: dict[str, str] = {}
        owner: dict[str, str] = {}
        for plugin, mapping in given:
            for name, target in mapping.items():
                if name in merged:
                    raise PluginError(
                        f"{name!r} is given by {owner[name]} and {self.distribution(plugin)}; uninstall one."
                    )
                merged[name], owner[name] = target, self.distribution(plugin)
        return merged

    def _each(self, hook: str, collect: Callable[[Any], Collected]) -> Iterator[tuple[str, Collected]]:
        for plugin in self.names:
            try:
                given = self._given(plugin, hook, collect)
            except PluginError:  # a row of `reports`; a broken plugin must not break the others
                continue
            yield plugin, given

    def _given(self, plugin: str, hook: str, collect: Callable[[Any], Collected]) -> Collected:
        caller = getattr(self._manager(plugin).hook, hook)
        who = f"plugin {plugin!r} ({self.distribution(plugin)}): {hook}()"
        if not caller.get_hookimpls():
            return collect(())
        try:
            results = caller()
            if results:
                return collect(results[0])  # one plugin a manager, so one result; a generator runs here
        except (Exception, SystemExit) as error:  # a plugin's own code ran: whatever it raised is that plugin's
            raise PluginError(f"{who} raised {type(error).__name__}: {error}") from error
        raise PluginError(f"{who} gave None; it must return what it contributes.")

    def _manager(self, plugin: str) -> pluggy.PluginManager:
        if plugin not in self._managers:
            try:
                self._managers[plugin] = self._load(plugin)
            except PluginError as error:
                self._managers[plugin] = error
        loaded = self._managers[plugin]
        if isinstance(loaded, PluginError):
            raise loaded
        return loaded

    def _load(self, plugin: str) -> pluggy.PluginManager:
        claims = self._claims[plugin]
        who = f"plugin {plugin!r} ({self.distribution(plugin)})"
        if len(claims) > 1:
            raise PluginError(f"{who}: two packages claim this name; uninstall one.")
        if not plugin.isidentifier():
            raise PluginError(f"{who}: the entry point's name must be letters, digits and _ (users write name.task).")
        (point,) = claims.values()
        try:
            module = point.load()
        except (Exception, SystemExit) as error:  # a plugin's import may raise anything; it is reported by name
            raise PluginError(f"{who} failed to load: {type(error).__name__}: {error}") from error
        manager = pluggy.PluginManager(GROUP)
        manager.add_hookspecs(Hooks)
        try:
            manager.register(module, name=plugin)
        except pluggy.PluginValidationError as error:  # a hook that asks for arguments which do not exist
            raise PluginError(f"{who}: {' '.join(str(error).split())}") from error
        implemented = {hook.name for hook in manager.get_hookcallers(module) or []}
        for name in sorted(implemented - set(HOOK_NAMES)):
            raise PluginError(f"{who} implements {name!r}, which is no hook.{near_match(name, HOOK_NAMES)}")
        if not implemented:
            raise PluginError(
                f"{who} contributes nothing: {point.value} has no function marked @hookimpl named "
                f"{' or '.join(HOOK_NAMES)}.{_near_function(module)}"
            )
        for name in HOOK_NAMES:
            if name not in implemented and callable(getattr(module, name, None)):
                raise PluginError(f"{who}: {name}() is not marked; write @hookimpl above it.")
        return manager

    def _unknown_task(self, full_name: str) -> UnknownNameError:
        names: dict[str, str] = {}
        broken = []
        for report in self.reports():
            names.update(dict.fromkeys(report.tasks, report.distribution))
            if report.error:
                broken.append(report.error)
        by_distribution: dict[str, list[str]] = {}
        for name, distribution in sorted(names.items()):
            by_distribution.setdefault(distribution, []).append(name)
        listed = ", ".join(f"{', '.join(tasks)} ({dist})" for dist, tasks in by_distribution.items()) or "(none)"
        trouble = "".join(f"\n  not loaded: {reason}" for reason in broken)
        return UnknownNameError(f"no task {full_name!r}.{near_match(full_name, names)} Installed: {listed}{trouble}")


def _models(given: Iterable[Any]) -> list[EmbeddedModel]:
    models = list(given)
    for model in models:
        if not isinstance(model, EmbeddedModel):
            raise TypeError(f"a {type(model).__name__} where an EmbeddedModel is wanted")
    return models


def _variants(given: Any) -> dict[str, dict[str, str]]:
    return {kind: dict(names) for kind, names in dict(given).items()}


def _near_function(module: ModuleType) -> str:
    for name, value in vars(module).items():
        if callable(value) and (hint := near_match(name, HOOK_NAMES)):
            return f" {name}() is not marked, or misspelt.{hint}"
    return ""


def _distribution(point: metadata.EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "(unknown package)"


@lru_cache(maxsize=1)
def default_host() -> PluginHost:
    """The host over what is installed, shared by the process."""
    return PluginHost()


def resolve(target: str) -> Callable[..., Any]:
    """Import what "module:name" names."""
    import importlib

    module, _, name = target.partition(":")
    return cast("Callable[..., Any]", getattr(importlib.import_module(module), name))
