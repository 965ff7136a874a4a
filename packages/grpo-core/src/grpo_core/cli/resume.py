"""`grpo resume`: go on with a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from grpo_core.cli.launch import is_rank, is_silent_rank, launch, words_of
from grpo_core.cli.numbers import COUNT
from grpo_core.cli.run import show_result
from grpo_core.cli.settings import only_results_on_stdout
from grpo_core.errors import ExitCode, UserError
from grpo_core.paths import user_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_core.callbacks import Callback
    from grpo_core.training.trainer import RunResult

EXAMPLES = """\b
Examples:
  grpo resume training_runs/run_2026-11-21_10-02-11
  grpo resume training_runs/run_2026-11-21_10-02-11 --from-step final --additional-steps 100
"""


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", metavar="RUN")
@click.option("--from-step", default="latest", metavar="STEP", help="latest, final or a number; latest by default.")
@click.option("--additional-steps", type=COUNT, metavar="N", help="Exactly N steps more, in place of the planned end.")
@click.option("--stop-after", type=COUNT, metavar="N", help="Stop after N steps of this call, saved, as by a signal.")
@click.option(
    "--allow", multiple=True, metavar="NAME", help="May differ: a setting, data, hardware, versions or conditions."
)
@click.option("--nproc", metavar="N", help="Go on in N processes of this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, alone on stdout.")
@click.option("--quiet", is_flag=True, help="No progress; prints the run's folder.")
def resume(
    run: str,
    from_step: str,
    additional_steps: int | None,
    stop_after: int | None,
    allow: tuple[str, ...],
    nproc: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Go on with a run in its own folder: to its planned end, or for exactly some more steps.

    Weights, optimizer, random numbers, data order, baselines and the KL's anchor are those of the checkpoint, so that
    a run that was stopped ends as it would have; one that was killed before its summary gets it. A changed setting or
    dataset is refused, unless --allow names it.
    """
    from grpo_core.checkpoints import check_run

    which = _step(from_step)
    check_run(user_path(run, "RUN"))
    if nproc is not None and not is_rank():
        return launch(nproc, ["resume", *words_of(click.get_current_context())])
    result = _resume(run, which, additional_steps, stop_after, allow, quiet=quiet or is_silent_rank())
    show_result(result, as_json=as_json, quiet=quiet)
    return ExitCode.INTERRUPTED if result.interrupted else ExitCode.DONE


def _step(text: str) -> int | Literal["latest", "final"]:
    if text in ("latest", "final"):
        return text  # type: ignore[return-value] # it is one of the two
    if text.isdigit() and len(text) < 19:
        return int(text)
    raise UserError(f"--from-step {text[:40]!r} must be latest, final or the number of a step.")


def _resume(
    run: str,
    from_step: int | Literal["latest", "final"],
    additional_steps: int | None,
    stop_after: int | None,
    allow: Sequence[str],
    *,
    quiet: bool,
) -> RunResult:

    from grpo_core.cli.progress import ProgressDisplay
    from grpo_core.cli.text import err
    from grpo_core.config import load_config

    config = load_config(config_file=user_path(run, "RUN") / "config.yaml", environ={}, dotenv_path=None).config
    with ProgressDisplay(err(), config, quiet=quiet) as progress:
        callbacks: tuple[Callback, ...] = (progress,)
        with only_results_on_stdout(callbacks):
            from grpo_core.training import resume as resuming

            return resuming.resume(
                run,
                from_step=from_step,
                additional_steps=additional_steps,
                stop_after=stop_after,
                allow=allow,
                callbacks=callbacks,
            )
