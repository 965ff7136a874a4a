"""Defaults that depend on other settings: the model, its recommended values, and values derived from the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from grpo_core.config.hardware import check_fits, hardware_of, hardware_profile, with_values
from grpo_core.config.layers import DEFAULT, LoadedConfig, Settings, Source, explicit_settings, value_of
from grpo_core.config.model_profiles import choose_model, embedded_start, profiles_of, size_profile
from grpo_core.config.models import RunConfig
from grpo_core.config.recipes import OVERLONG_SHARE, overlong_buffer, recipe
from grpo_core.config.sources import Profile
from grpo_core.config.trainer import TrainerConfig, needless
from grpo_core.profiles.model_shape import model_shape
from grpo_core.profiles.presets import SOURCE
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.display.text import format_value
from grpo_sdk.hub.network import prepare
from grpo_sdk.plugins import variants as registry
from grpo_sdk.plugins.host import PluginHost, default_host
from grpo_sdk.plugins.task_objects import Tasks, name_tasks
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.task.spec import parse_task_specs

ORDINARY = frozenset({("trainer.scale_rewards", "none"), ("trainer.num_train_epochs", 1.0)})
"""Values that depend on others and are a run's unless the user, the task, the model or the platform says otherwise."""


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """A configuration in which every default is resolved.

    Attributes:
        config: Resolved configuration; `config.model` is never None.
        sources: Dotted key -> source, for every key.
        choices: Values chosen for the user, with reasons.
    """

    config: RunConfig
    sources: Mapping[str, Source]
    choices: tuple[ResolvedDefault, ...]


def resolve(
    config: RunConfig | Settings,
    sources: Mapping[str, Source] | None = None,
    *,
    host: PluginHost | None = None,
    trains: bool = True,
) -> ResolvedConfig:
    """Choose the model, apply its recommended values, and resolve defaults that depend on other values.

    Values set by the user are never changed. Resolving twice changes nothing.

    Args:
        config: Settings from `read_config`, or a configuration, whose fields that were set count as the user's.
        sources: Dotted key -> source of the values of a configuration; by default they come from Python.
        host: Plugin host in which tasks and embedded models are looked up.
        trains: Whether the model is trained, and so needs memory for gradients and optimizer.

    Raises:
        UserError: a value that is not allowed; the tasks' default models differ or there is none; no such model.
    """
    settings = config.copy() if isinstance(config, Settings) else explicit_settings(config, sources)
    choices: list[ResolvedDefault] = []

    def choose(name: str, value: str, why: str) -> None:
        settings.override(name, value, Source("chosen", why))
        choices.append(ResolvedDefault(name, value, why, is_ordinary=False))

    prepare(offline=settings.values.get("offline") is True)
    task, model = settings.text("task") or "", settings.text("model")
    if model is None:
        model, why = choose_model(task, host)
        choose("model", model, why)
    for name in ("task", "eval.task"):
        if (spec := settings.text(name)) is not None:
            adapted, why = task_for_model(spec, model, host)
            if why:
                choose(name, adapted, why)
    given = frozenset(settings.values)
    settings.add_recipe()
    profiles = profiles_of(model, task, host)
    for profile in profiles:
        settings.add_below(Settings.of(profile.values, profile.source))
    loaded = settings.validated()  # what is added from here on follows from valid values
    if trains and (rate := size_profile(loaded, model, host)):
        profiles, loaded = (rate, *profiles), _with(loaded, rate.values, rate.source)
    hardware = hardware_of(loaded.config, host)
    if hardware is not None and hardware.accelerator.backend != "cpu":
        shape = model_shape(model, host)
        sizes = hardware_profile(loaded, hardware, shape)
        fitting = {name: value for name, value in sizes.values.items() if loaded.sources[name] == DEFAULT}
        profiles, loaded = (*profiles, sizes), _with(loaded, fitting, sizes.source)
        if shape is not None and trains:
            check_fits(loaded, hardware, shape)
    choices += _chosen(loaded, profiles, given)
    for name, value, why in [*_left_out(loaded, profiles, given), *_dependent_defaults(loaded)]:
        loaded = _with(loaded, {name: value}, Source("chosen", why))
        shown = value if isinstance(value, str) else format_value(value)
        choices.append(ResolvedDefault(name, shown, why, (name, value) in ORDINARY))
    loaded.check_complete()
    return ResolvedConfig(loaded.config, loaded.sources, tuple(choices))


