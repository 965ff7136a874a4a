"""`grpo check`: the conformance checks of tasks."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from textwrap import shorten
from time import perf_counter
from typing import get_args

import click
from rich.text import Text

from grpo_sdk.check.fuzz import fuzz
from grpo_sdk.check.results import Result, Status, TaskReport
from grpo_sdk.check.table import check_task, chosen_checks
from grpo_sdk.cli.options import COUNT, HELP, JSON, SEED
from grpo_sdk.display.lines import duration
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err, print_json, print_out, table, visible
from grpo_sdk.errors import DataError, ExitCode, UserError, unknown_name
from grpo_sdk.plugins.host import default_host
from grpo_sdk.plugins.task_files import tasks_of_file
from grpo_sdk.plugins.tasks import bind, load_task
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.spec import parse_task_specs

ALL = "all"

STYLES = {"passed": "green", "warning": "yellow", "failed": "bold red", "exempt": "yellow", "not applicable": "dim"}

LABELS = {"passed": "ok", "warning": "warning", "failed": "FAILED", "exempt": "exempt", "not applicable": "-"}

IN_SUMMARY = {"passed": "ok", "warning": "with a warning"}
"""Words of the summary, where they are not those of the status."""

REASON_CHARS = 60
"""Of the reason why a task has no rows here, in the table of several tasks; --json has all of it."""

SECONDS_PER_TASK = 8
"""All checks of a task of reasoning-gym on two cores, the mean of 106."""

EXAMPLES = """\b
Examples:
  grpo check ./rhyme.py:couplet
  grpo check math --rows 4
  grpo check all -x
  grpo check all -k gold,junk
  grpo check ./rhyme.py --fuzz 200
"""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("target", metavar="TASK|PLUGIN|FILE|all")
@click.option("--rows", default=8, show_default=True, type=COUNT, help="Rows of each task that completions are for.")
@click.option("--seed", default=0, show_default=True, type=SEED, help="Seed of the choice of rows, and of damage.")
@click.option("-k", "selection", default="", metavar="NAMES", help="Only these checks, separated by commas.")
@click.option("--fuzz", "completions", type=COUNT, help="Also try N completions that should earn nothing.")
@click.option("-x", "--exitfirst", "exit_first", is_flag=True, help="Stop at the first finding.")
@JSON
def check(
    target: str,
    rows: int,
    seed: int,
    selection: str,
    completions: int | None,
    exit_first: bool,
    as_json: bool,
) -> int:
    """Check tasks for mistakes, and search them for weaknesses.

    Golds earn the most and junk nothing, scores are the same everywhere, hostile text does no harm, and more: one line
    for each check. --fuzz searches for completions that earn more than they should. The exit code is 1 if either fails.
    """
    names = chosen_checks(selection) if selection.strip() else []  # all that are about the task
    broken = not_loaded() if target == ALL else {}
    tasks = [] if broken and exit_first else tasks_of(target)
    reports: list[TaskReport] = []
    with Waiting(err()) as display, display.ticking("loading rows") as progress:
        if len(tasks) > 1:
            is_usual = completions is None and not selection
            length = f"about {duration(SECONDS_PER_TASK * len(tasks))} on two cores" if is_usual else ""
            display.say("check", [f"{len(tasks)} tasks", length])
        for index, task in enumerate(tasks):
            report_progress = progress if len(tasks) == 1 else _of_all(progress, index, len(tasks))
            try:
                report = check_task(task, rows, seed, names, report_progress, exit_first)
            except DataError as error:
                if len(tasks) == 1 and target != ALL:
                    raise
                report = TaskReport(task.label, task.spec, 0, 0, unavailable=str(error))
            if completions is not None and not report.unavailable and not (exit_first and report.failures):
                report = _fuzzed(task, report, completions, report_progress)
            reports.append(report)
            if exit_first and report.failures:
                break
    has_failed = bool(broken) or any(report.failures for report in reports)
    if as_json:
        print_json({"tasks": [report.as_json() for report in reports], "not_loaded": broken, "failed": has_failed})
    else:
        _print(reports, broken)
        if exit_first and has_failed:
            print_out("stopped at the first finding")
    return ExitCode.FAILED if has_failed else ExitCode.DONE


def tasks_of(target: str) -> list[BoundTask]:
    """The tasks that a target names: `all`, a plugin, a Python file, or a task spec.

    Args:
        target: `all`, `rhyme`, `./rhyme.py`, or a spec as for `--task`, which may name several tasks.

    Raises:
        UserError: no such task, plugin or file, or one without tasks; a plugin that does not load.
    """
    host = default_host()
    if target == ALL:
        return [load_task(name) for report in host.reports() for name in report.tasks]
    if target in host.names:
        report = next(report for report in host.reports() if report.name == target)
        if report.error:
            raise UserError(f"plugin {target!r} was not loaded: {report.error}")
        if not report.tasks:
            raise UserError(f"plugin {target!r} has no tasks.")
        return [load_task(name) for name in report.tasks]
    if target.endswith(".py"):
        file = target if target.startswith((".", "/", "~")) else f"./{target}"
        names = list(tasks_of_file(file, f"file {target!r}"))
        if not names:
            raise UserError(f"{target} has no Task or Game.")
        return [load_task(f"{file}:{name}") for name in names]
    if target.isidentifier():  # a plugin or a task by its last name: `load_task` names what exists
        raise unknown_name("plugin", target, [*host.names, ALL])
    return [bind(spec) for spec in parse_task_specs(target)]


def not_loaded() -> dict[str, str]:
    """The installed plugins that do not load, each with its error."""
    return {report.name: report.error for report in default_host().reports() if report.error}


def _of_all(progress: Callable[[str, int, int], None], index: int, count: int) -> Callable[[str, int, int], None]:
    """Report progress with a task's own, but counted in tasks, so that the remaining time is that of all."""
    return lambda what, done, total: progress(f"{count} tasks, {what}", index, count)


