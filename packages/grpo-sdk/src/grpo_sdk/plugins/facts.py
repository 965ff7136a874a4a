"""Contributions of a plugin as plain data, listed without importing the plugin. No pydantic, no pluggy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar, get_args

from grpo_sdk.errors import UserError
from grpo_sdk.plugins.gpu_profile import GpuProfile
from grpo_sdk.plugins.variant import Variant

Value = TypeVar("Value")

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
        if not isinstance(data, dict) or set(data) != set(cls.__dataclass_fields__):
            raise ValueError("no facts of a plugin")
        return cls(
            tasks=_mapping(data["tasks"], _task),
            models=tuple(map(_model, _list(data["models"]))),
            variants=_mapping(data["variants"], lambda names: _mapping(names, _variant)),
            commands=_mapping(data["commands"], _text),
            diagnostics=_mapping(data["diagnostics"], _text),
            profiles=tuple(map(GpuProfile.from_json, _list(data["profiles"]))),
            error=_text(data["error"]),
            is_dangerous=data["is_dangerous"] is True,
        )


def _task(data: Any) -> TaskFacts:
    fields = _mapping(data, lambda value: value)
    model = fields.get("default_model")
    return TaskFacts(
        _text(fields.get("description")), None if model is None else _text(model), _mapping(fields.get("options"), _any)
    )


def _model(data: Any) -> EmbeddedModel:
    fields = _mapping(data, _any)
    name, path, description = (_text(fields.get(key)) for key in ("name", "path", "description"))
    defaults, options = _mapping(fields.get("defaults"), _any), _mapping(fields.get("task_options"), _text)
    by_task = _mapping(fields.get("task_defaults"), lambda settings: _mapping(settings, _any))
    return EmbeddedModel(name, path, description, defaults, options, by_task)


def _variant(data: Any) -> Variant:
    given = _mapping(data, _any)
    empty = Variant("")
    if set(given) != set(Variant.__dataclass_fields__):
        raise ValueError("no facts of a variant")
    for name, value in given.items():
        default = getattr(empty, name)
        is_text = isinstance(default, str) or name in ("aggregation", "clips")
        fits = isinstance(value, bool) if isinstance(default, bool) else isinstance(value, int | float)
        if not (value is None and default is None) and not (is_text and _text(value) == value) and not fits:
            raise ValueError(f"{value!r:.40} is no {name} of a variant")
    return Variant(**given)


def _any(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT_CHARS:
        raise ValueError(f"{value!r:.40} is no text")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.40} is no list")
    return value


def _mapping(value: Any, read: Callable[[Any], Value]) -> dict[str, Value]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.40} is no object")
    return {_text(key): read(each) for key, each in value.items()}
