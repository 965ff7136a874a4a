"""`grpo sweep`: the same run with other settings, and what comes out of it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from grpo_sdk.cli.options import HELP, JSON, only_one
from grpo_sdk.display.invocation import command, program
from grpo_sdk.display.lines import fold
from grpo_sdk.display.text import print_json, print_out, table, visible
from grpo_sdk.errors import ExitCode, UserError
from grpo_sdk.files import replace_file
from grpo_sdk.paths import check_makeable

if TYPE_CHECKING:
    from grpo_core.launch.slurm import SlurmOptions
    from grpo_core.launch.sweep.folder import SweepRun
    from grpo_core.launch.sweep.planning import Sweep
    from grpo_core.launch.sweep.summary import Configuration, Summary
    from grpo_sdk.intervals import Interval

EXAMPLES = """\b
Examples:
  grpo sweep trainer.learning_rate=1e-5,3e-5 seed=0,1,2 trainer.max_steps=100
  grpo sweep sweep.yaml --jobs 4
  grpo sweep sweeps/sweep_3f2a9c01 --show
"""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("words", nargs=-1, metavar="[FILE|FOLDER] [KEY=A,B,C]...")
@click.option("--config", "config_file", metavar="FILE", help="YAML file with settings of every run, as of grpo run.")
@click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Runs at a time.")
@click.option("--output-dir", metavar="FOLDER", help="Folder of the sweep.  [default: sweeps/NAME, by its settings]")
@click.option("--metric", metavar="NAME", help="Metric to compare.  [default: solved_rate, held-out]")
@click.option("--goal", type=click.Choice(["max", "min"]), help="Whether a high or a low metric is best.")
@click.option("--baseline", type=click.IntRange(1), metavar="N", help="Configuration to compare with.  [default: 1]")
@click.option("--slurm", metavar="OPTIONS", help="Submit an array to SLURM; OPTIONS are those of grpo launch slurm.")
@click.option("--show", "is_shown", is_flag=True, help="Print the results so far, and start nothing.")
@click.option("--dry-run", is_flag=True, help="Print the runs with their commands, and stop.")
@JSON
def sweep(
    words: tuple[str, ...],
    jobs: int,
    baseline: int | None,
    slurm: str | None,
    is_shown: bool,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Run every combination of some settings, and compare the results.

    KEY=A,B,C gives a setting several values, KEY=VALUE one; seed=0,1,2 runs each configuration with each seed. A FILE
    may also list configurations, draw them at random or have Optuna propose them. Each run is a process of its own; one
    that fails is a row of the results, and the others continue. The same command again runs what is missing.
    """
    from grpo_core.launch.sweep.planning import check, read_sweep

    only_one({"--show": is_shown, "--dry-run": dry_run, "--slurm": slurm})
    chosen = read_sweep(words, **given)
    from grpo_core.launch.sweep.metrics import DEFAULT, goal_of  # SciPy takes seconds: not before a wrong file is told

    goal_of(chosen.definition.metric or DEFAULT, chosen.definition.goal)
    if is_shown:
        if chosen.folder.plan is None:
            raise UserError(f"{chosen.folder.path}: this sweep has not begun.")
        return _finish(chosen, chosen.folder.plan.runs, baseline, is_saved=False, as_json=as_json)
    options = None if slurm is None else _slurm_options(chosen, slurm, jobs)
    processes = options.processes if options else 1
    if not _is_done(chosen):
        check(chosen, processes * (options.nodes if options else 1), processes)
    if baseline is not None and baseline > (count := _count(chosen)):
        raise UserError(f"--baseline {baseline}: configurations are numbered from 1 to {count}.")
    if given["output_dir"] is not None:
        check_makeable(chosen.folder.path, f"--output-dir {given['output_dir']}")
    if dry_run:
        _show_runs(chosen, as_json=as_json)
        return ExitCode.DONE
    if options is not None:
        _submit(chosen, options, as_json=as_json)
        return ExitCode.DONE
    if chosen.is_search:
        import optuna  # noqa: F401 - it may be missing, and no folder is made yet
    with chosen.folder.locked():
        is_interrupted, runs = _execute(chosen, jobs)
        code = _finish(chosen, runs, baseline, is_saved=True, as_json=as_json)
    return ExitCode.INTERRUPTED if is_interrupted else code


def _is_done(chosen: Sweep) -> bool:
    """Whether nothing is left to run, which therefore may be what this machine cannot run."""
    if chosen.folder.plan is None or chosen.is_search:
        return False
    return all(chosen.folder.status(run).is_done for run in chosen.plan())


