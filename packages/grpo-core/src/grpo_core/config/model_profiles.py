"""The model of a run, and what is recommended for it: by a plugin, the record of its warm start, and its size."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from grpo_core.checkpoints import run_of
from grpo_core.config.layers import DEFAULT, LoadedConfig
from grpo_core.config.sources import Profile
from grpo_core.profiles.model_shape import model_shape
from grpo_core.profiles.recommended import RECORD, learning_rate, recorded
from grpo_sdk.errors import UserError
from grpo_sdk.hub.cache import cached_models
from grpo_sdk.hub.network import offline_reason
from grpo_sdk.plugins.facts import EmbeddedModel
from grpo_sdk.plugins.host import PluginHost, default_host
from grpo_sdk.plugins.models import model_source
from grpo_sdk.plugins.task_objects import Tasks, name_tasks
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.records.yaml_text import read_mapping
from grpo_sdk.task.spec import parse_task_specs

FALLBACK_MODEL = "tiny"
"""Model of a run that names none, of tasks without a default: it is here, and its first batch shows what it knows."""

EXAMPLE_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
"""Model named in advice: small, instruction-tuned, ungated."""

MAX_RUNS = 20
"""Runs, each from a checkpoint of the one before, through which the first model is looked for."""

WARM_START = "warm start"
"""Name of the profile that a model's record gives."""


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


def embedded_start(model: str, host: PluginHost) -> tuple[EmbeddedModel | None, dict[str, Mapping[str, str]]]:
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


def size_profile(loaded: LoadedConfig, model: str, host: PluginHost | None) -> Profile | None:
    """Return the learning rate for the size of a model, where nothing else says one and the size is known.

    What the record of a warm start says is for training all weights.
    """
    config, source = loaded.config, loaded.sources["trainer.learning_rate"]
    is_adapter = config.lora.enabled or config.adapter is not None or model_source(model, host).kind == "adapter"
    is_open = source == DEFAULT or (is_adapter and source.kind == "profile" and source.where.startswith(WARM_START))
    if not is_open or (shape := model_shape(model, host)) is None:
        return None
    trained = "an adapter trained" if is_adapter else "all trained"
    why = f"for {shape.parameters / 1e6:,.4g} M parameters, {trained}; set trainer.learning_rate for another"
    values = {"trainer.learning_rate": learning_rate(shape.parameters, is_adapter=is_adapter)}
    return Profile("model size", values, why)
