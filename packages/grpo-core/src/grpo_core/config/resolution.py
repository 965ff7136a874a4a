"""What nobody said: the model, its recommended values, and the defaults that depend on other values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from grpo_core.callbacks import Choice
from grpo_core.config.layers import DEFAULT, Layer, LoadedConfig, Source, build, given, shown, with_recipe
from grpo_core.config.models import RunConfig
from grpo_core.config.recipes import OVERLONG_SHARE, overlong_buffer, recipe
from grpo_core.config.sources import Profile
from grpo_core.config.trainer import TrainerConfig
from grpo_core.errors import UserError
from grpo_core.plugins import variants as registry
from grpo_core.plugins.host import PluginHost, default_host
from grpo_core.plugins.models import model_source
from grpo_core.plugins.tasks import bind
from grpo_core.task.spec import parse_task_specs

EXAMPLE_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
"""Named in advice only: small, instruction-tuned, ungated."""


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
        UserError: the tasks' default models differ or there is none; no such model; a recommended value that is not
            allowed.
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
        if name in mine.values and mine.values[name] is None:
            del mine.values[name], mine.sources[name]  # null leaves it open
        chosen.put(name, value, Source("chosen", why))
        choices.append(Choice(name, shown(value), why))

    model = config.model
    if model is None:
        model, why = choose_model(config.task, host)
        choose("model", model, why)
    for key in ("task", "eval.task"):
        spec = _at(config, key)
        adapted, why = task_for_model(spec, model, host) if isinstance(spec, str) else ("", "")
        if why:  # an option that nobody gave: nothing that somebody said is changed
            mine.values.pop(key, None)
            mine.sources.pop(key, None)
            mine.put(key, adapted, Source("chosen", why))
            choices.append(Choice(key, adapted, why))
    profiles = profiles_of(model, host)
    below = [profile.layer() for profile in profiles]
    loaded = build([*with_recipe([mine, chosen]), *below])
    if loaded.config.recipe is not None:
        choices += _of_recipe(loaded, profiles)
    choices += _renamed(loaded)
    for profile in profiles:
        taken = {
            name: value
            for name, value in profile.layer().values.items()
            if name not in mine.values and loaded.sources[name].kind == "profile"
        }
        if taken:
            listed = ", ".join(f"{name}={shown(value)}" for name, value in taken.items())
            choices.append(Choice("settings", listed, profile.why))
    for name, value, why in _dependent(loaded):
        choose(name, value, why)
    settled = build([*with_recipe([mine, chosen]), *below])
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


def task_for_model(task: str, model: str, host: PluginHost | None = None) -> tuple[str, str]:
    """A task spec with the options that an embedded model was made with, where nobody gave them.

    Returns:
        (spec, the reason; empty where nothing was added).

    Raises:
        UserError: no such model or task.
    """
    host = host or default_host()
    embedded = host.model(model) if model_source(model, host).kind == "embedded" else None
    if embedded is None:
        return task, ""
    options = embedded.task_options
    specs: list[str] = []
    added: dict[str, str] = {}
    for spec in parse_task_specs(task):
        fields = bind(spec, host).task.config.model_fields
        own = {name: value for name, value in options.items() if name in fields and name not in spec.options}
        added |= own
        specs.append(spec.with_options(**own).weighted)
    if not added:
        return task, ""
    listed = ", ".join(f"{name}={value}" for name, value in added.items())
    return ",".join(specs), f"the embedded model {model} was made with {listed}"


def profiles_of(model: str, host: PluginHost | None = None) -> tuple[Profile, ...]:
    """The values recommended for a model, if it is an embedded one.

    Raises:
        UserError: there is no such model; says what there is and the near name.
    """
    host = host or default_host()
    embedded = host.model(model) if model_source(model, host).kind == "embedded" else None
    if embedded is None or not embedded.defaults:
        return ()
    return (Profile(model, embedded.defaults, f"recommended for the embedded model {model}"),)


def _of_recipe(loaded: LoadedConfig, profiles: Iterable[Profile]) -> list[Choice]:
    """What a recipe set, and where it stands against what is recommended for the model."""
    name = loaded.config.recipe
    taken = {key for key, source in loaded.sources.items() if source.kind == "recipe"}
    if name is None or not taken:
        return []  # the configuration of an earlier run says it all itself
    said = Choice("recipe", name, f"{recipe(name).source}; it says {len(taken)} settings")
    above = [
        f"{key}={shown(_at(loaded.config, key))}, not {shown(value)}"
        for profile in profiles
        for key, value in profile.values.items()
        if key in taken and _at(loaded.config, key) != value
    ]
    if not above:
        return [said]
    why = f"the recipe {name} stands above what is recommended for the model {loaded.config.model}: {'; '.join(above)}"
    return [said, Choice("settings", name, why)]


def _renamed(loaded: LoadedConfig) -> list[Choice]:
    """The settings that were given by another name."""
    return [
        Choice(key, shown(_at(loaded.config, key)), f"given by the name {source.alias}, which is this setting here")
        for key, source in loaded.sources.items()
        if source.alias
    ]


def _at(config: RunConfig, name: str) -> object:
    """The value of a dotted key, or of an argument of a variant."""
    value: object = config
    for part in name.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


def _dependent(loaded: LoadedConfig) -> list[tuple[str, object, str]]:
    """Defaults that depend on other values: (key, value, why)."""
    trainer = loaded.config.trainer
    settled: list[tuple[str, object, str]] = []
    if trainer.scale_rewards is None:
        settled.append(("trainer.scale_rewards", *_scale(trainer)))
    settled += _clip(loaded)
    buffer = overlong_buffer(loaded.config.recipe, trainer.max_completion_length)
    if buffer is not None and loaded.sources["trainer.soft_overlong_buffer"] == DEFAULT:
        why = f"{OVERLONG_SHARE:.0%} of max_completion_length, as in the recipe {loaded.config.recipe}"
        settled.append(("trainer.soft_overlong_buffer", buffer, why))
    if trainer.max_steps is None and trainer.num_train_epochs is None and trainer.max_minutes is None:
        settled.append(("trainer.num_train_epochs", 1.0, "neither max_steps nor max_minutes says when to stop"))
    return settled


def _clip(loaded: LoadedConfig) -> Iterable[tuple[str, object, str]]:
    """`epsilon` and `epsilon_high` where they are left open and the loss has its own."""
    trainer = loaded.config.trainer
    loss = registry.get("loss", trainer.loss_type)
    low, high, why = loss.epsilon, loss.epsilon_high, loss.clip_why
    lower = trainer.epsilon
    if low is not None and loaded.sources["trainer.epsilon"] == DEFAULT:
        lower = low if trainer.epsilon_high is None else min(low, trainer.epsilon_high)
        yield "trainer.epsilon", lower, why
    if high is not None and trainer.epsilon_high is None:
        yield "trainer.epsilon_high", max(high, lower), why


def _scale(trainer: TrainerConfig) -> tuple[Literal["none", "group", "batch"], str]:
    """`scale_rewards` where it is left open, and why."""
    loss = registry.get("loss", trainer.loss_type)
    why = loss.scale_why or f"the loss {trainer.loss_type} does not say"
    if loss.scale_rewards == "none":
        return "none", why
    if registry.get("advantage", trainer.baseline).scales_itself:
        return "none", f"the baseline {trainer.baseline} has a normalisation of its own"
    if trainer.num_generations == 1:
        return "none", "a group of one has no standard deviation"
    return loss.scale_rewards, why
