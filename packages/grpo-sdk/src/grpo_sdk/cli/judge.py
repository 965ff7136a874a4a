"""`grpo judge`: the errors of a task's judges."""

from __future__ import annotations

import click

from grpo_sdk.cli.options import HELP, JSON
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err, print_json, print_out, table, visible
from grpo_sdk.errors import ExitCode, UserError
from grpo_sdk.judges.known import ErrorRate
from grpo_sdk.judges.service import usages
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.scoring.judge_errors import judge_errors
from grpo_sdk.scoring.scorer import Scorer

EXAMPLES = """\b
Examples:
  grpo judge ./polite.py:answers
  grpo judge ./polite.py:answers --json
"""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("task", metavar="TASK")
@JSON
def judge(task: str, as_json: bool) -> int:
    """Measure the errors of a task's judges on its completions with known verdicts.

    Each judge is asked about these completions, which may cost money, as at the start of a run. A verdict of one half
    or more on a wrong completion is a false positive. Intervals are 95% Wilson intervals. The exit code is 1 if a judge
    gives no verdict at all.
    """
    bound = load_task(task)
    judges = bound.task.judges()
    if not judges:
        raise UserError(f"task {bound.name!r} has no judge: rewards that ask a model are made by grpo_sdk.judges.")
    if not any(each.known for each in judges):
        raise UserError(
            f"task {bound.name!r}: no judge has known verdicts. Give it some: rubric(…, known=[Known(row, completion, "
            "verdict), …]), or the path of a JSONL file."
        )
    with Waiting(err()) as progress, Scorer(bound, workers=1) as scorer:
        errors = judge_errors(scorer, progress.on_progress)
    usage = {address: each.as_json() for address, each in usages().items()}
    code = ExitCode.FAILED if any(each.not_judged == each.known for each in errors) else ExitCode.DONE
    if as_json:
        print_json({"task": bound.spec, "errors": [each.as_json() for each in errors], "usage": usage})
        return code
    listing = table("judge", "known", "not judged", "false positives", "false negatives", "mean error")
    for each in errors:
        listing.add_row(
            each.judge,
            str(each.known),
            str(each.not_judged),
            _rate(each.false_positive),
            _rate(each.false_negative),
            "-" if each.mean_error is None else f"{each.mean_error:.2f}",
        )
    print_out(listing)
    for each in errors:
        if each.why:
            print_out("", visible(f"not judged: {each.why}"))
    for address, counts in usages().items():
        print_out("", visible(f"{address}: {counts.text()}"))
    return code


def _rate(rate: ErrorRate | None) -> str:
    if rate is None:
        return "-"
    return f"{rate.errors} of {rate.n} ({rate.low:.2f} to {rate.high:.2f})"
