"""One plugin: importing it, asking its hooks, and saying in one line what is wrong with it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from types import ModuleType
from typing import Any, TypeVar

import pluggy

from grpo_sdk.errors import PluginError, UserError, near_match
from grpo_sdk.plugins.built_in import as_variant
from grpo_sdk.plugins.facts import GROUP, EmbeddedModel, Frame, PluginFacts, TaskFacts
from grpo_sdk.plugins.gpu_profile import GpuProfile
from grpo_sdk.plugins.hooks import HOOK_NAMES, Hooks
from grpo_sdk.plugins.variant import Variant
from grpo_sdk.task.calling import prints_to_stderr
from grpo_sdk.task.game import Game, game_task
from grpo_sdk.task.score import Score
from grpo_sdk.task.task import Task

MAX_LINE_CHARS = 500
"""Longest description or error of a plugin."""

MAX_PROFILES = 1000
"""GPU profiles of one plugin."""

Collected = TypeVar("Collected")
Wanted = TypeVar("Wanted")


class LoadedPlugin:
    """An imported plugin; its hooks are asked when they are needed.

    Args:
        point: Entry point of the plugin.
        who: Name of the plugin in messages: `plugin 'chess' (grpo-tasks-chess 0.1.0)`.

    Raises:
        PluginError: it cannot be imported, or is no plugin; says why.
    """

    def __init__(self, point: metadata.EntryPoint, who: str) -> None:
        self._name, self._who = point.name, who
        if not point.name.isidentifier():
            raise PluginError(f"{who}: the entry point's name must be letters, digits and _ (users write name.task).")
        if metadata.EntryPoint.pattern.match(point.value) is None:
            raise PluginError(f"{who}: the entry point {point.value!r:.80} must name a module.")
        try:
            with prints_to_stderr():
                module = point.load()
        except (Exception, SystemExit) as error:  # a plugin's import may raise anything; it is reported by name
            raise PluginError(f"{who} failed to load: {_words(error)}") from error
        if not isinstance(module, ModuleType):
            raise PluginError(f"{who}: the entry point {point.value!r} names a {type(module).__name__}, not a module.")
        self._manager = pluggy.PluginManager(GROUP)
        self._manager.add_hookspecs(Hooks)
        try:
            self._manager.register(module, name=point.name)
        except Exception as error:  # a hook that asks for arguments which do not exist, a __getattr__ that raises
            raise PluginError(f"{who}: {' '.join(str(error).split())}") from error
        self._check_hooks(module, point.value)

    def _check_hooks(self, module: ModuleType, value: str) -> None:
        implemented = {hook.name for hook in self._manager.get_hookcallers(module) or []}
        for name in sorted(implemented - set(HOOK_NAMES)):
            raise PluginError(f"{self._who} implements {name!r}, which is no hook.{near_match(name, HOOK_NAMES)}")
        if not implemented:
            raise PluginError(
                f"{self._who} contributes nothing: {value} has no function marked @hookimpl named "
                f"{' or '.join(HOOK_NAMES)}.{_near_function(module)}"
            )
        for name in HOOK_NAMES:
            if name not in implemented and callable(getattr(module, name, None)):
                raise PluginError(f"{self._who}: {name}() is not marked; write @hookimpl above it.")

    def tasks(self) -> dict[str, Task]:
        """Its tasks, and its games as tasks, by full name.

        Raises:
            PluginError: as for every method: the hook is broken; says how.
        """
        games = map(game_task, self._given_as("grpo_games", Game))
        tasks = (*self._given_as("grpo_tasks", Task), *games)
        return self._by_name("task", ((f"{self._name}.{task.name}", task) for task in tasks))

    def find_task(self, name: str) -> Task | None:
        """A task by a name within the plugin that `tasks` does not have; None where there is none.

        Raises:
            UserError: there is none, and the plugin says what to do.
            PluginError: the hook is broken; says how.
        """
        caller = self._manager.hook.grpo_find_task
        tasks = self._asked("grpo_find_task", lambda: caller(name=name), passes=(UserError,))  # its message to its user
        if not tasks:
            return None
        if not isinstance(tasks[0], Task) or tasks[0].name != name:
            raise PluginError(f"{self._who}: grpo_find_task({name!r}) must give the Task of this name, or None.")
        return tasks[0]

    def draw(self, task: str, row: Mapping[str, Any], text: str, score: Score) -> tuple[Frame, ...]:
        """Pictures of a completion; none where the plugin draws nothing.

        Raises:
            PluginError: the hook is broken; says how.
        """
        caller = self._manager.hook.grpo_draw_rollout
        drawn = self._asked("grpo_draw_rollout", lambda: caller(task=task, row=row, text=text, score=score))
        frames = tuple(drawn[0]) if drawn else ()
        if not all(isinstance(frame, Frame) for frame in frames):
            raise PluginError(f"{self._who}: grpo_draw_rollout() must give Frame objects, or None.")
        return frames

    def models(self) -> dict[str, EmbeddedModel]:
        """Embedded models of the plugin, by name."""
        models = self._given_as("grpo_models", EmbeddedModel)
        return self._by_name("model", ((model.name, model) for model in models))

    def variants(self) -> dict[str, dict[str, Variant]]:
        """Variants of the plugin: kind -> name -> variant."""
        return self._given("grpo_variants", _variants)

    def profiles(self) -> tuple[GpuProfile, ...]:
        """GPU profiles of the plugin."""
        profiles = self._given_as("grpo_profiles", GpuProfile)
        if len(profiles) > MAX_PROFILES:
            raise PluginError(f"{self._who} gives {len(profiles)} GPU profiles; at most {MAX_PROFILES} are read.")
        return tuple(self._by_name("GPU profile", ((profile.name, profile) for profile in profiles)).values())

    def commands(self) -> dict[str, str]:
        """Commands of the plugin: name -> "module:click command"."""
        return self._given("grpo_commands", _texts)

    def diagnostics(self) -> dict[str, str]:
        """Diagnostics of the plugin for `grpo doctor`: name -> "module:function"."""
        return self._given("grpo_diagnostics", _texts)

    def facts(self) -> PluginFacts:
        """All contributions of the plugin, as far as its hooks work; never raises a `PluginError`."""
        errors: list[str] = []

        def ask(hook: Callable[[], Collected], otherwise: Collected) -> Collected:
            try:
                return hook()
            except PluginError as error:
                errors.append(str(error))
                return otherwise

        facts = PluginFacts(
            tasks=ask(lambda: {name: _facts_of(task) for name, task in self.tasks().items()}, {}),
            models=ask(lambda: tuple(self.models().values()), ()),
            variants=ask(self.variants, {}),
            commands=ask(lambda: {name: _help_line(target) for name, target in self.commands().items()}, {}),
            diagnostics=ask(self.diagnostics, {}),
            profiles=ask(self.profiles, ()),
            error="",
        )
        # What was remembered and what was just found are the same: values that JSON lacks are text in both.
        plain = json.loads(json.dumps(facts.to_json(), default=str))
        return PluginFacts.from_json(plain | {"error": errors[0] if errors else ""})

    def _by_name(self, what: str, given: Iterable[tuple[str, Wanted]]) -> dict[str, Wanted]:
        found: dict[str, Wanted] = {}
        for name, each in given:
            if name in found:
                raise PluginError(f"{self._who} gives {what} {name!r} twice.")
            found[name] = each
        return found

    def _given_as(self, hook: str, kind: type[Wanted]) -> list[Wanted]:
        objects = self._given(hook, list)
        for item in objects:
            if not isinstance(item, kind):
                raise PluginError(
                    f"{self._who}: {hook}() gave a {type(item).__name__}, it must give {kind.__name__} objects."
                )
        return objects

    def _given(self, hook: str, collect: Callable[[Any], Collected]) -> Collected:
        caller = getattr(self._manager.hook, hook)
        if not caller.get_hookimpls():
            return collect(())
        # One plugin a manager, so one result; a generator runs while it is collected.
        collected = self._asked(hook, lambda: [collect(result) for result in caller()[:1]])
        if not collected:
            raise PluginError(f"{self._who}: {hook}() gave None; it must return what it contributes.")
        return collected[0]

    def _asked(self, hook: str, ask: Callable[[], Collected], passes: tuple[type[Exception], ...] = ()) -> Collected:
        try:
            with prints_to_stderr():
                return ask()
        except passes:
            raise
        except (Exception, SystemExit) as error:  # a plugin's own code ran: whatever it raised is that plugin's
            raise PluginError(f"{self._who}: {hook}() raised {_words(error)}") from error


def describe(task: Task) -> str:
    """One line about a task: the first of the docstring of its loader, prompt or validator."""
    for function in (task.load, task.prompt, task.validate):
        if text := inspect.getdoc(function):
            return text.splitlines()[0][:MAX_LINE_CHARS]
    return ""


def options_of(task: Task) -> dict[str, tuple[Any, str]]:
    """A task's options: name -> (default, type in words)."""
    from pydantic_core import PydanticUndefined

    options: dict[str, tuple[Any, str]] = {}
    for name, field in task.config.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        options[name] = (None if default is PydanticUndefined else default, type_words(field.annotation))
    return options


