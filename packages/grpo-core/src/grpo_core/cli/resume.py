"""`grpo resume`: continue a run."""

from __future__ import annotations

from typing import Any

import click

from grpo_core.cli.nproc import Launch, display_words, end_with_launcher, launch_options, start, words_of
from grpo_core.cli.run import show_result
from grpo_core.cli.settings import only_results_on_stdout
from grpo_core.display.progress import ProgressDisplay
from grpo_core.training.rank_shares import check_shares
from grpo_core.training.stored_run import check_resume
from grpo_sdk.cli.options import COUNT, HELP, read_checkpoint
from grpo_sdk.display.text import err
from grpo_sdk.errors import ExitCode
from grpo_sdk.launched import is_rank, is_silent_rank
from grpo_sdk.paths import user_path

EXAMPLES = """\b
Examples:
  grpo resume training_runs/run_2026-11-21_10-02-11
  grpo resume training_runs/run_2026-11-21_10-02-11 --from-step final --additional-steps 100
"""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("run", metavar="RUN")
@click.option("--from-step", default="latest", metavar="STEP", help="latest, final or a number.  [default: latest]")
@click.option("--additional-steps", type=COUNT, metavar="N", help="Exactly N more steps, not to the planned end.")
@click.option("--stop-after", type=COUNT, metavar="N", help="Stop after N steps of this call, saved, as by a signal.")
@click.option(
    "--allow",
    multiple=True,
    metavar="NAME",
    help="Allow to differ: a setting, data (or task), hardware, versions or conditions.",
)
@launch_options
@click.option("--every", type=COUNT, metavar="N", help="Print a line of every N steps; in a pipe, of each by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, alone on stdout.")
@click.option("--quiet", is_flag=True, help="No progress; prints the run's folder.")
def resume(
    run: str,
    from_step: str,
    additional_steps: int | None,
    stop_after: int | None,
    allow: tuple[str, ...],
    every: int | None,
    as_json: bool,
    quiet: bool,
    **processes: str | None,
) -> int:
    """Continue a run in its own folder: to its planned end, or for a given number of further steps.

    Weights, optimizer, random numbers, data order, baselines and the reference policy are restored from the
    checkpoint, so that the resumed run ends exactly as the uninterrupted one; a run that was killed before it wrote
    its summary writes it now. A changed setting or dataset is refused, unless --allow names it.
    """
    launch = Launch(processes)
    step = read_checkpoint(from_step, "--from-step")
    options: dict[str, Any] = {"from_step": step, "additional_steps": additional_steps, "stop_after": stop_after}
    # Before torch is imported, which takes seconds.
    config = check_resume(run, allow=allow, takes_lock=not is_rank(), **options)
    if not is_rank():  # ranks report it together
        check_shares(config.trainer, launch.size, launch.processes)
    if launch.is_needed:
        launch.check_stop(stop_after)
        shown = display_words(as_json=as_json, quiet=quiet, every=every, allow=allow)
        return start(launch, ["resume", *words_of(click.get_current_context())], shown, user_path(run, "RUN"))
    end_with_launcher()
    display = ProgressDisplay(err(), config, quiet=quiet or is_silent_rank(), every=every)
    with display as progress, only_results_on_stdout((progress,)):
        from grpo_core.training import resume as resuming  # imports torch

        result = resuming.resume(run, callbacks=(progress,), allow=allow, **options)
    show_result(result, as_json=as_json, quiet=quiet)
    return ExitCode.INTERRUPTED if result.interrupted else ExitCode.DONE
