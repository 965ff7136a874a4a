"""`grpo fetch`: fill the cache before a run on a machine without a network."""

from __future__ import annotations

from pathlib import Path

import click

from grpo_sdk.cli.options import HELP, JSON
from grpo_sdk.display.text import err, print_json, visible
from grpo_sdk.errors import ExitCode, UserError, first_line
from grpo_sdk.task.spec import TaskSpec

EXAMPLES = """\b
Examples:
  grpo fetch Qwen/Qwen2.5-0.5B-Instruct math.gsm8k
  grpo fetch HuggingFaceTB/SmolLM2-135M-Instruct 'code.mbpp?split=test'
"""

WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
NEEDED = ("*.json", "*.txt", "*.model", "*.jinja", *WEIGHTS)
"""What a model is loaded from: never a pickle, never code."""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("names", nargs=-1, required=True, metavar="MODEL|TASK...")
@JSON
def fetch(names: tuple[str, ...], as_json: bool) -> int:
    """Download models (owner/name) and the rows of tasks (plugin.task) into the cache.

    A run on a machine that shares the cache needs no network then. Nothing is downloaded twice.
    """
    from grpo_core.cli.settings import only_results_on_stdout
    from grpo_sdk.display.progress import Waiting
    from grpo_sdk.hub.network import offline_reason
    from grpo_sdk.plugins.models import model_source

    models = [name for name in names if "/" in name.partition("?")[0]]
    for name in models:
        if model_source(name).kind != "hub":
            raise UserError(f"{name}: only a model of the hub is downloaded (owner/name); this one is here already.")
    tasks = [spec for name in names if name not in models for spec in _task_specs(name)]
    if why := offline_reason():
        raise UserError(f"nothing can be downloaded: {why}.")
    fetched: dict[str, str] = {}
    with Waiting(err()) as display:
        for name in models:  # the hub's own bars show the download
            fetched[name] = str(_fetch_model(name))
        for spec in tasks:
            with display.ticking(f"reading {spec}"), only_results_on_stdout():
                fetched[str(spec)] = _fetch_task(spec)
    if as_json:
        print_json(fetched)
    else:
        for name, found in fetched.items():
            click.echo(f"{visible(name)}: {visible(found)}")
    return ExitCode.DONE


def _fetch_model(name: str) -> Path:
    from httpx2 import HTTPError
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(NEEDED)))
    except (HTTPError, OSError, ValueError) as error:  # ValueError: an answer that is none of the hub's
        raise UserError(f"{name} cannot be downloaded: {' '.join(str(error).split())[:300]}") from error
    if not any(folder.glob("*.safetensors")):
        raise UserError(f"{name} has no safetensors weights, and others are never read.")
    return folder


def _task_specs(name: str) -> list[TaskSpec]:
    """The tasks of an argument, all of which exist."""
    from grpo_sdk.plugins.host import default_host
    from grpo_sdk.plugins.tasks import bind
    from grpo_sdk.task.spec import parse_task_specs

    if name in default_host().models():
        raise UserError(f"{name} is an embedded model, which came with its package: there is nothing to download.")
    specs = list(parse_task_specs(name))
    for spec in specs:
        bind(spec)
    return specs


def _fetch_task(spec: TaskSpec) -> str:
    """Load every split of a task, which downloads what it is made of."""
    from grpo_sdk.errors import DataError
    from grpo_sdk.plugins.tasks import bind

    counts = []
    splits = [spec.options["split"]] if "split" in spec.options else ["train", "test"]
    for split in splits:
        try:
            rows = bind(spec.with_options(split=split)).rows()
        except DataError as error:
            counts.append(f"{split}: {first_line(error)}")
        else:
            counts.append(f"{len(rows)} rows of {split}")
    return ", ".join(counts)
