"""Defaults that depend on other settings: the model, its recommended values, and values derived from the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grpo_core.checkpoints import run_of
from grpo_core.config.hardware import check_fits, hardware_of, hardware_profile
from grpo_core.config.layers import DEFAULT, Layer, LoadedConfig, Source, build, explicit_values, with_recipe
from grpo_core.config.models import RunConfig
from grpo_core.config.recipes import OVERLONG_SHARE, overlong_buffer, recipe
from grpo_core.config.sources import Profile
from grpo_core.config.trainer import TrainerConfig, needless
from grpo_core.profiles.model_shape import model_shape
from grpo_core.profiles.presets import SOURCE
from grpo_core.profiles.recommended import RECORD, learning_rate, recorded
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.display.text import format_value
from grpo_sdk.errors import UserError
from grpo_sdk.hub.cache import cached_models
from grpo_sdk.hub.network import offline_reason, prepare
from grpo_sdk.plugins import variants as registry
from grpo_sdk.plugins.facts import EmbeddedModel
from grpo_sdk.plugins.host import PluginHost, default_host
from grpo_sdk.plugins.models import model_source
from grpo_sdk.plugins.task_objects import Tasks, name_tasks
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.records.yaml_text import read_mapping
from grpo_sdk.task.spec import parse_task_specs

FALLBACK_MODEL = "tiny"
"""Model of a run that names none, of tasks without a default: it is here, and its first batch shows what it knows."""

MAX_RUNS = 20
"""Runs, each from a checkpoint of the one before, through which the first model is looked for."""

WARM_START = "warm start"
"""Name of the profile that a model's record gives."""

EXAMPLE_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
"""Model named in advice: small, instruction-tuned, ungated."""


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
    config: RunConfig,
    sources: Mapping[str, Source] | None = None,
    *,
    host: PluginHost | None = None,
    trains: bool = True,
) -> ResolvedConfig:
    """Choose the model, apply its recommended values, and resolve defaults that depend on other values.

    Values set by the user are never changed. Resolving twice changes nothing.

    Args:
        config: Configuration from `load_config` or created in Python; the fields that were set count as the user's.
        sources: Dotted key -> source of the user's values; by default they come from Python.
        host: Plugin host in which tasks and embedded models are looked up.
        trains: Whether the model is trained, and so needs memory for gradients and optimizer.

    Raises:
        UserError: the tasks' default models differ or there is none; no such model; a recommended value that is not
            allowed.
    """
    user, chosen = _user_layer(config, sources or {}), Layer()
    choices: list[ResolvedDefault] = []

    def choose(name: str, value: object, why: str, *, is_ordinary: bool = False) -> None:
        user.drop(name)  # either null or a task spec without the added options
        chosen.put(name, value, Source("chosen", why))
        shown = value if isinstance(value, str) else format_value(value)
        choices.append(ResolvedDefault(name, shown, why, is_ordinary))

    prepare(offline=bool(config.offline))
    model = config.model
    if model is None:
        model, why = choose_model(config.task, host)
        choose("model", model, why)
    for name, task in (("task", config.task), ("eval.task", config.eval.task)):
        adapted, why = task_for_model(task, model, host) if task is not None else ("", "")
        if why:
            choose(name, adapted, why)
    profiles = profiles_of(model, config.task, host)

    def merged() -> LoadedConfig:
        return build([*with_recipe([user, chosen]), *(profile.layer() for profile in profiles)])

    if trains:
        profiles = (*_learning_rate(merged(), model, host), *profiles)
    loaded = merged()
    hardware = hardware_of(loaded.config, host)
    if hardware is not None and hardware.accelerator.backend != "cpu":
        shape = model_shape(model, host)
        profiles = (*profiles, hardware_profile(loaded, hardware, shape))
        loaded = merged()
        if shape is not None and trains:
            check_fits(loaded, hardware, shape)
    choices += [*_preset_choices(loaded), *_recipe_choices(loaded, profiles), *_alias_choices(loaded)]
    choices += _profile_choices(loaded, profiles, user)
    for name, value, why in _left_out(loaded, profiles, user.values):
        choose(name, value, why)
    ordinary = {(name, value) for name, value, _ in _dependent_defaults(build([]))}
    for name, value, why in _dependent_defaults(loaded):
        choose(name, value, why, is_ordinary=(name, value) in ordinary)
    loaded = merged()
    return ResolvedConfig(loaded.config, loaded.sources, tuple(choices))


