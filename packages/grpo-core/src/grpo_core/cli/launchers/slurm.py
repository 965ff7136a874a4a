"""`grpo launch slurm`: a run, or an array of runs, as a job of a cluster."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from grpo_core.cli.launchers.words import PASSED_ON, RUN_OPTIONS, RunWords, check_tasks, read_run_words
from grpo_core.launch.slurm import SlurmOptions, check_sbatch_options, read_minutes, slurm_script, submit_runs
from grpo_core.training.rank_shares import check_shares
from grpo_sdk.cli.options import COUNT
from grpo_sdk.display.invocation import command
from grpo_sdk.display.text import print_json, print_out, table
from grpo_sdk.errors import UserError
from grpo_sdk.paths import check_makeable

EXAMPLES = """\b
Examples:
  grpo launch slurm --partition gpu --time 4:00:00 --task math.gsm8k --model Qwen/Qwen2.5-0.5B-Instruct
  grpo launch slurm --nodes 2 --gpus 8 --config run.yaml trainer.sharding=full
  grpo launch slurm --seeds 1,2,3 --each trainer.beta=0 --each trainer.beta=0.05 --config run.yaml
"""

MAX_RUNS = 1000
"""Runs of an array; a cluster's own limit (MaxArraySize) is 1001 by default."""

_MEMORY = re.compile(r"\d{1,12}[KMGT]?", re.ASCII | re.IGNORECASE)


