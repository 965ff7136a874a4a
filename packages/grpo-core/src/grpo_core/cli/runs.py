"""`grpo runs`: list, show and compare runs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from grpo_core.display.results import history_table
from grpo_core.tracking.runs import (
    RunView,
    TaskResult,
    differences,
    find_runs,
    list_run,
    named_series,
    read_run,
    series,
)
from grpo_sdk.cli.options import COUNT, HELP, JSON
from grpo_sdk.display.lines import fold, interval, number
from grpo_sdk.display.text import format_value, line_width, print_json, print_out, quoted, table, visible
from grpo_sdk.errors import UserError, near_match
from grpo_sdk.paths import kind_of, user_path

EXAMPLES = """\b
Examples:
  grpo runs
  grpo runs show training_runs/run_2026-11-21_10-02-11
  grpo runs compare RUN OTHER_RUN
  grpo runs --wandb ENTITY/PROJECT
"""

PLOTTED = ("reward", "solved_rate", "kl", "entropy")
"""Metrics drawn by default, if they were logged."""

STATE_STYLES = {"running": "green", "interrupted": "yellow", "killed": "red", "failed": "red", "unreadable": "red"}
"""State of a run -> its colour."""

MAX_CELL_CHARS = 60
"""Longest error in the list; `grpo runs show` prints all of it."""

MIN_COMPARED = 2

MAX_REMOTE, MAX_REMOTE_CHARS = 20, 200
"""Runs in W&B that are listed by default, and the longest text of theirs in a cell."""


class RunsGroup(click.Group):
    """A group whose default subcommand is `list`: `grpo runs [DIR]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `list` if the first argument is not a subcommand."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=RunsGroup, epilog=EXAMPLES, context_settings=HELP)
def runs() -> None:
    """List the runs in a folder, show one, or compare several; grpo runs [DIR] lists."""


@runs.command("list")
@click.argument("folder", metavar="[DIR]", required=False)
@click.option(
    "--wandb",
    "project",
    metavar="[ENTITY/PROJECT]",
    is_flag=False,
    flag_value="",
    help="List the latest runs in W&B instead.  [default: WANDB_PROJECT or tracking.project]",
)
@click.option("--limit", type=COUNT, metavar="N", help="Runs of W&B at most.  [default: 20]")
@JSON
def list_runs(folder: str | None, project: str | None, limit: int | None, as_json: bool) -> None:
    """List runs with state, progress and results, the newest last; DIR is by default the folder of new runs."""
    if project is not None:
        if folder is not None:
            raise UserError(f"--wandb lists runs in W&B, not in a folder: leave out {folder}.")
        _list_remote(project, limit or MAX_REMOTE, as_json=as_json)
        return
    if limit is not None:
        raise UserError(f"--limit {limit} is of --wandb: add --wandb, or leave it out.")
    directory = _folder(folder)
    views = [list_run(path) for path in find_runs(directory) or _runs_of_sweep(directory)]
    if as_json:
        print_json([facts_of(run) for run in views])
        return
    if not views:
        print_out(visible(f"{directory} holds no runs yet."))
        return
    listing = table(
        "run", "state", "steps", "reward", "solved: initial → latest", "warnings", "task", "model", "written"
    )
    for run in views:
        problem = run.problem.replace(f"{run.path}{os.sep}", "")  # the row begins with its name
        listing.add_row(
            visible(run.path.name if run.path == directory else str(run.path.relative_to(directory))),
            run.state,
            _progress(run),
            _number(run.metrics.get("reward")),
            quoted(problem, MAX_CELL_CHARS) if problem else _solved(run),
            "-" if run.state == "unreadable" else str(run.n_warnings),
            visible(str(run.settings.get("task", "-"))),
            visible(str(run.settings.get("model", "-"))),
            _ago(run.updated),
            style=STATE_STYLES.get(run.state),
        )
    print_out(listing)


@runs.command("show")
@click.argument("run", metavar="RUN")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Draw this metric; repeatable.")
@click.option("--aliases", is_flag=True, help="Show the names of each metric in the reference systems.")
@click.option("--wandb", "is_remote", is_flag=True, help="RUN is ENTITY/PROJECT/ID in W&B.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON, with the metrics of every step that are drawn.")
def show(run: str, metrics: tuple[str, ...], aliases: bool, is_remote: bool, as_json: bool) -> None:
    """Show one run: chosen values with reasons, results, metrics over the steps, the last metrics, warnings."""
    if is_remote:
        if aliases:
            raise UserError("--aliases is of runs on this machine: leave it out with --wandb.")
        _show_remote(run, metrics or PLOTTED, as_json=as_json)
        return
    view = read_run(user_path(run, "RUN"))
    history = named_series(view.path, metrics) if metrics else series(view.path, PLOTTED)
    if as_json:
        print_json({**facts_of(view), "history": history, **({"aliases": _aliases(view)} if aliases else {})})
    else:
        _print_run(view, history, aliases=aliases)


@runs.command("compare")
@click.argument("paths", nargs=-1, metavar="RUN...")
@JSON
def compare(paths: tuple[str, ...], as_json: bool) -> None:
    """Compare runs: the settings in which they differ, and their results with 95% intervals."""
    if len(paths) < MIN_COMPARED:
        raise UserError(f"grpo runs compare takes {MIN_COMPARED} runs or more; {len(paths)} given.")
    views = [read_run(user_path(path, "RUN")) for path in paths]
    different = differences(views)
    if as_json:
        print_json({"settings": different, "runs": [facts_of(view) for view in views]})
        return
    names = [visible(view.path.name) for view in views]
    settings = ((key, *map(format_value, values)) for key, values in different.items())
    print_out(table("setting", *names, rows=settings) if different else "all settings are equal.", "")
    results = [("state", *(view.state for view in views)), ("steps", *map(_progress, views))]
    for task in dict.fromkeys(task for view in views for task in view.results):
        compared = [view.results.get(task, TaskResult()) for view in views]
        rewards = (_number((result.latest or {}).get("mean_reward")) for result in compared)
        results += [
            (f"{task}: initial", *(_rate(result.initial) for result in compared)),
            ("  latest", *(_rate(result.latest) for result in compared)),
            ("  over initial", *map(_delta, compared)),
            ("  mean reward", *rewards),
        ]
    results.append(("warnings", *(str(view.n_warnings) for view in views)))
    results.append(("reward, last step", *(_number(view.metrics.get("reward")) for view in views)))
    print_out(table("result", *names, rows=results))


def facts_of(run: RunView) -> dict[str, Any]:
    """Return a run as plain data for JSON."""
    return {
        "run": str(run.path),
        "state": run.state,
        "steps": run.steps,
        "planned_steps": run.planned,
        "updated": run.updated,
        "task": run.settings.get("task"),
        "model": run.settings.get("model"),
        "seed": run.settings.get("seed"),
        "metrics": dict(run.metrics),
        "tasks": {
            name: {"initial": result.initial, "latest": result.latest, "phase": result.phase}
            for name, result in run.results.items()
        },
        "choices": [{"what": what, "value": value, "why": why} for what, value, why in run.choices],
        "warnings": [{"step": step, "message": message} for step, message in run.warnings],
        "n_warnings": run.n_warnings,
        "problem": run.problem,
    }


def _print_run(run: RunView, history: Mapping[str, Sequence[tuple[int, float | None]]], *, aliases: bool) -> None:
    width = line_width()
    about = [visible(str(run.path)), run.state, f"step {_progress(run)}", _ago(run.updated)]
    report = [fold("run", about, width)]
    report += [fold("failed", [visible(run.problem)], width)] if run.problem else []
    chosen = [
        visible(f"{what} {why if value and why.startswith(value) else f'{value}: {why}' if why else value}")
        for what, value, why in run.choices
    ]
    report += [fold("chosen" if index == 0 else "", [line], width) for index, line in enumerate(chosen)]
    for task, result in run.results.items():
        segments = [
            visible(task),
            f"initial {_rate(result.initial)}",
            f"{result.phase or 'latest'} {_rate(result.latest)}",
        ]
        report.append(fold("solved", [*segments, f"{_delta(result)} over initial"], width))
    print_out(*report)
    for task, result in run.results.items():
        if names := _evaluated(result):
            rows = ((name, _measured(result.initial, name), _measured(result.latest, name)) for name in names)
            measured = table("evaluated", "initial", result.phase or "latest", rows=rows)
            print_out("", visible(task), measured)  # the name stands above, since with options it is long
    if history:
        print_out("", history_table(history))
    if run.metrics:
        others = _aliases(run)
        last = ((name, _number(value), ", ".join(others.get(name, ()))) for name, value in run.metrics.items())
        shown = ("last step", "value", "also called")[: 3 if aliases else 2]
        print_out("", table(*shown, rows=(row[: len(shown)] for row in last)))
    if run.warnings:
        print_out("", *(fold("warning", [visible(f"step {step}: {text}")], width) for step, text in run.warnings))


def _list_remote(project: str, limit: int, *, as_json: bool) -> None:
    """Print the latest runs of `ENTITY/PROJECT` or `PROJECT` in W&B; empty is what new runs are logged to."""
    from grpo_core.config import load_config
    from grpo_core.tracking.base import project_of
    from grpo_core.tracking.wandb_runs import latest_runs

    if not project:
        project = project_of(load_config().config.tracking)
        entity = os.environ.get("WANDB_ENTITY", "")
        project = f"{entity}/{project}" if entity and "/" not in project else project
    runs = latest_runs(project, limit)
    if as_json:
        print_json([asdict(run) for run in runs])
        return
    if not runs:
        print_out(_cell(f"{project} holds no runs yet."))
        return
    rows = []
    for run in runs:
        held_out = (name for name in run.metrics if name.startswith("eval/") and name.endswith("/solved_rate"))
        numbers = [_number(run.metrics.get(name)) for name in ("reward", next(held_out, "solved_rate"))]
        names = (run.settings.get("task", "-"), run.settings.get("model", "-"))
        rows.append(map(_cell, (run.path, run.state, run.name, *numbers, *names, run.created)))
    print_out(table("run", "state", "name", "reward", "solved", "task", "model", "started", rows=rows))


def _show_remote(path: str, names: Sequence[str], *, as_json: bool) -> None:
    """Print the run `ENTITY/PROJECT/ID` of W&B: its settings, some metrics over the steps, and last metrics."""
    from grpo_core.tracking.wandb_runs import remote_run

    run, history = remote_run(path, names)
    if as_json:
        print_json({**asdict(run), "history": history})
        return
    print_out(fold("run", map(_cell, (run.path, run.name, run.state, run.created)), None))
    print_out(fold("page", [_cell(run.url)], None))
    if history:
        print_out("", history_table(history))
    if run.metrics:
        last = ((_cell(name), _number(value)) for name, value in run.metrics.items())
        print_out("", table("last step", "value", rows=last))
    if run.settings:
        print_out("", table("setting", "value", rows=(map(_cell, item) for item in run.settings.items())))


def _cell(value: object) -> str:
    return visible(str(value)[:MAX_REMOTE_CHARS])


def _aliases(run: RunView) -> dict[str, tuple[str, ...]]:
    from grpo_core.tracking.aliases import aliases_of

    return {name: known for name in run.metrics if (known := aliases_of(name))}


def _folder(text: str | None) -> Path:
    if text is None:
        from grpo_core.config import load_config

        return Path(load_config().config.output_dir)
    folder = user_path(text, "DIR")
    if not kind_of(folder) and (hint := near_match(text, ("list", "show", "compare"))):
        raise UserError(f"no folder and no command {text!r}.{hint}")
    return folder


def _runs_of_sweep(folder: Path) -> list[Path]:
    """Return the newest folder of each run of a sweep; none if the folder is not a sweep."""
    from grpo_core.launch.sweep.folder import SweepFolder

    sweep = SweepFolder(folder)
    runs = sweep.plan.runs if sweep.plan else ()
    return [path for run in runs if (path := sweep.run_path(run))]


def _progress(run: RunView) -> str:
    return f"{run.steps}/{run.planned}" if run.planned else str(run.steps)


def _solved(run: RunView) -> str:
    several = len(run.results) > 1
    return ", ".join(
        f"{f'{task} ' if several else ''}{number((result.initial or {}).get('solved_rate'))} → {_rate(result.latest)}"
        for task, result in run.results.items()
    )


def _rate(result: Mapping[str, Any] | None) -> str:
    if not result:
        return "-"
    return f"{number(result.get('solved_rate'))} {interval(result.get('ci_low'), result.get('ci_high'))}"


def _evaluated(result: TaskResult) -> list[str]:
    """Return the names of the task's own metrics in its evaluations, without the ends of their intervals."""
    names = dict.fromkeys(name for each in (result.initial, result.latest) for name in (each or {}).get("metrics", {}))
    return [name for name in names if not name.endswith(("_ci_low", "_ci_high"))]


def _measured(result: Mapping[str, Any] | None, name: str) -> str:
    metrics = (result or {}).get("metrics", {})
    if metrics.get(name) is None:
        return "-"
    ends = [metrics.get(f"{name}_ci_{end}") for end in ("low", "high")]
    return _number(metrics[name]) if None in ends else f"{_number(metrics[name])} {interval(*ends)}"


def _delta(result: TaskResult) -> str:
    latest = result.latest or {}
    if latest.get("delta") is None:
        return "-"
    return f"{number(latest['delta'], '+.2f')} {interval(latest.get('delta_ci_low'), latest.get('delta_ci_high'))}"


def _number(value: float | None) -> str:
    return number(value, ".4g")


def _ago(then: float) -> str:
    """Format the time since a moment: `3 min ago`."""
    if not then:
        return "-"
    seconds = max(0.0, time.time() - then)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"
