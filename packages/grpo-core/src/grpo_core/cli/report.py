"""`grpo report`: runs as one HTML file, or live in a browser."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from grpo_sdk.cli.options import HELP, JSON, only_one
from grpo_sdk.display.text import err, print_json, visible
from grpo_sdk.errors import UserError
from grpo_sdk.files import replace_file
from grpo_sdk.paths import kind_of, user_path

EXAMPLES = """\b
Examples:
  grpo report training_runs/run_2026-11-21_10-02-11
  grpo report RUN OTHER_RUN --output compared.html
  grpo report RUN --serve
"""

MAX_ROLLOUTS = 50_000
"""Completions in a report by default."""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("runs", nargs=-1, metavar="RUN...", required=True)
@click.option("--output", metavar="FILE", help="HTML file to write.  [default: report.html in the first run]")
@click.option(
    "--rollouts",
    type=click.IntRange(0, 1_000_000),
    default=MAX_ROLLOUTS,
    show_default=True,
    help="Most completions in the report, of all runs together; of more, steps at equal distances. 0 leaves them out.",
)
@click.option("--serve", "is_served", is_flag=True, help="Show it live in a browser of this machine instead.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of --serve.  [default: a free one]")
@JSON
def report(
    runs: tuple[str, ...], output: str | None, rollouts: int, is_served: bool, port: int, as_json: bool
) -> int | None:
    """Write a report of one or several runs: one HTML file that needs no network.

    It has learning curves and evaluations with intervals, distributions, diagnostics with their healthy ranges, time
    and memory, settings with their sources, warnings, and every completion to browse. Several runs are compared with
    the first one, paired where they have rows or prompts in common.
    """
    only_one({"--output": output, "--serve": is_served, "--json": as_json})
    if port and not is_served:
        raise UserError(f"--port {port} is of --serve: add --serve, or leave it out.")
    folders = [user_path(run, "RUN") for run in runs]
    if is_served:
        return _serve(folders, rollouts, port)
    if as_json:
        print_json(_read(folders, rollouts))
        return None
    _write(folders, output, rollouts)
    return None


def _write(folders: list[Path], output: str | None, rollouts: int) -> None:
    from grpo_core.checkpoints import check_run
    from grpo_core.report.page import page

    check_run(folders[0])
    target = folders[0] / "report.html" if output is None else user_path(output, "--output")
    if target.is_dir():
        raise UserError(f"--output {target} is a folder: give the name of a file, as in {target / 'report.html'}.")
    if not target.parent.is_dir():
        raise UserError(f"--output {target}: there is no folder {target.parent}{_kind(target.parent)}.")
    data = _read(folders, rollouts)
    try:
        replace_file(target, page(data).encode())
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror or error}.") from None
    click.echo(visible(f"wrote     {target}: {target.stat().st_size / 1e6:.1f} MB; open it in a browser"))
    for run in data["runs"]:
        for problem in run["missing"]:
            click.echo(visible(f"{'missing':<10}{run['name'] + ': ' if len(folders) > 1 else ''}{problem}"))


def _read(folders: list[Path], rollouts: int) -> dict[str, Any]:
    from grpo_core.report.data import report_data
    from grpo_sdk.display.progress import Waiting

    with Waiting(err()) as display, display.ticking("reading the logs"):
        return report_data(folders, rollouts=rollouts)


def _kind(path: Path) -> str:
    return f" (it is {kind})" if (kind := kind_of(path)) else ""


def _serve(folders: list[Path], rollouts: int, port: int) -> int:
    try:
        from grpo_core.report.server import ReportServer
    except ImportError as error:
        raise UserError(
            f"grpo report --serve needs the package {error.name}, which is not installed: "
            "pip install 'grpo-core[report]'"
        ) from None

    server = ReportServer(folders, rollouts=rollouts, port=port)
    click.echo(visible(f"serving   {server.address} on this machine alone; Ctrl-C stops"))
    with contextlib.closing(server):
        server.serve_forever()
    return 0