def _count(chosen: Sweep) -> int:
    """The number of the last configuration in the folder, with those that will be added."""
    chosen.plan()
    assert chosen.folder.plan is not None
    planned = max((run.configuration for run in chosen.folder.plan.runs), default=0)
    return max(planned, chosen.definition.trials or 0) if chosen.is_search else planned


def _execute(chosen: Sweep, jobs: int) -> tuple[bool, Sequence[SweepRun]]:
    """Run what is missing; whether it was interrupted, and all runs."""
    from grpo_core.launch.sweep.array import queued
    from grpo_core.launch.sweep.processes import Jobs, Progress, Queue, threads_for

    folder = chosen.folder
    threads, why = threads_for(jobs)
    runs = chosen.plan(threads)
    folder.save()
    assert folder.plan is not None
    if folder.plan.threads != threads:
        threads, why = folder.plan.threads, "as when the sweep began"
    if chosen.is_search:
        from grpo_core.launch.sweep.search import Search

        queue: Queue = Search(folder)
        count, waiting = chosen.definition.trials or 0, set[str]()
        missing = max(0, count - len(runs)) + sum(not folder.status(run).is_done for run in runs)
    else:
        waiting = queued(folder)
        todo = [run for run in runs if not folder.status(run).is_done and run.name not in waiting]
        queue, count, missing = Queue(todo), len(runs), len(todo)
    progress = Progress(missing)
    each = "as many threads as each takes" if threads is None else f"{threads} thread{'' if threads == 1 else 's'} each"
    share = f", {each} ({why})" if why and missing else ""
    done = f", {number} of them done already" if (number := count - missing - len(waiting)) else ""
    done += f", {len(waiting)} in SLURM's queue" if waiting else ""
    progress.line("sweep", f"{folder.path}: {count} run{'s' * (count > 1)}{done}; {jobs} at a time{share}")
    is_interrupted = Jobs(folder, jobs, progress).run(queue)
    return is_interrupted, folder.plan.runs if chosen.is_search else runs


def _slurm_options(chosen: Sweep, text: str, jobs: int) -> SlurmOptions:
    """Read the options of `--slurm`."""
    from grpo_core.cli.launchers.slurm import slurm, slurm_options

    if jobs != 1:
        raise UserError(f"--jobs {jobs} is of this machine: give --slurm '--parallel {jobs}'.")
    if chosen.is_search:
        raise UserError("method: optuna chooses each run after the ones before: it cannot be an array. Use --jobs.")
    try:
        context = slurm.make_context("grpo sweep --slurm", shlex.split(text))
    except ValueError as error:
        raise UserError(f"--slurm {text[:80]!r}: {error}.") from None
    if context.params["words"] or context.params["seeds"] or context.params["each"]:
        raise UserError(
            f"--slurm {text[:80]!r}: give options of grpo launch slurm alone; settings, seeds and configurations are "
            "those of the sweep."
        )
    return slurm_options(context.params)


def _submit(chosen: Sweep, options: SlurmOptions, *, as_json: bool) -> None:
    """Submit what is missing as an array."""
    from grpo_core.launch.sweep.array import queued, submit

    folder = chosen.folder
    with folder.locked():
        waiting = queued(folder)
        todo = [run for run in chosen.plan() if not folder.status(run).is_done and run.name not in waiting]
        folder.save()
        submitted = submit(folder, todo, options) if todo else {}
    if as_json:
        print_json(submitted)
        return
    job = next(iter(submitted.values()), "").partition("_")[0]
    queue = f", {len(waiting)} are in the queue already" if waiting else ""
    what = f"job {job}: {len(todo)} run{'s' * (len(todo) > 1)}" if submitted else "nothing is left to submit"
    print_out(visible(fold("submitted" if submitted else "sweep", [f"{what}{queue}"], None)))
    print_out(visible(fold("next", [command("sweep", str(folder.path), "--show")], None)))


def _show_runs(chosen: Sweep, *, as_json: bool) -> None:
    if chosen.is_search:
        trials = chosen.definition.trials
        proposals = f"Optuna proposes {trials} configurations, each after the results of those before."
        print_json([]) if as_json else print_out(proposals)
        return
    runs = chosen.plan()
    commands = [f"{program()} {shlex.join(chosen.folder.start_words(run))}" for run in runs]
    if as_json:
        print_json([
            {**run.model_dump(mode="json"), "command": words} for run, words in zip(runs, commands, strict=True)
        ])  # fmt: skip
        return
    print_out(table("run", "command", rows=zip((run.name for run in runs), commands, strict=True)))


