"""`grpo models`: list the models that ship inside the installed packages."""

from __future__ import annotations

from collections.abc import Mapping

import click

from grpo_sdk.cli.options import HELP, JSON
from grpo_sdk.display.text import format_value, print_json, print_out, table


@click.command(context_settings=HELP)
@JSON
def models(as_json: bool) -> None:
    """List the embedded models: names that --model takes without a download."""
    from grpo_sdk.plugins.host import default_host

    embedded = default_host().models()
    if as_json:
        print_json(
            {
                name: {
                    "description": model.description,
                    "path": model.path,
                    "defaults": dict(model.defaults),
                    "task_options": dict(model.task_options),
                    "task_defaults": {task: dict(values) for task, values in model.task_defaults.items()},
                }
                for name, model in sorted(embedded.items())
            }
        )
        return
    if not embedded:
        print_out("No embedded model is installed. --model takes a hub id, a folder (./model) or a .gguf file.")
        return
    rows = []
    for name, model in sorted(embedded.items()):
        on_tasks = (f"; on {task}: {_listed(values)}" for task, values in model.task_defaults.items())
        options = ", ".join(f"{name}={value}" for name, value in model.task_options.items())
        rows.append((name, model.description, "".join((_listed(model.defaults), *on_tasks)), options))
    print_out(table("model", "description", "recommended settings", "task options", rows=rows))


def _listed(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{key}={format_value(value)}" for key, value in settings.items())