def _with(loaded: LoadedConfig, values: Mapping[str, object], source: Source) -> LoadedConfig:
    return LoadedConfig(with_values(loaded.config, values), {**loaded.sources, **dict.fromkeys(values, source)})


def task_for_model(task: Tasks, model: str, host: PluginHost | None = None) -> tuple[str, str]:
    """Add to the spec of tasks the options that are recommended for an embedded model, unless they are given.

    Args:
        task: Spec, task or mixture.
        model: Embedded model, or checkpoint of a run that started from one, whose values count on the tasks that it was
            on; with any other model nothing is added.
        host: Plugins; by default those that are installed.

    Returns:
        (spec, reason); the reason is empty if nothing was added.

    Raises:
        UserError: no such model or task.
    """
    host = host or default_host()
    named = name_tasks(task, host)
    start, of_runs = embedded_start(model, host)
    if start is None:
        return named.spec, ""
    specs: list[str] = []
    added: dict[str, str] = {}
    for spec in parse_task_specs(named.spec):
        fields = bind(spec, host).task.config.model_fields
        options = of_runs.get(spec.name, start.task_options)
        new = {
            name: options[name]
            for name in start.task_options
            if name in options and name in fields and name not in spec.options
        }
        added |= new
        specs.append(spec.with_options(**new).weighted)
    if not added:
        return named.spec, ""
    listed = ", ".join(f"{name}={value}" for name, value in added.items())
    if any(spec.name in of_runs for spec in parse_task_specs(named.spec)):
        return ",".join(specs), f"the run of {model} had {listed}"
    trained = "" if start.name == model else f", with which the run of {model} started"
    return ",".join(specs), f"{listed}: recommended for the embedded model {start.name}{trained}"


def _chosen(loaded: LoadedConfig, profiles: Iterable[Profile], given: Collection[str]) -> Iterator[ResolvedDefault]:
    """Yield what preset, recipe, aliases and profiles set; a run's own configuration states every value itself."""
    config, sources = loaded.config, loaded.sources
    shown = {key: format_value(value_of(config, key)) for key in sources}
    if (name := config.preset) and (of_preset := [key for key in sources if sources[key].kind == "preset"]):
        yield ResolvedDefault("preset", name, f"{', '.join(f'{key}={shown[key]}' for key in of_preset)}: {SOURCE}")
    if (name := config.recipe) and (of_recipe := {key for key in sources if sources[key].kind == "recipe"}):
        yield ResolvedDefault("recipe", name, f"{recipe(name).source}; it says {len(of_recipe)} settings")
        overridden = [
            f"{key}={shown[key]}, not {format_value(value)}"
            for profile in profiles
            for key, value in profile.values.items()
            if key in of_recipe and value_of(config, key) != value
        ]
        if overridden:
            above = f"the recipe {name} stands above what is recommended for the model {config.model}"
            yield ResolvedDefault("settings", name, f"{above}: {'; '.join(overridden)}")
    for key, source in sources.items():
        if source.alias:
            why = f"given by the name {source.alias}, which is this setting here"
            yield ResolvedDefault(key, shown[key], why)
    for profile in profiles:
        set_by_it = [
            f"{name}={format_value(value)}"
            for name, value in Settings.of(profile.values, profile.source).values.items()
            if name not in given and sources.get(name) == profile.source
        ]
        if set_by_it:
            yield ResolvedDefault("settings", ", ".join(set_by_it), profile.why)