def choose_model(task: Tasks, host: PluginHost | None = None) -> tuple[str, str]:
    """Return the default model of a task or mixture, the smallest embedded one where no task has any.

    Returns:
        (model, reason).

    Raises:
        UserError: the tasks have different default models, or only some have one.
    """
    named = name_tasks(task, host)
    bound = [bind(spec, host) for spec in parse_task_specs(named.spec)]
    defaults = {each.name: each.task.default_model for each in bound}
    models = sorted({model for model in defaults.values() if model is not None})
    tasks = ", ".join(defaults)
    if not models:
        if (reason := offline_reason()) and (cached := cached_models()):
            return cached[0], f"no --model given, {tasks} has no default, {reason}: the last used one in the cache"
        return FALLBACK_MODEL, f"no --model given and {tasks} has no default; for a real one: --model {EXAMPLE_MODEL}"
    if len(models) > 1 or None in defaults.values():
        listed = ", ".join(f"{name} -> {model or 'none'}" for name, model in defaults.items())
        raise UserError(f"these tasks have different default models ({listed}). Say which: --model {models[0]}.")
    return models[0], f"no --model given: the default of {tasks}; for a real one: --model {EXAMPLE_MODEL}"


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
    start, of_runs = _embedded_start(model, host)
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


def _embedded_start(model: str, host: PluginHost) -> tuple[EmbeddedModel | None, dict[str, Mapping[str, str]]]:
    """The embedded model that a model is, or from which the run started that saved it as a checkpoint.

    Returns:
        (embedded model, task -> its options in the last run on it).
    """
    of_runs: dict[str, Mapping[str, str]] = {}
    for _ in range(MAX_RUNS):
        source = model_source(model, host)
        if source.kind == "embedded":
            return host.model(model), of_runs
        run = run_of(Path(source.location)) if source.kind in ("folder", "adapter") else None
        if run is None:
            break
        config = read_mapping(run / "config.yaml")
        with suppress(UserError):  # a file of another program
            of_runs = {spec.name: spec.options for spec in parse_task_specs(str(config.get("task")))} | of_runs
        model = str(config.get("model"))
        if model not in host.models() and not Path(model).is_dir():
            break
    return None, {}


def profiles_of(model: str, task: Tasks, host: PluginHost | None = None) -> tuple[Profile, ...]:
    """Return the values recommended for a model: an embedded one's on a task, or those that its warm start recorded.

    Raises:
        UserError: there is no such model or task; names the closest match.
    """
    host = host or default_host()
    source = model_source(model, host)
    if source.kind == "folder" and (values := recorded(Path(source.location))):
        return (Profile(WARM_START, values, f"recommended by {RECORD} in the model's folder"),)
    embedded = host.model(model) if source.kind == "embedded" else None
    if embedded is None:
        return ()
    names = {bind(spec, host).name for spec in parse_task_specs(name_tasks(task, host).spec)}
    name = names.pop() if len(names) == 1 else None
    if not (values := embedded.recommended(name)):
        return ()
    on = f" on {name}" if name in embedded.task_defaults else ""
    return (Profile(model, values, f"recommended for the embedded model {model}{on}"),)


def _learning_rate(loaded: LoadedConfig, model: str, host: PluginHost | None) -> tuple[Profile, ...]:
    """Return the learning rate for the size of a model, where nothing else says one and the size is known.

    What the record of a warm start says is for training all weights.
    """
    config, source = loaded.config, loaded.sources["trainer.learning_rate"]
    is_adapter = config.lora.enabled or config.adapter is not None or model_source(model, host).kind == "adapter"
    is_open = source == DEFAULT or (is_adapter and source.kind == "profile" and source.where.startswith(WARM_START))
    if not is_open or (shape := model_shape(model, host)) is None:
        return ()
    trained = "an adapter trained" if is_adapter else "all trained"
    why = f"for {shape.parameters / 1e6:,.4g} M parameters, {trained}; set trainer.learning_rate for another"
    values = {"trainer.learning_rate": learning_rate(shape.parameters, is_adapter=is_adapter)}
    return (Profile("model size", values, why),)


