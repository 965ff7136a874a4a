"""`grpo replay`: score a run's completions again, with the task as it is today."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from grpo_sdk.cli.options import COUNT, HELP, JSON, read_number
from grpo_sdk.display.lines import number
from grpo_sdk.display.text import err, print_json, print_out, quoted, table, visible
from grpo_sdk.errors import AbstentionLimitError, ExitCode, UserError
from grpo_sdk.paths import user_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.table import Table

    from grpo_core.config import RunConfig
    from grpo_core.evaluation.replay import Change, Replay, TaskReplay
    from grpo_sdk.task.score import Score

EXAMPLES = """\b
Examples:
  grpo replay training_runs/run_2026-11-21_10-02-11
  grpo replay RUN --task ./rhyme.py:couplet --step 20
  grpo replay RUN --json | jq .advantages.share
"""


HEAD_CHARS = 60
"""Characters of a completion that are shown."""

MAX_STEPS = 20
"""Steps listed, evenly over the run; --json has all."""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("run", metavar="RUN")
@click.option("--task", metavar="SPEC", help="Score with this task instead of the run's one of the same name.")
@click.option("--step", metavar="N", help="Only this step.  [default: all]")
@click.option("--limit", default=20, show_default=True, type=COUNT, help="Changed completions to list.")
@click.option("--workers", metavar="N", type=COUNT, help="Processes that score.  [default: the run's setting]")
@JSON
def replay(run: str, task: str | None, step: str | None, limit: int, workers: int | None, as_json: bool) -> int:
    """Score a run's stored completions again after a reward has changed, and show the differences.

    Lists verdicts that flipped, the change of the mean reward by task and step, and the share of completions whose
    advantage has another sign. Rows are those that the run stored; the task is today's code. Nothing is written.
    """
    from grpo_core.checkpoints import check_run
    from grpo_core.tracking.events import at_start_of
    from grpo_sdk.display.progress import Waiting
    from grpo_sdk.plugins.tasks import load_task
    from grpo_sdk.records.jsonl import ends_whole, read_last
    from grpo_sdk.records.rollouts import rollouts_path

    number = None if step is None else read_number(step)
    if step is not None and not number:
        raise UserError(f"--step {step[:40]}: give a step, counted from 1.")
    folder = user_path(run, "RUN")
    check_run(folder)
    log = rollouts_path(folder)
    last = read_last(log)
    if task is not None:
        load_task(task)  # before torch is imported, which takes seconds
    with Waiting(err()) as progress:
        if not ends_whole(log):
            progress.on_warning(f"{log}: its last line is cut: it is left out")
        total = number or last.get("step", 0)
        with progress.ticking("loading") as report:
            from grpo_core.evaluation.replay import replay as score_again

            # A task that is given is one of the working directory, those of the run are of where it began.
            with at_start_of(folder, reads_settings=task is None) as (path, directory):
                progress.on_choices(directory)
                config = _config(path, workers)
                result = score_again(
                    path,
                    config,
                    task=task,
                    step=number,
                    limit=limit,
                    ingredients=_ingredients(path),
                    progress=lambda done: report("scoring again, step", done, total),
                )
    if as_json:
        print_json(result.as_json())
    else:
        print_replay(result)
    _check_abstentions(result, config.scoring.max_abstain_share)
    return ExitCode.DONE


def _ingredients(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """The ingredients of the tasks' identities, from the newest checkpoint; empty where there is none that has them."""
    from grpo_core.checkpoints import read_json
    from grpo_core.launch.processes import latest_checkpoint
    from grpo_core.training.stored_run import INFO_FILE

    if (checkpoint := latest_checkpoint(folder)) is None:  # completions can be scored again without one
        return {}
    return dict(read_json(checkpoint / INFO_FILE, "training info").get("ingredients", {}))


def _config(folder: Path, workers: int | None) -> RunConfig:
    from grpo_core.config import read_config, resolve

    config = resolve(read_config(config_file=folder / "config.yaml", environ={}, dotenv_path=None)).config
    if workers is None:
        return config
    return config.model_copy(update={"scoring": config.scoring.model_copy(update={"workers": workers})})


def _check_abstentions(result: Replay, limit: float) -> None:
    if result.completions and result.abstained > limit * result.completions:
        raise AbstentionLimitError(
            f"{result.abstained} of {result.completions} completions could not be scored now; the limit of the run is "
            f"{limit:.0%} (scoring.max_abstain_share)."
        )


def print_replay(result: Replay) -> None:
    """Print tasks, steps, advantages and the largest changes."""
    lines = [line for spec, task in result.tasks.items() for line in _task(spec, task)]
    print_out(*lines, "", _steps(result))
    if (stride := _stride(result)) > 1:
        print_out(f"of {len(result.steps)} steps, 1 in {stride} is listed; --json has all")
    print_out("", *_advantages(result))
    if result.changes:
        print_out("", _changes(result.changes))


def _task(spec: str, task: TaskReplay) -> list[str]:
    same = "the same" if task.is_same else f"was {', '.join(sorted(task.identities_then)) or 'not logged'}"
    if task.changed_ingredients:
        same += f"; changed: {task.changed_ingredients}"
    means = task.means.as_json()
    lines = [
        visible(f"{spec}   scored by {task.spec}   identity {task.identity_now or 'unknown, no data here'} ({same})"),
        f"  {task.completions} completions   mean reward {number(means['mean_then'], '.4g')} → "
        f"{number(means['mean_now'], '.4g')}   {task.changed} changed   {task.flips.total()} verdicts flipped",
    ]
    lines += [f"  {count} × {then} → {now}" for (then, now), count in task.flips.most_common()]
    return [*lines, *(f"  {count} not scored again: {why}" for why, count in task.skipped.most_common())]


def _steps(result: Replay) -> Table:
    rows = []
    for step, means in list(result.steps.items())[:: _stride(result)]:
        numbers = means.as_json()
        then, now = numbers["mean_then"], numbers["mean_now"]
        difference = None if then is None else now - then
        rows.append((str(step), str(means.n), number(then, ".4f"), number(now, ".4f"), number(difference, "+.4f")))
    return table("step", "completions", "mean reward then", "now", "difference", rows=rows)


def _stride(result: Replay) -> int:
    return max(1, -(-len(result.steps) // MAX_STEPS))


def _advantages(result: Replay) -> list[str]:
    compared = result.advantages
    share = f"{compared.differ / compared.n:.1%}" if compared.n else "-"
    return [
        f"advantages with another sign: {share} ({compared.differ} of {compared.n}; {compared.reversed} reversed)",
        f"by baseline {result.baseline}; groups of equal rewards: {compared.equal_then:.0f} of {compared.groups} then, "
        f"{compared.equal_now:.0f} now",
    ]


def _changes(changes: list[Change]) -> Table:
    rows = (
        (str(each.step), each.row, _brief(each.old), _brief(each.new), quoted(each.text, HEAD_CHARS), each.new.why)
        for each in changes
    )
    return table("step", "row", "then", "now", "completion", "why now", rows=rows)


def _brief(score: Score) -> str:
    if score.value is None:
        return f"not scored ({score.fault})"
    return f"{score.value:.4g} {'solved' if score.solved else 'unsolved'}"
