"""Contributions of a plugin as plain data, listed without importing the plugin. No pydantic, no pluggy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from grpo_sdk.errors import UserError
from grpo_sdk.plugins.gpu_profile import GpuProfile
from grpo_sdk.plugins.variant import Variant

GROUP = "grpo"
"""Entry-point group; the entry point's name is the plugin's name."""

MODEL, COMMAND, PROFILE = "model", "command", "GPU profile"
"""Kinds of contributions, beside the kinds of variants."""

MAX_TEXT_CHARS = 10_000
"""Longest text in a memory that anybody may have written."""

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


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture of a completion: a position of a game, a program, a plot.

    A page shows `svg` as an image, where scripts and links do nothing, and the texts as plain text; so a frame may hold
    whatever a model wrote.

    Attributes:
        caption: A line above it.
        svg: A whole SVG document; its text must be escaped.
        text: Text in a fixed-width font.
    """

    caption: str = ""
    svg: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model that ships inside a package.

    Attributes:
        name: What `--model` calls it.
        path: Its folder: config, safetensors, tokenizer.
        description: One line for `grpo models`.
        defaults: Settings recommended for it: dotted key -> value (`{"trainer.learning_rate": 5e-5}`).
        task_options: Options of tasks recommended for it, as those that it was made with (`{"style": "short"}`); a task
            that has such an option and is not given it is run so, which is said.
        task_defaults: Full name of a task -> settings recommended for a run on it alone, over `defaults`
            (`{"games.kuhn_poker": {"trainer.beta": 0.1}}`).
    """

    name: str
    path: str
    description: str
    defaults: Mapping[str, object] = field(default_factory=dict)
    task_options: Mapping[str, str] = field(default_factory=dict)
    task_defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def recommended(self, task: str | None) -> Mapping[str, object]:
        """Return the settings recommended for a run on a task; with None, on several."""
        return {**self.defaults, **self.task_defaults.get(task or "", {})}


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """One task.

    Attributes:
        description: One line.
        default_model: Model of a run that names none.
        options: Option -> default, as JSON.
    """

    description: str
    default_model: str | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PluginFacts:
    """Contributions of one plugin, or the error that it has.

    Attributes:
        tasks: Full name -> task.
        models: Embedded models.
        variants: Kind -> name -> variant.
        commands: Name -> help line.
        diagnostics: Name -> "module:function".
        profiles: GPU profiles.
        error: Why it, or one of its hooks, cannot be used; empty where all is well.
        is_dangerous: Importing it hangs, or ends or interrupts the process: it must not be imported here.
    """

    tasks: Mapping[str, TaskFacts] = field(default_factory=dict)
    models: tuple[EmbeddedModel, ...] = ()
    variants: Mapping[str, Mapping[str, Variant]] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    diagnostics: Mapping[str, str] = field(default_factory=dict)
    profiles: tuple[GpuProfile, ...] = ()
    error: str = ""
    is_dangerous: bool = False

    def contributions(self, kind: str) -> Mapping[str, Any]:
        """Contributions of a kind, by name; the kind is `MODEL`, `COMMAND`, `PROFILE`, or a kind of variant."""
        if kind == MODEL:
            return {model.name: model for model in self.models}
        if kind == PROFILE:
            return {profile.name: profile for profile in self.profiles}
        return self.commands if kind == COMMAND else self.variants.get(kind, {})

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> PluginFacts:
        """Read the result of `to_json`.

        Raises:
            ValueError: it is anything else.
        """
        return cast("PluginFacts", _read(cls, data))


def _read(hint: Any, value: Any) -> Any:
    """What JSON has made of a value of an annotated type, checked and made again.

    Raises:
        ValueError: it is anything else.
    """
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    if kind in (Any, object):
        return value
    if kind in (Union, UnionType):  # all of ours are "… or None"
        return None if value is None else _read(arguments[0], value)
    if kind in (str, Literal) and isinstance(value, str) and len(value) <= MAX_TEXT_CHARS:
        return value
    if kind in (bool, int) and type(value) is kind:
        return value
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if kind is Mapping and isinstance(value, dict):
        return {_read(str, key): _read(arguments[1], each) for key, each in value.items()}
    if kind is tuple and isinstance(value, list):
        return tuple(_read(arguments[0], each) for each in value)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict) and set(value) == set(_hints(kind)):
        return kind(**{name: _read(_hints(kind)[name], each) for name, each in value.items()})
    raise ValueError(f"{value!r:.40} is no {hint}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