def _finish(chosen: Sweep, runs: Sequence[SweepRun], baseline: int | None, *, is_saved: bool, as_json: bool) -> int:
    """Print the results of all runs in the folder, and write the tables.

    Args:
        chosen: The sweep.
        runs: Runs whose states decide the exit code.
        baseline: Number of the configuration to compare with.
        is_saved: Whether the runs were to be finished, so that the tables are written.
        as_json: Whether to print JSON.
    """
    from grpo_core.launch.sweep.array import queued
    from grpo_core.launch.sweep.summary import as_data, configurations_csv, runs_csv, summarize

    definition, path = chosen.definition, chosen.folder.path
    waiting = queued(chosen.folder)
    assert chosen.folder.plan is not None
    statuses = [
        replace(status, state="queued")
        if status.run.name in waiting and status.state not in ("running", "finished")
        else status
        for status in map(chosen.folder.status, chosen.folder.plan.runs)
    ]
    summary = summarize(statuses, definition.metric, definition.goal, baseline)
    tables = {"summary.csv": configurations_csv(summary), "runs.csv": runs_csv(summary)} if is_saved else {}
    for name, text in tables.items():
        replace_file(path / name, text.encode())
    if as_json:
        print_json({"folder": str(path), **as_data(summary)})
    else:
        _print(summary)
        if tables:
            print_out(visible(f"saved     {path}: {', '.join(tables)}"))
    names = {run.name for run in runs}
    states = {status.state for status in statuses if status.run.name in names}
    if states & {"failed", "killed"}:
        return ExitCode.FAILED
    return ExitCode.INTERRUPTED if is_saved and states & {"interrupted", "pending"} else ExitCode.DONE


def _print(summary: Summary) -> None:
    several = any(len(each.runs) > 1 for each in summary.configurations)
    keys = list(dict.fromkeys(key for each in summary.configurations for key in each.settings))
    compared = [f"over {summary.baseline}", "95% interval"] if len(summary.configurations) > 1 else []
    listing = table("", *map(visible, keys), visible(summary.metric), "95% interval", *compared, "runs")
    for each in summary.configurations:
        cells = [_value(each.result), _ends(each.result)]
        if compared:
            seeds = f" ({each.difference.n} seeds)" if several and each.difference is not None else ""
            cells += [_value(each.difference, "+.3g") + seeds, _ends(each.difference)]
        style = "bold" if each.number == summary.best else None
        values = (visible(each.settings.get(key, "-")) for key in keys)
        listing.add_row(str(each.number), *values, *cells, _states(each), style=style)
    print_out(listing)
    best = next((each for each in summary.configurations if each.number == summary.best), None)
    if best is not None:
        settings = " ".join(f"{key}={value}" for key, value in best.settings.items())
        how = "highest" if summary.goal == "max" else "lowest"
        over = f", mean of {len(best.values)} seeds" if several else ""
        print_out("", visible(f"best      {best.number}: {settings}   {how} {summary.metric}{over}"))
        if summary.rivals:
            numbers = ", ".join(map(str, summary.rivals))
            print_out(f"{'':10}not known to be better than {numbers}: the 95% interval of the difference holds 0")
        elif sum(each.result is not None for each in summary.configurations) > 1:
            print_out(f"{'':10}better than every other: no 95% interval of a difference holds 0")
    unmeasured = [
        each
        for each in summary.configurations
        if each.result is None and any(status.state == "finished" for status in each.runs)
    ]
    if best is not None and unmeasured:
        numbers = ", ".join(str(each.number) for each in unmeasured)
        advice = "; eval.task=TASK evaluates every run on the same task" if "/" in summary.metric else ""
        print_out(visible(f"note      without {summary.metric}, and so not compared: {numbers}{advice}"))


def _value(interval: Interval | None, form: str = ".4g") -> str:
    return "-" if interval is None else format(interval.value, form)


def _ends(interval: Interval | None) -> str:
    if interval is None or interval.low != interval.low:
        return "-"
    return f"[{interval.low:.3g}, {interval.high:.3g}]"


def _states(configuration: Configuration) -> str:
    """The states of a configuration's runs, with the exit code and the last line of those that failed."""
    counts: Counter[str] = Counter()
    for status in configuration.runs:
        code = "" if status.exit_code in (None, 0, ExitCode.INTERRUPTED) else f" (exit code {status.exit_code})"
        line = f": {status.last_line}" if status.last_line and status.state == "failed" else ""
        counts[f"{status.state}{code}{line}"] += 1
    several = len(configuration.runs) > 1
    return "; ".join(f"{count} {text}" if several else text for text, count in counts.items())
