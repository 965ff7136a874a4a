"""What nobody said: the model, its recommended values, and the defaults that depend on other values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpo_core.binding import bind
from grpo_core.callbacks import Choice
from grpo_core.config.layers import Layer, Source, build, given, shown
from grpo_core.config.models import RunConfig, TrainerConfig
from grpo_core.config.sources import Profile
from grpo_core.errors import UserError
from grpo_core.plugins import PluginHost, default_host
from grpo_core.taskspec import parse_task_specs

EXAMPLE_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
"""Named in advice only: small, instruction-tuned, ungated."""

DAPO_EPSILON_HIGH = 0.28
"""DAPO's clip-higher, arXiv 2503.14476, section 4.1."""

_SCALE_OF_LOSS = {
    "dr_grpo": ("none", "Dr. GRPO does not divide by a standard deviation: that weighs questions by difficulty"),
    "grpo": ("group", "GRPO divides by the standard deviation of the group"),
    "dapo": ("group", "DAPO divides by the standard deviation of the group, as GRPO"),
}
"""A loss's own `scale_rewards` and why."""


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """A configuration in which nothing is left open.

    Attributes:
        config: The values; `config.model` is never None.
        sources: Dotted key -> source, for every key.
        choices: What was chosen for the user, and why.
    """

    config: RunConfig
    sources: Mapping[str, Source]
    choices: tuple[Choice, ...]


def resolve(
    config: RunConfig, sources: Mapping[str, Source] | None = None, *, host: PluginHost | None = None
) -> ResolvedConfig:
    """Choose the model, take its recommended values, and settle defaults that depend on other values.

    A value that the user gave is never changed. Resolving twice changes nothing.

    Args:
        config: As loaded or as made in Python; which fields were set is what counts as given.
        sources: Where given values come from; by default from Python.
        host: Where tasks and embedded models are looked up.

    Raises:
        UserError: the tasks' default models differ or there is none; a recommended value that is not allowed.
    """
    mine = Layer()
    for name, value in given(config).items():
        source = (sources or {}).get(name, Source("python"))
        if isinstance(value, dict):  # arguments of a variant carry sources of their own
            for argument, inner in value.items():
                key = f"{name}.{argument}"
                mine.put(key, inner, (sources or {}).get(key, source))
        else:
            mine.put(name, value, source)
    chosen = Layer()
    choices: list[Choice] = []

    def choose(name: str, value: object, why: str) -> None:
        chosen.put(name, value, Source("chosen", why))
        choices.append(Choice(name, shown(value), why))

    model = config.model
    if model is None:
        model, why = choose_model(config.task, host)
        choose("model", model, why)
    profiles = profiles_of(model, host)
    loaded = build([mine, chosen, *(profile.layer() for profile in profiles)])
    for profile in profiles:
        taken = {
            name: value
            for name, value in profile.layer().values.items()
            if name not in mine.values and loaded.sources[name].kind == "profile"
        }
        if taken:
            listed = ", ".join(f"{name}={shown(value)}" for name, value in taken.items())
            choices.append(Choice("settings", listed, profile.why))
    for name, value, why in _dependent(loaded.config.trainer):
        choose(name, value, why)
    settled = build([mine, chosen, *(profile.layer() for profile in profiles)])
    return ResolvedConfig(settled.config, settled.sources, tuple(choices))


def choose_model(task: str, host: PluginHost | None = None) -> tuple[str, str]:
    """The default model of a task or mixture.

    Returns:
        (model, the reason).

    Raises:
        UserError: the tasks have different default models, or none.
    """
    defaults = {spec.name: bind(spec, host).task.default_model for spec in parse_task_specs(task)}
    wanted = sorted({model for model in defaults.values() if model is not None})
    tasks = ", ".join(defaults)
    if not wanted:
        raise UserError(
            f"{tasks}: no default model. Give one: --model {EXAMPLE_MODEL}, --model tiny, or a folder ./model."
        )
    if len(wanted) > 1 or None in defaults.values():
        listed = ", ".join(f"{name} -> {model or 'none'}" for name, model in defaults.items())
        raise UserError(f"these tasks have different default models ({listed}). Say which: --model {wanted[0]}.")
    return wanted[0], f"no --model given: the default of {tasks}; for a real one: --model {EXAMPLE_MODEL}"


def profiles_of(model: str, host: PluginHost | None = None) -> tuple[Profile, ...]:
    """The values recommended for a model, if it is an embedded one."""
    if model.startswith((".", "/", "~")) or model.endswith(".gguf"):
        return ()  # a path: no plugin needs to be imported to know
    embedded = (host or default_host()).models().get(model)
    if embedded is None or not embedded.defaults:
        return ()
    return (Profile(model, embedded.defaults, f"recommended for the embedded model {model}"),)


def _dependent(trainer: TrainerConfig) -> list[tuple[str, object, str]]:
    """Defaults that depend on other values: (key, value, why)."""
    settled: list[tuple[str, object, str]] = []
    if trainer.scale_rewards is None:
        value, why = _SCALE_OF_LOSS.get(trainer.loss_type, ("none", f"the loss {trainer.loss_type} does not say"))
        if value == "group" and trainer.num_generations == 1:
            value, why = "none", "a group of one has no standard deviation"
        settled.append(("trainer.scale_rewards", value, why))
    if trainer.epsilon_high is None and trainer.loss_type == "dapo":
        high = max(DAPO_EPSILON_HIGH, trainer.epsilon)
        settled.append(("trainer.epsilon_high", high, "DAPO clips higher upwards, so that rare tokens can grow"))
    if trainer.max_steps is None and trainer.num_train_epochs is None and trainer.max_minutes is None:
        settled.append(("trainer.num_train_epochs", 1.0, "neither max_steps nor max_minutes says when to stop"))
    return settled