def _fuzzed(
    task: BoundTask, report: TaskReport, completions: int, progress: Callable[[str, int, int], None]
) -> TaskReport:
    """The report with the findings of the fuzzer."""
    begin = perf_counter()
    found = fuzz(task, completions, report.seed, progress=partial(progress, f"{task.name}, fuzz"))
    results = found.results()
    results[-1] = replace(results[-1], seconds=perf_counter() - begin)
    return replace(report, results=(*report.results, *results), fuzz=found.as_json())


def _print(reports: Sequence[TaskReport], broken: dict[str, str]) -> None:
    if len(reports) == 1:
        _print_one(reports[0])
    else:
        _print_many(reports)
    for report in reports:
        if report.judges:
            names = ", ".join(report.judges)
            text = f"{names}: no judge was asked; each was taken as satisfied with every valid completion."
            print_out("", visible(f"{text} Measure them with: grpo judge {shlex.quote(report.spec)}"))
    for name, error in broken.items():
        print_out("", visible(f"plugin {name} was not loaded: {error}"))
    print_out("", _summary(reports))


def _print_one(report: TaskReport) -> None:
    listing = table("check", "", "found")
    for result in report.results:
        status = Text(LABELS[result.status], style=STYLES[result.status])
        listing.add_row(result.check, status, visible(result.text))
    print_out(Text(f"{report.task}   {report.rows} rows, seed {report.seed}", style="bold"), listing)
    for result in report.results:
        if result.status in ("failed", "warning"):
            _print_failure("", result)
    _print_hackability(report)


def _print_many(reports: Sequence[TaskReport]) -> None:
    listing = table("task", "", "ok", "seconds", "noted")
    for report in reports:
        if report.unavailable:
            listing.add_row(
                report.task,
                Text("no rows", style="yellow"),
                "-",
                "-",
                visible(shorten(report.unavailable, REASON_CHARS, placeholder=" …")),
            )
            continue
        status = "failed" if report.failures else "passed"
        noted = [result.check for result in report.failures]
        for other in ("warning", "exempt"):
            noted += [f"{result.check} ({other})" for result in report.results if result.status == other]
        applicable = len(report.results) - report.count("not applicable")
        listing.add_row(
            report.task,
            Text(LABELS[status], style=STYLES[status]),
            f"{report.count('passed')}/{applicable}",
            f"{sum(result.seconds for result in report.results):.1f}",
            ", ".join(noted) or "-",
        )
    print_out(listing)
    for report in reports:
        for result in report.failures:
            _print_failure(f"{report.task} ", result)
    reasons = [(report.task, each) for report in reports for each in report.results if each.status == "exempt"]
    if reasons:
        listing = table("exempt", "from", "since")
        for task, result in reasons:
            listing.add_row(task, result.check, visible(result.text))
        print_out("", listing)


def _print_failure(task: str, result: Result) -> None:
    print_out(
        "", Text(f"{task}{result.check}: ", style=STYLES[result.status]).append(visible(result.text), style="not bold")
    )
    print_out(f"  example   {visible(result.example)}", f"  what to do   {visible(result.advice)}")


def _print_hackability(report: TaskReport) -> None:
    if report.fuzz is None:
        return
    found = report.fuzz
    interval = f"95%: {found['hackability_low']:.2f} to {found['hackability_high']:.2f}"
    rows = f"{found['hacked_rows']} of {found['rows']} rows"
    lost = [name for name, (solved, tried) in found["forms"].items() if solved < tried]
    print_out("", f"hackability {found['hackability']:.2f} ({interval}; {rows}, seed {found['seed']})")
    if lost:
        print_out(f"golds no longer solved if written with: {', '.join(lost)}")


def _summary(reports: Sequence[TaskReport]) -> str:
    counts = {
        IN_SUMMARY.get(status, status): sum(report.count(status) for report in reports) for status in get_args(Status)
    }
    counts["tasks without rows here"] = sum(bool(report.unavailable) for report in reports)
    return ", ".join(f"{count} {words}" for words, count in counts.items() if count) or "nothing was checked"