def type_words(annotation: Any) -> str:
    """Describe the type of an option in words: `whole number or null`, `list of text`, `train, validation or test`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_words(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(type_words, arguments))
    if origin is typing.Literal:
        *first, last = map(str, arguments)
        return f"{', '.join(first)} or {last}" if first else last
    if origin is tuple:
        return f"list of {type_words(arguments[0])}"
    if origin is dict:
        return f"mapping of names to {type_words(arguments[1])}"
    words = {int: "whole number", float: "number", bool: "true or false", str: "text", type(None): "null"}
    return words.get(annotation, getattr(annotation, "__name__", str(annotation)))


def resolve(target: str) -> Callable[..., Any]:
    """Import the object of "module:name"."""
    module, _, name = target.partition(":")
    with prints_to_stderr():
        target_object: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return target_object


def of_trainer(target: str, who: str = "") -> Any:
    """Import what only grpo-core has, as "module:name".

    Args:
        target: What.
        who: What needs it, for the error; by default its name.

    Raises:
        UserError: grpo-core is not installed.
    """
    if importlib.util.find_spec(target.partition(".")[0]) is None:
        who = who or target.partition(":")[2]
        raise UserError(f"{who} needs the trainer, which is not installed: pip install grpo-core")
    return resolve(target)


def _facts_of(task: Task) -> TaskFacts:
    options = {name: default for name, (default, _) in options_of(task).items()}
    return TaskFacts(describe(task), task.default_model, options)


def _help_line(target: str) -> str:
    """A command's line for `grpo --help`; empty where it cannot be imported, which whoever runs it is told."""
    import click

    try:
        command: object = resolve(target)
    except (Exception, SystemExit):  # the plugin's own module
        return ""
    return command.get_short_help_str(limit=100) if isinstance(command, click.Command) else ""


def _words(error: BaseException) -> str:
    text = " ".join(str(error)[:MAX_LINE_CHARS].split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _variants(given: Any) -> dict[str, dict[str, Variant]]:
    variants: dict[str, dict[str, Variant]] = {}
    for kind, names in dict(given).items():
        for name, each in dict(names).items():
            if not isinstance(name, str) or not isinstance(each, str | Variant):
                raise TypeError(
                    f'{name!r:.40}: {each!r:.40} where a name and a Variant or "module:function" are wanted'
                )
            variants.setdefault(kind, {})[name] = as_variant(each)
    return variants


def _texts(given: Any) -> dict[str, str]:
    texts = dict(given)
    for name, target in texts.items():
        if not isinstance(name, str) or not isinstance(target, str):
            raise TypeError(f'{name!r:.40}: {target!r:.40} where a name and "module:name" are wanted')
    return texts


def _near_function(module: ModuleType) -> str:
    for name, value in vars(module).items():
        if inspect.isfunction(value) and (hint := near_match(name, HOOK_NAMES)):
            return f" {name}() is not marked, or misspelt.{hint}"
    return ""
