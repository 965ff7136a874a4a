"""`grpo profiles`: the GPU profiles, and the one that fits this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from grpo_sdk.cli.options import HELP, JSON
from grpo_sdk.display.text import err, format_value, print_json, print_out, table, visible
from grpo_sdk.errors import ExitCode

if TYPE_CHECKING:
    from grpo_sdk.plugins.gpu_profile import GpuProfile

EXAMPLE_MODELS = (
    "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen2.5-3B-Instruct",
    "Qwen/Qwen2.5-7B-Instruct",
)
"""Sizes that are often trained; their shapes are known without a network."""

EXAMPLES = """\b
Examples:
  grpo profiles
  grpo profiles a100 --model Qwen/Qwen2.5-1.5B-Instruct
  grpo profiles --json
"""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("name", required=False)
@click.option("--model", metavar="MODEL", help="Show the settings for this model; by default for some sizes.")
@JSON
def profiles(name: str | None, model: str | None, as_json: bool) -> int:
    """List the GPU profiles, or show what one sets; without a NAME, that of this machine.

    A profile ranks below the command line, the environment, files, a preset, a recipe and the recommendations for an
    embedded model. `profile=NAME` takes another, `profile=null` none.
    """
    from grpo_core.profiles import accelerator as accelerators
    from grpo_core.profiles import gpu, platforms
    from grpo_core.profiles.model_shape import model_shape
    from grpo_sdk.plugins.host import default_host
    from grpo_sdk.plugins.models import model_source

    if model is not None:
        model_source(model)  # refuses what is no model, which is no property of a profile
    for report in default_host().reports():
        if report.error:
            err().print(f"not loaded: {visible(report.error)}", style="yellow", soft_wrap=True, markup=False)
    every, platform = gpu.profiles(), platforms.detect()
    fitting, why = gpu.matching(accelerators.detect(), every.values())
    shown = gpu.named(name) if name else fitting
    settings = {each: settings_for(shown.name, each) for each in ([model] if model else EXAMPLE_MODELS)}
    if as_json:
        facts = {
            each.name: {name: fact for name, fact in asdict(each).items() if name != "name"} for each in every.values()
        }
        found = {"profile": fitting.name, "why": why, "platform": asdict(platform)}
        print_json({**found, "profiles": facts, "settings": {shown.name: settings}})
        return ExitCode.DONE
    rows = (
        (each.name, "here" if each.name == fitting.name else "", " ".join(each.capabilities), memory_range(each),
         each.precision, each.description)
        for each in every.values()
    )  # fmt: skip
    print_out(table("profile", "", "capability", "memory", "precision", "for", rows=rows))
    print_out("", f"this machine: {visible(fitting.name)}, {visible(why)}")
    print_out(f"platform: {platform.name}, {visible(str(platform))}", "")
    sized = []
    for each, values in settings.items():
        text = values if isinstance(values, str) else "  ".join(f"{key}={format_value(values[key])}" for key in values)
        sized.append((each, (text or "nothing") + ("" if model_shape(each) else "  (its size is not known)")))
    print_out(table(f"with {shown.name}", "sets", rows=sized))
    return ExitCode.DONE


def settings_for(profile: str, model: str, **more: Any) -> dict[str, Any] | str:
    """What a profile sets for a model: dotted key -> value; where the model does not fit, the reason.

    Args:
        profile: Name of the profile.
        model: As `--model` takes it.
        **more: Settings that are given, such as `lora.enabled`.
    """
    from grpo_core.config import flatten, read_config, resolve
    from grpo_sdk.errors import UserError

    settings = read_config({"model": model, "profile": profile, **more}, environ={}, dotenv_path=None)
    try:
        resolved = resolve(settings)
    except UserError as error:
        return str(error)
    values = flatten(resolved.config)
    of_profile = {key for key, source in resolved.sources.items() if source.where.startswith(f"{profile}:")}
    return {key: values[key] for key in sorted(of_profile) if resolved.sources[key].kind == "profile"}


def memory_range(profile: GpuProfile) -> str:
    """The memory that a profile fits, in words."""
    highest = profile.max_memory_gib
    if not profile.min_memory_gib and highest is None:
        return "any"
    return f"{profile.min_memory_gib:g} GiB on" if highest is None else f"{profile.min_memory_gib:g}-{highest:g} GiB"