@click.command(epilog=EXAMPLES, context_settings=PASSED_ON)
@RUN_OPTIONS
@click.option("--partition", metavar="NAME", help="Partition.")
@click.option("--account", metavar="NAME", help="Account that is charged.")
@click.option("--qos", metavar="NAME", help="Quality of service.")
@click.option("--time", "limit", default="4:00:00", show_default=True, metavar="LIMIT", help="Limit of each start.")
@click.option("--nodes", type=COUNT, default=1, show_default=True, metavar="N", help="Nodes of each run.")
@click.option(
    "--gpus", type=click.IntRange(0, 1024), default=1, show_default=True, metavar="N", help="GPUs of each node."
)
@click.option("--cpus", type=COUNT, metavar="N", help="CPU cores of each node.")
@click.option("--mem", metavar="SIZE", help="Memory of each node, such as 64G.")
@click.option("--job-name", default="grpo", show_default=True, metavar="NAME", help="Name in the queue.")
@click.option("--sbatch", multiple=True, metavar="NAME[=VALUE]", help="Another option of sbatch; repeatable.")
@click.option("--setup", multiple=True, metavar="LINE", help="Line of the script before the run; repeatable.")
@click.option("--seeds", metavar="N,…", help="An array: the run with each of these seeds.")
@click.option(
    "--each", multiple=True, metavar="WORDS", help="An array: the run with each of these settings added; repeatable."
)
@click.option("--parallel", type=COUNT, default=256, show_default=True, metavar="N", help="Runs of an array at a time.")
@click.option(
    "--save-seconds",
    type=click.IntRange(10, 65535),
    default=120,
    show_default=True,
    metavar="S",
    help="Time before the limit at which the run is told to save itself.",
)
@click.option(
    "--max-requeues",
    type=click.IntRange(0, 10_000),
    default=100,
    show_default=True,
    metavar="N",
    help="Times that a run may reach the limit and continue.",
)
@click.option("--dry-run", is_flag=True, help="Print the script, and submit nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the jobs, or the script of --dry-run, as JSON.")
@click.pass_context
def slurm(
    context: click.Context,
    /,
    words: tuple[str, ...],
    seeds: str | None,
    each: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Train on a SLURM cluster: the run saves itself before its time limit, is requeued and continues.

    Each run has its own folder, slurm/JOB in the output folder, with its log. Several nodes are one run, by torchrun.
    --seeds and --each make an array, one job for each combination. Other options of sbatch are given by --sbatch.
    """
    if seeds is not None and any(word.partition("=")[0] == "--seed" for word in words):
        raise UserError(f"--seeds {seeds} gives each run its seed: leave out --seed.")
    variants = [*itertools.product(_seed_words(seeds), _each_words(each))]
    if len(variants) > MAX_RUNS:
        raise UserError(f"--seeds and --each make {len(variants)} runs; an array has at most {MAX_RUNS}.")
    runs = [read_run_words([*words, *seed, *more], context) for seed, more in variants]
    options = slurm_options(context.params, runs[0].nproc)
    _check(runs, options)
    output_dir = Path(runs[0].config.output_dir).absolute()
    if dry_run:
        script = slurm_script([each.words for each in runs], options, output_dir)
        if as_json:
            print_json({"script": script, "runs": [each.words for each in runs]})
        else:
            click.echo(script)
        return
    _submit(runs, options, output_dir, as_json=as_json)


def slurm_options(params: Mapping[str, Any], nproc: int | None = None) -> SlurmOptions:
    """Return what the options of this command ask SLURM for.

    Args:
        params: Values of the command's parameters, by name.
        nproc: Processes of each node; by default one for each GPU.

    Raises:
        UserError: an option has a value that SLURM would not take.
    """
    named = {name: params[name.replace("-", "_")] for name in ("partition", "account", "qos", "mem", "job-name")}
    if named["mem"] is not None and not _MEMORY.fullmatch(named["mem"]):
        raise UserError(f"--mem {named['mem'][:40]!r}: give a number with K, M, G or T, as in 64G; without, in MiB.")
    further = dict(_sbatch_option(word) for word in params["sbatch"])
    check_sbatch_options(further)
    options = SlurmOptions(
        minutes=read_minutes(params["limit"]),
        nodes=params["nodes"],
        gpus=params["gpus"],
        processes=nproc or max(1, params["gpus"]),
        save_seconds=params["save_seconds"],
        max_requeues=params["max_requeues"],
        parallel=params["parallel"],
        setup=[_line(text, "--setup") for text in params["setup"]],
        sbatch={
            **{name: _line(value, f"--{name}") for name, value in named.items() if value is not None},
            **({} if params["cpus"] is None else {"cpus-per-task": str(params["cpus"])}),
            **further,
        },
    )
    if options.save_seconds >= 60 * options.minutes:
        raise UserError(
            f"--save-seconds {options.save_seconds} must be less than --time, {60 * options.minutes} seconds."
        )
    return options


def _check(runs: Sequence[RunWords], options: SlurmOptions) -> None:
    """Report a mistake before the job waits in a queue for it."""
    processes = ("nproc", [each.nproc for each in runs])
    folders = ("output_dir", [each.config.output_dir for each in runs])
    for name, given in (processes, folders):
        values: list[int | str | None] = [*dict.fromkeys(given)]
        if len(values) > 1:
            listed = " and ".join("its default" if value is None else str(value) for value in values)
            raise UserError(f"--each: {name} is {listed}, but all runs of an array have one. Submit them separately.")
    for each in runs:
        check_tasks(each.config)
        check_shares(each.config.trainer, options.nodes * options.processes, options.processes)


def _submit(runs: Sequence[RunWords], options: SlurmOptions, output_dir: Path, *, as_json: bool) -> None:
    check_makeable(output_dir, f"--output-dir {output_dir}")
    jobs = submit_runs([each.words for each in runs], options, output_dir)
    submitted: list[dict[str, Any]] = [
        {"job": job.job_id, "folder": job.paths.folder, "log": job.paths.stdout, "words": run.words}
        for job, run in zip(jobs, runs, strict=True)
    ]
    if as_json:
        print_json(submitted)
        return
    first, job = jobs[0].paths, jobs[0].job_id.partition("_")[0]
    rows = ((each["job"], str(each["log"]), f"grpo {shlex.join(each['words'])}") for each in submitted)
    print_out(
        table("job", "log", "command", rows=rows),
        "",
        f"next      squeue --jobs {job}   tail -F {shlex.quote(str(first.stdout))}   scancel {job}",
        f"          {command('runs', str(first.folder))}",
    )
    if any(each.config.trainer.save_every is None and each.config.trainer.save_minutes is None for each in runs):
        print_out(
            "note      trainer.save_minutes is null: a run is saved at the time limit and at preemption; after the "
            "failure of a node it begins again"
        )


def _seed_words(seeds: str | None) -> list[list[str]]:
    """The words that each seed adds.

    Raises:
        UserError: something between the commas is no seed.
    """
    if seeds is None:
        return [[]]
    numbers = [seed.strip() for seed in seeds.split(",")]
    if not all(number.isascii() and number.isdigit() for number in numbers) or len({*numbers}) < len(numbers):
        raise UserError(f"--seeds {seeds[:60]!r}: give different whole numbers, separated by commas.")
    return [["--seed", number] for number in numbers]


def _each_words(each: Sequence[str]) -> list[list[str]]:
    """The words of each `--each`.

    Raises:
        UserError: a quote is not closed.
    """
    try:
        return [shlex.split(text) for text in each] or [[]]
    except ValueError as error:
        raise UserError(f"--each: {error}: quote it as in --each 'trainer.beta=0.05 lora.enabled=true'.") from None


def _sbatch_option(word: str) -> tuple[str, str | bool]:
    name, equals, value = word.removeprefix("--").partition("=")
    _line(value, "--sbatch")
    if not name or not all(part.isalnum() for part in name.split("-")):
        raise UserError(f"--sbatch {word[:60]!r}: give NAME=VALUE as in --sbatch constraint=a100, or NAME alone.")
    return name, value if equals else True


def _line(text: str, option: str) -> str:
    if not text.isprintable():
        raise UserError(f"{option} {text[:60]!r}: control characters and line breaks are not allowed in the script.")
    return text
