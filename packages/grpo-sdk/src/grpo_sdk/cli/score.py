"""`grpo score`: score a file of completions."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import Any

import click

from grpo_sdk.cli.explain import turns_of
from grpo_sdk.cli.options import COUNT, HELP, SECONDS, SHARE, open_input
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err, quoted, visible
from grpo_sdk.errors import AbstentionLimitError, ExitCode, UserError
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.scoring.completion_file import FileSummary, LineScore, score_lines
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.tools.calls import ToolTurn, read_tool_turns

EXAMPLES = """\b
Examples:
  grpo score math.gsm8k --file completions.jsonl
  grpo score math.gsm8k --file completions.jsonl --json > scores.jsonl
  zcat completions.jsonl.gz | grpo score math.gsm8k --file - | sort -n -k 3
"""

COLUMNS = ("line", "row", "score", "judged", "parts", "text", "why")
"""Columns of a line of the output."""

HINT = "Give a JSONL file, or - for stdin."

MAX_SHOWN_CHARS = 60
"""Longest completion in a line of the output; --json leaves it out, and the line's number names it."""

MAX_PROBLEMS = 20
"""Wrong lines that are named; the others are counted."""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("task", metavar="TASK")
@click.option("--file", "source", metavar="FILE", required=True, help="JSONL of completions, or - for stdin.")
@click.option("--workers", metavar="N", type=COUNT, help="Processes that score.  [default: one per CPU, up to 16]")
@click.option("--timeout-s", metavar="S", type=SECONDS, help="Seconds for one completion.  [default: the task's]")
@click.option(
    "--max-abstain-share", default=0.5, show_default=True, type=SHARE, help="Above it, the exit code is 3, as in a run."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def score(
    task: str, source: str, workers: int | None, timeout_s: float | None, max_abstain_share: float, as_json: bool
) -> int:
    """Score a file of completions, one JSON object per line: {"row": ID or a whole row, "completion": TEXT}.

    A run's logs/rollouts.jsonl is such a file, too. Scores are printed in order as they are ready, and a summary on
    stderr. Malformed lines are reported and skipped; the exit code is then 2.
    """
    summary, plain, bound = FileSummary(), 0, load_task(task)
    with (
        nullcontext(sys.stdin.buffer) if source == "-" else open_input(source, f"--file {source}", HINT) as file,
        Scorer(bound, workers=workers, timeout_s=timeout_s) as scorer,
        Waiting(err()) as progress,
    ):
        if not as_json:
            sys.stdout.write("\t".join(COLUMNS) + "\n")
        lines = score_lines(scorer, file, lambda: progress.on_progress(f"scoring, {summary.lines} done", 0, 0))
        for result in summary.counted(lines):
            progress.clear()
            if getattr(sys.stdout, "error", None) is not None:  # the reader has gone: what is scored now is lost
                break
            if result.score is None:
                _report(result, summary.wrong)
            else:
                sys.stdout.write(_json(result) if as_json else _columns(result))
                sys.stdout.flush()
                plain += bound.task.has_tools and read_tool_turns(result.text)[0] == (ToolTurn(result.text),)
    _print_summary(summary)
    if plain:
        err().print(visible(f"note: {plain} of them call nothing: each is text. {turns_of(bound)}"), soft_wrap=True)
    if summary.wrong:
        return ExitCode.USER_MISTAKE
    if not summary.lines:
        raise UserError(f"--file {source}: no completion in it.")
    if summary.abstained_share > max_abstain_share:
        raise AbstentionLimitError(
            f"{summary.abstained} of {summary.lines} completions could not be scored; the limit is "
            f"{max_abstain_share:.0%}. Their reasons are in the last column."
        )
    return ExitCode.DONE


def _json(result: LineScore) -> str:
    assert result.score is not None
    score = result.score
    facts: dict[str, Any] = {"line": result.line, "row": result.row}
    # json escapes what is not ASCII, so that no text controls a terminal.
    return json.dumps({**facts, **{name: getattr(score, name) for name in score.__slots__}}) + "\n"


def _columns(result: LineScore) -> str:
    score = result.score
    assert score is not None
    cells = (
        str(result.line),
        visible(result.row),
        "" if score.value is None else f"{score.value:.6g}",
        "abstained" if score.value is None else "solved" if score.solved else "unsolved",
        visible(" ".join(f"{name}={value:.6g}" for name, value in score.parts.items())),
        quoted(result.text, MAX_SHOWN_CHARS),
        visible(f"{score.fault}: {score.why}" if score.fault else score.why),
    )
    return "\t".join(cells) + "\n"


def _report(result: LineScore, wrong: int) -> None:
    if wrong <= MAX_PROBLEMS:
        err().print(visible(f"line {result.line}: {result.problem}"), soft_wrap=True)
    elif wrong == MAX_PROBLEMS + 1:
        err().print("more wrong lines are counted only", soft_wrap=True)


def _print_summary(summary: FileSummary) -> None:
    facts = [f"{summary.lines} completion{'' if summary.lines == 1 else 's'}"]
    if summary.mean is not None:
        facts += [
            f"mean reward {summary.mean:.4g}",
            f"solved {summary.solved / (summary.lines - summary.abstained):.2f}",
        ]
    facts.append(f"{summary.abstained} not scored")
    if summary.wrong:
        facts.append(f"{summary.wrong} wrong lines")
    err().print("   ".join(facts), soft_wrap=True)