def _user_layer(config: RunConfig, sources: Mapping[str, Source]) -> Layer:
    """Return the values that the user set; each argument of a variant has its own source."""
    layer = Layer()
    for name, value in explicit_values(config).items():
        source = sources.get(name, Source("python"))
        values = {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
        for key, inner in values.items():
            layer.put(key, inner, sources.get(key, source))
    return layer


def _profile_choices(loaded: LoadedConfig, profiles: Iterable[Profile], user: Layer) -> list[ResolvedDefault]:
    """Return what each profile sets."""
    choices = []
    for profile in profiles:
        layer = profile.layer()
        in_effect = [
            f"{name}={format_value(value)}"
            for name, value in layer.values.items()
            if name not in user.values and loaded.sources.get(name) == layer.sources[name]
        ]
        if in_effect:
            choices.append(ResolvedDefault("settings", ", ".join(in_effect), profile.why))
    return choices


def _preset_choices(loaded: LoadedConfig) -> list[ResolvedDefault]:
    """The preset, and what it sets."""
    name = loaded.config.preset
    keys_set = [key for key, source in loaded.sources.items() if source.kind == "preset"]
    if name is None or not keys_set:
        return []
    listed = ", ".join(f"{key}={format_value(_value(loaded.config, key))}" for key in keys_set)
    return [ResolvedDefault("preset", name, f"{listed}: {SOURCE}")]


def _recipe_choices(loaded: LoadedConfig, profiles: Iterable[Profile]) -> list[ResolvedDefault]:
    """Return the recipe, and the recommendations for the model that it overrides."""
    name = loaded.config.recipe
    keys_set = {key for key, source in loaded.sources.items() if source.kind == "recipe"}
    if name is None or not keys_set:
        return []  # the configuration of an earlier run states every value itself
    choices = [ResolvedDefault("recipe", name, f"{recipe(name).source}; it says {len(keys_set)} settings")]
    overridden = [
        f"{key}={format_value(_value(loaded.config, key))}, not {format_value(value)}"
        for profile in profiles
        for key, value in profile.values.items()
        if key in keys_set and _value(loaded.config, key) != value
    ]
    if overridden:
        above = f"the recipe {name} stands above what is recommended for the model {loaded.config.model}"
        choices.append(ResolvedDefault("settings", name, f"{above}: {'; '.join(overridden)}"))
    return choices


def _alias_choices(loaded: LoadedConfig) -> list[ResolvedDefault]:
    """Return the settings that were given under another name."""
    return [
        ResolvedDefault(
            key,
            format_value(_value(loaded.config, key)),
            f"given by the name {source.alias}, which is this setting here",
        )
        for key, source in loaded.sources.items()
        if source.alias
    ]


def _value(config: RunConfig, name: str) -> object:
    """Return the value of a dotted key, or of an argument of a variant."""
    value: object = config
    for part in name.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


def _left_out(
    loaded: LoadedConfig, profiles: Iterable[Profile], user_values: Mapping[str, object]
) -> Iterable[tuple[str, None, str]]:
    """Yield recommended values that other settings make needless: (key, None, reason)."""
    reasons = needless(lambda name: _value(loaded.config, name))
    for profile in profiles:
        for name, value in profile.values.items():
            if name in reasons and name not in user_values and _value(loaded.config, name) is None:
                yield name, None, f"{reasons[name]}; {format_value(value)} is {profile.why}"


def _dependent_defaults(loaded: LoadedConfig) -> Iterable[tuple[str, object, str]]:
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


def _clip(loaded: LoadedConfig) -> Iterable[tuple[str, object, str]]:
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


def _correction(loaded: LoadedConfig) -> Iterable[tuple[str, object, str]]:
    """Yield `rollout_correction` where the sampler's weights or kernels are not the trainer's, if it is not set."""
    config = loaded.config
    trainer, engine = config.trainer, config.engine.name
    if trainer.backend != "native" or loaded.sources["trainer.rollout_correction"] != DEFAULT:
        return
    if trainer.off_policy_steps:
        why = "trainer.off_policy_steps=1: a batch is sampled by weights of one step before (importance sampling)"
        yield "trainer.rollout_correction", "token_truncate", why
    elif registry.get("engine", engine).has_own_numerics:
        why = f"engine.name={engine} computes log-probs with kernels of its own (truncated importance sampling)"
        yield "trainer.rollout_correction", "token_truncate", why
    elif config.engine.args.get("dtype") == "bfloat16" and config.precision != "bfloat16":
        why = "engine.args.dtype=bfloat16: samples are rounded more than training (truncated importance sampling)"
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