def _left_out(
    loaded: LoadedConfig, profiles: Iterable[Profile], given: Collection[str]
) -> Iterator[tuple[str, None, str]]:
    """Yield recommended values that other settings make needless: (key, None, reason)."""
    reasons = needless(lambda name: value_of(loaded.config, name))
    for profile in profiles:
        for name, value in profile.values.items():
            if name in reasons and name not in given and value_of(loaded.config, name) is None:
                yield name, None, f"{reasons[name]}; {format_value(value)} is {profile.why}"


def _dependent_defaults(loaded: LoadedConfig) -> Iterator[tuple[str, object, str]]:
    """Yield defaults that depend on other values: (key, value, reason)."""
    trainer = loaded.config.trainer
    if trainer.scale_rewards is None:
        yield "trainer.scale_rewards", *_scale(trainer)
    yield from _clip(loaded)
    yield from _correction(loaded)
    buffer = overlong_buffer(loaded.config.recipe, trainer.max_completion_length)
    if buffer is not None and loaded.sources["trainer.soft_overlong_buffer"] == DEFAULT:
        why = f"{OVERLONG_SHARE:.0%} of max_completion_length, as in the recipe {loaded.config.recipe}"
        yield "trainer.soft_overlong_buffer", buffer, why
    if trainer.max_steps is None and trainer.num_train_epochs is None and trainer.max_minutes is None:
        yield "trainer.num_train_epochs", 1.0, "neither max_steps nor max_minutes says when to stop"


def _clip(loaded: LoadedConfig) -> Iterator[tuple[str, object, str]]:
    """Yield the loss's own `epsilon` and `epsilon_high`, where they are not set."""
    trainer = loaded.config.trainer
    loss = registry.get("loss", trainer.loss_type)
    low, high, why = loss.epsilon, loss.epsilon_high, loss.clip_why
    lower = trainer.epsilon
    if low is not None and loaded.sources["trainer.epsilon"] == DEFAULT:
        lower = low if trainer.epsilon_high is None else min(low, trainer.epsilon_high)
        yield "trainer.epsilon", lower, why
    if high is not None and trainer.epsilon_high is None:
        yield "trainer.epsilon_high", max(high, lower), why


def _correction(loaded: LoadedConfig) -> Iterator[tuple[str, object, str]]:
    """Yield `rollout_correction` where the sampler's weights or kernels are not the trainer's, if it is not set."""
    config = loaded.config
    trainer, engine = config.trainer, config.engine.name
    if trainer.backend != "native" or loaded.sources["trainer.rollout_correction"] != DEFAULT:
        return
    if trainer.off_policy_steps:
        why = "trainer.off_policy_steps=1: a batch is sampled by weights of one step before (importance sampling)"
    elif registry.get("engine", engine).has_own_numerics:
        why = f"engine.name={engine} computes log-probs with kernels of its own (truncated importance sampling)"
    elif config.engine.args.get("dtype") == "bfloat16" and config.precision != "bfloat16":
        why = "engine.args.dtype=bfloat16: samples are rounded more than training (truncated importance sampling)"
    else:
        return
    yield "trainer.rollout_correction", "token_truncate", why


def _scale(trainer: TrainerConfig) -> tuple[Literal["none", "group", "batch"], str]:
    """Return `scale_rewards` where it is not set, and the reason."""
    loss = registry.get("loss", trainer.loss_type)
    why = loss.scale_why or f"the loss {trainer.loss_type} does not say"
    if loss.scale_rewards == "none":
        return "none", why
    if registry.get("advantage", trainer.baseline).scales_itself:
        return "none", f"the baseline {trainer.baseline} has a normalisation of its own"
    if trainer.num_generations == 1:
        return "none", "a group of one has no standard deviation"
    return loss.scale_rewards, why
