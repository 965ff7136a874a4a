"""`grpo watch`: a run in the terminal, while it goes on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from grpo_sdk.cli.options import HELP, SECONDS
from grpo_sdk.errors import ExitCode, UserError

EXAMPLES = """\b
Examples:
  grpo watch
  grpo watch training_runs/run_2026-11-21_10-02-11
  ssh -t machine grpo watch /data/training_runs
"""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("run", metavar="[RUN|DIR]", required=False)
@click.option(
    "--every", "every_s", default=1.0, show_default=True, type=SECONDS, metavar="S", help="Seconds between updates."
)
def watch(run: str | None, every_s: float) -> int:
    """Watch a run live: curves, completions with their scores, warnings; by default the newest run.

    Works over ssh, before a run begins, while it runs or is resumed, and after it has ended. Only reads the run's
    folder. Keys are shown at the bottom; q ends the display, not the run.
    """
    from grpo_core.tracking.live import LiveRun

    path = _run(run)
    if not is_terminal():
        raise UserError(f"grpo watch needs a terminal. In a pipe or a file: grpo runs show {path} --json")
    from grpo_core.display.watch import WatchApp

    app = WatchApp(LiveRun(path), every_s)
    app.run()
    return app.return_code or ExitCode.DONE


def is_terminal() -> bool:
    """Whether a display can be drawn here, and keys be read."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in streams) and os.environ.get("TERM") != "dumb"


def _run(given: str | None) -> Path:
    """The run that is meant: the newest one of a folder, by default of the folder of new runs.

    Raises:
        UserError: there is none.
    """
    from grpo_core.checkpoints import check_run, is_run
    from grpo_core.config import load_config
    from grpo_core.tracking.runs import find_runs
    from grpo_sdk.paths import kind_of, user_path

    folder = Path(load_config().config.output_dir) if given is None else user_path(given, "RUN")
    if is_run(folder):
        return folder
    runs = find_runs(folder) if kind_of(folder) == "a folder" else []
    if runs:
        return runs[-1]
    if given is None:
        raise UserError(f"no run in {folder} yet. Start one with grpo run, or name a run: grpo watch RUN")
    check_run(folder)
    return folder
