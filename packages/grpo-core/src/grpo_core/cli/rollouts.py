"""`grpo rollouts`: read a run's completions with their scores."""

from __future__ import annotations

import shlex
import sys
from typing import Literal, cast

import click

from grpo_core.cli.rollout_selection import Judgement, Selection, Survey, each_selected, part_times, select
from grpo_core.cli.rollout_text import COLUMNS, print_lines, print_pages, print_times
from grpo_sdk.cli.options import COUNT, HELP, JSON, only_one, read_number
from grpo_sdk.display.text import err, print_json, visible
from grpo_sdk.errors import UserError
from grpo_sdk.paths import user_path

EXAMPLES = f"""\b
Examples:
  grpo rollouts training_runs/run_2026-11-21_10-02-11
  grpo rollouts RUN --best --limit 3 --group
  grpo rollouts RUN --task math.arithmetic --step all --unsolved
  grpo rollouts RUN --slow
  grpo rollouts RUN --limit 1000 | cut -f {COLUMNS.index("text") + 1} | sort | uniq -c
  grpo rollouts RUN --export inspect --step all --output logs
"""

SHOWN = 10
"""Completions that are shown by default; an export has all."""

ALL = sys.maxsize


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("run", metavar="RUN")
@click.option("--worst", is_flag=True, help="Lowest scores first.  [default]")
@click.option("--best", is_flag=True, help="Highest scores first.")
@click.option("--slow", is_flag=True, help="Slowest to score first, of all steps, with the time of each part.")
@click.option("--task", metavar="TASK", help="Only this task, given with or without its options.")
@click.option("--step", metavar="N", help="Only this step, or all.  [default: the last one]")
@click.option("--group", "whole_groups", is_flag=True, help="Add all other completions of the same prompt and step.")
@click.option("--solved", is_flag=True, help="Only completions that solved their row.")
@click.option("--unsolved", is_flag=True, help="Only completions that were scored and did not solve it.")
@click.option("--abstained", is_flag=True, help="Only completions that could not be scored.")
@click.option(
    "--limit", type=COUNT, help=f"Completions, or groups with --group.  [default: {SHOWN}; all with --export]"
)
@click.option("--export", "export_format", metavar="inspect|verifiers", help="Write logs of that package.")
@click.option("--output", metavar="DIR", help="New folder of --export.  [default: RUN/rollouts_FORMAT]")
@JSON
def rollouts(
    run: str,
    task: str | None,
    step: str | None,
    limit: int | None,
    as_json: bool,
    export_format: str | None,
    output: str | None,
    **flags: bool,
) -> None:
    """Read a run's completions with prompt, score and the parts of the score; filters combine.

    In a terminal, completions are printed below one another, in a pager if there are many; in a pipe, one per line
    with columns separated by tabs. Unprintable characters are escaped.
    """
    order = only_one({f"--{name}": flags[name] for name in ("worst", "best", "slow")})
    judged = only_one({f"--{name}": flags[name] for name in ("solved", "unsolved", "abstained")})
    slow = order == "--slow"
    folder = user_path(run, "RUN")
    selection = Selection(
        task=task,
        step=_step(step) if step is not None or not slow else "all",
        judged=cast(Judgement, judged.removeprefix("--")) or None,
        order="slowest" if slow else "best" if order == "--best" else "worst",
        limit=limit or (SHOWN if export_format is None else ALL),
        whole_groups=flags["whole_groups"],
    )
    if export_format is not None:
        if as_json:
            raise UserError("--export writes files and --json prints: give one of them.")
        _export(run, selection, export_format, output)
        return
    if output is not None:
        raise UserError(f"--output {output[:40]}: completions are written with --export FORMAT, e.g. --export inspect.")
    records = select(folder, selection)
    times = part_times(folder, selection) if slow and records else []
    if slow and records and not as_json:
        print_times(times)
    if as_json:
        found = [record.model_dump(mode="json") for record in records]
        print_json({"parts": times, "rollouts": found} if slow else found)
    elif records and sys.stdout.isatty():
        print_pages(records)
    elif records:
        print_lines(records, with_times=slow)
    if not records:
        err().print(visible(f"no completion of {run} matches; the run has {Survey(folder)}"), soft_wrap=True)


def _export(run: str, selection: Selection, name: str, output: str | None) -> None:
    from grpo_sdk.interop.rollouts.export import export_rollouts, format_of

    chosen, folder = format_of(name), user_path(run, "RUN")
    target = folder / f"rollouts_{name}" if output is None else user_path(output, "--output")
    count, files = export_rollouts(each_selected(folder, selection), folder, name, target)
    if not count:
        raise UserError(f"nothing to export: no completion of {run} matches; the run has {Survey(folder)}")
    counts = f"{count} completions in {files} file{'s' if files > 1 else ''}"
    of = "all steps" if selection.step == "all" else f"step {selection.step}" if selection.step else ""
    click.echo(visible(f"wrote     {target}: {counts} of {of or 'the last step; --step all writes every step'}"))
    click.echo(visible(f"next      {chosen.next_step.format(shlex.quote(str(target)))}"))


def _step(text: str | None) -> int | Literal["all"] | None:
    if text is None or text == "all":
        return "all" if text else None
    if number := read_number(text):
        return number
    raise UserError(f"--step {text[:40]}: give a step, counted from 1, or all.")
