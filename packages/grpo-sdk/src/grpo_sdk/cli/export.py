"""`grpo export`: write a folder with which another trainer trains a task."""

from __future__ import annotations

from pathlib import Path

import click

from grpo_sdk.cli.new_project import check_new, write
from grpo_sdk.cli.options import COUNT, HELP, JSON
from grpo_sdk.display.lines import fold
from grpo_sdk.display.text import print_json, visible
from grpo_sdk.interop.export import TARGETS, Cluster, export_files, target_of

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
"""A small model that every trainer knows."""

EXAMPLES = """\b
Examples:
  grpo export verl math.gsm8k gsm8k-verl --nodes 2
  grpo export slime code.mbpp mbpp-slime --model Qwen/Qwen3-4B
  grpo export openrlhf "math.gsm8k?template=r1" gsm8k --size 1000 --test-size 200
"""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("trainer", metavar="|".join(TARGETS))
@click.argument("task", metavar="TASK")
@click.argument("folder", metavar="DIR", type=Path)
@click.option("--model", metavar="NAME", default=MODEL, show_default=True, help="Model: a name on the hub or a path.")
@click.option("--size", metavar="N", type=COUNT, help="Rows to train on.  [default: the task's]")
@click.option("--test-size", metavar="N", type=COUNT, help="Rows to test on.  [default: the task's]")
@click.option("--nodes", metavar="N", type=COUNT, default=1, show_default=True, help="Machines.")
@click.option("--gpus", metavar="N", type=COUNT, default=8, show_default=True, help="GPUs of each machine.")
@JSON
def export(
    trainer: str,
    task: str,
    folder: Path,
    model: str,
    size: int | None,
    test_size: int | None,
    nodes: int,
    gpus: int,
    as_json: bool,
) -> None:
    """Write a new folder DIR for training on TASK with another trainer: rows, configuration, command, README.

    The task's own code, installed beside the trainer, computes the rewards. The README describes what to install, how
    to start on one machine or many, and what happens to completions that could not be scored.
    """
    target = target_of(trainer)
    check_new(folder)
    files = export_files(target, task, model, Cluster(nodes, gpus), size=size, test_size=test_size)
    write(folder, files)
    if as_json:
        print_json({"folder": str(folder), "files": sorted(files), "model": model, "version": target.version})
        return

    def line(label: str, text: str) -> None:
        click.echo(visible(fold(label, [text], None)))

    line("wrote", f"{folder}: {', '.join(sorted(files))}")
    line("model", f"{model}, on {nodes * gpus} GPUs of {nodes} machine{'s' if nodes > 1 else ''}")
    line("next", f"read {folder / 'README.md'}: what to install for {target.version}, and how to start")
