"""`grpo warm-start`: supervised fine-tuning on gold completions."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from grpo_core.cli.settings import only_results_on_stdout
from grpo_core.profiles.accelerator import check_device
from grpo_core.training.warm_start_options import WarmStartOptions
from grpo_sdk.cli.options import COUNT, HELP, RATE, SEED
from grpo_sdk.display.invocation import command
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err, print_json, visible
from grpo_sdk.errors import ExitCode
from grpo_sdk.paths import user_path_text

EXAMPLES = """\b
Examples:
  grpo warm-start --task math.arithmetic --preset tiny --out ./warm
"""


@click.command("warm-start", epilog=EXAMPLES, context_settings={**HELP, "show_default": True})
@click.option("--task", required=True, metavar="TASK", help="Task or mixture; weights are the shares of examples.")
@click.option("--out", "folder", required=True, metavar="FOLDER", help="Receives the model; must be new or empty.")
@click.option("--model", metavar="MODEL", help="Model to start from.")
@click.option(
    "--add-layers",
    type=click.IntRange(min=0),
    default=0,
    help="Layers that the --model gets first; it computes the same until they are trained.",
)
@click.option("--preset", metavar="tiny|medium|deep|small", help="Start from a new model of this shape.")
@click.option("--vocab-size", type=COUNT, help="Train a tokenizer of this size for a new model; else it reads bytes.")
@click.option("--tokenizer", metavar="MODEL", help="Use the tokenizer of this model or folder for a new model.")
@click.option("--max-steps", default=1000, type=COUNT, help="Optimizer steps.")
@click.option(
    "--until",
    type=click.FloatRange(0, 1, min_open=True),
    help="End when this share of held-out completions, sampled at temperature 1, is solved; 0.25 is a good start.",
)
@click.option("--batch-size", default=64, type=COUNT, help="Examples per step.")
@click.option("--learning-rate", default=1e-3, type=RATE, help="Peak learning rate.")
@click.option(
    "--lr-scheduler",
    "lr_scheduler_type",
    default="constant",
    type=click.Choice(["cosine", "constant"]),
    help="Learning rate after the warm-up. GRPO learns from a model that ended at a constant one; cosine ends at 0.",
)
@click.option("--seed", default=0, type=SEED, help="Seed of new weights, order and evaluation.")
@click.option("--eval-size", default=512, type=COUNT, help="Held-out rows per task.")
@click.option(
    "--precision",
    default="float32",
    type=click.Choice(["float32", "bfloat16"]),
    help="Precision of matrix products in training; bfloat16 is faster where supported.",
)
@click.option(
    "--optimizer",
    default="adamw",
    type=click.Choice(["adamw", "muon"]),
    help="adamw, or muon for the matrices of the layers, which often needs fewer steps with a new model.",
)
@click.option(
    "--compile",
    is_flag=True,
    help="Compile the layers first, with torch.compile: takes a minute or two, and pays in longer trainings.",
)
@click.option(
    "--save-dtype",
    default="float32",
    type=click.Choice(["float32", "float16", "bfloat16"]),
    help="Type of the written weights; they are trained in float32.",
)
@click.option(
    "--save-every",
    type=COUNT,
    metavar="STEPS",
    help="Write the model so far after so many steps, for a kill or an outage.  [default: every 10 minutes]",
)
@click.option(
    "--workers",
    default=1,
    type=COUNT,
    help="Processes that make the examples of as many tasks at once, and then batches.",
)
@click.option("--device", default="auto", metavar="DEVICE", help="auto, cpu, cuda, cuda:N or mps.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON, alone on stdout.")
@click.option("--quiet", is_flag=True, help="No progress.")
def warm_start(folder: str, as_json: bool, quiet: bool, **options: Any) -> ExitCode:
    """Fine-tune a model on a task's gold completions by TRL (pip install 'grpo-core[trl]'), as a start for GRPO."""
    from grpo_core.cli.evaluate import print_results

    task, folder, words = options.pop("task"), user_path_text(folder, "--out"), shlex.join(["grpo", *sys.argv[1:]])
    with Waiting(err(), quiet=quiet) as progress:
        WarmStartOptions(**options).check(task, folder)  # before torch is imported, which takes seconds
        check_device(options["device"])
        with only_results_on_stdout((progress,)):
            from grpo_core.training import warm_start as training

            record = training.warm_start(task, folder, command=words, callbacks=(progress,), **options)
        model = folder if folder.startswith(("/", ".")) else f"./{folder}"
        if record["interrupted"]:
            left = f"stopped after {record['steps']} of {options['max_steps']} steps, and not evaluated"
            progress.say("saved", [visible(folder), f"{left}; go on from it: --model {visible(model)} --out …"])
        else:
            next_command = command("run", "--task", task, "--model", model)
            progress.say("saved", [visible(folder), f"next: {visible(next_command)}"])
    if as_json:
        print_json(record)
    else:
        if not record["interrupted"]:
            print_results(record["evaluation"])
        click.echo(folder)
    return ExitCode.INTERRUPTED if record["interrupted"] else ExitCode.DONE
