"""Printing completions for people and for other programs; unprintable characters are escaped."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import orjson

from grpo_core.cli.rollout_selection import Judgement, each_group, judgement
from grpo_sdk.display.lines import number
from grpo_sdk.display.text import err, print_out, rendered, spoken, table, visible
from grpo_sdk.task.score import TOOLS

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from grpo_sdk.records.rollouts import RolloutRecord

COLUMNS = (
    "step", "task", "row", "group", "role", "score", "judged", "tokens", "finish", "parts", "prompt", "text", "why",
)  # fmt: skip
"""Columns of a line in a pipe."""

WORDS: Mapping[Judgement, tuple[str, str]] = {
    "solved": ("solved", "bold green"),
    "unsolved": ("NOT SOLVED", "bold red"),
    "abstained": ("NOT SCORED", "bold yellow"),
}
"""Judgement -> word and style in a terminal."""


def print_lines(records: Sequence[RolloutRecord], *, with_times: bool = False) -> None:
    """Print a heading and one line per completion, with columns separated by tabs.

    Args:
        records: Completions.
        with_times: Add the column `ms`: milliseconds of scoring.
    """
    sys.stdout.write("\t".join((*COLUMNS, *(["ms"] if with_times else []))) + "\n")
    for record in records:
        cells = (
            str(record.step),
            record.task,
            record.row_id,
            str(record.group),
            record.role,
            "" if record.score.value is None else f"{record.score.value:.6g}",
            judgement(record),
            str(record.tokens),
            record.finish_reason,
            " ".join(f"{name}={value:.6g}" for name, value in record.score.parts.items()),
            record.prompt_text,
            record.text,
            record.score.why,
            *([_milliseconds(record)] if with_times else []),
        )
        sys.stdout.write("\t".join(map(visible, cells)) + "\n")


def print_times(times: Sequence[Mapping[str, Any]]) -> None:
    """Print how long the parts of scoring took: on stdout in a terminal, else on stderr, beside the lines."""
    if not times:
        err().print("the run holds no times of scoring: it is of an earlier version, or nothing was scored")
        return
    ends = ("p50", "p99", "longest")
    rows = (
        (each["task"], each["part"], str(each["n"]), *(f"{1000 * each[end]:.3g} ms" for end in ends)) for each in times
    )
    listing = table("task", "part", "completions", *ends, rows=rows)
    if sys.stdout.isatty():
        print_out(listing, "")
    else:
        err().print(listing)


def _milliseconds(record: RolloutRecord) -> str:
    if record.score_s is None:
        return ""
    return f"{1000 * sum(seconds for part, seconds in record.score_s.items() if part != TOOLS):.3g}"


def print_pages(records: Sequence[RolloutRecord]) -> None:
    """Print completions below one another, each shared prompt once; in a pager if they do not fit the screen."""
    blocks: list[RenderableType] = []
    for group in each_group(records):
        blocks += [*([""] if blocks else []), _heading(group[0]), _group(group)]
    text = rendered(*blocks)
    # Two lines are taken by the shell's prompt and the command.
    if sys.stdin.isatty() and text.count("\n") > shutil.get_terminal_size().lines - 2:
        click.echo_via_pager(text, color=True)
    else:
        print_out(*blocks)


def _heading(record: RolloutRecord) -> RenderableType:
    from rich.text import Text

    facts = [f"step {record.step}", record.task, f"row {record.row_id}", f"group {record.group}"]
    if record.difficulty is not None:
        facts.append(f"{record.difficulty} (solved before: {number(record.pass_rate)})")
    return Text("   ".join(map(visible, facts)), style="bold")


def _group(records: Sequence[RolloutRecord]) -> RenderableType:
    listing = table("", "")
    if records[0].prompt is None:  # an older run wrote the row alone
        listing.add_row("row", visible(orjson.dumps(records[0].row).decode()))
    else:
        listing.add_row("prompt", _text(records[0].prompt_text))
    for record in records:
        listing.add_row("text", spoken(record.messages) if record.messages else _text(record.text))
        listing.add_row("score", _score(record))
        listing.add_row("tokens", _tokens(record))
    return listing


def _score(record: RolloutRecord) -> RenderableType:
    """Return the score as a tree: the value with its parts."""
    from rich.text import Text
    from rich.tree import Tree

    score = record.score
    value = "" if score.value is None else f"{score.value:.4g}   "
    top = Text.assemble(value, WORDS[judgement(record)])
    if score.fault:
        top.append(f" ({visible(score.fault)})")
    if not score.valid and score.value is not None:
        top.append("   invalid")
    if score.why:
        top.append(f"   {visible(score.why)}")
    tree = Tree(top)
    width = max(map(len, score.parts), default=0)
    for name, part in score.parts.items():
        tree.add(Text(visible(f"{name:<{width}}  {part:.4g}")))
    return tree


def _tokens(record: RolloutRecord) -> str:
    facts = [str(record.tokens), "truncated" if record.finish_reason == "length" else "ended by itself"]
    if record.role:
        facts.append(f"plays {visible(record.role)}")
    if record.logprob is not None:
        facts.append(f"log-probability {record.logprob:.2f}")
    if record.reward is not None and record.reward != record.score.value:
        facts.append(f"reward {record.reward:.4g} after the length penalty")
    if record.score_s is not None:
        facts.append(f"scored in {_milliseconds(record)} ms")
    if record.included is False:
        facts.append("left out of the loss")
    return ", ".join(facts)


def _text(text: str) -> Text:
    """Return untrusted text in quotes, which show leading and trailing spaces, with its line breaks."""
    from rich.text import Text

    return Text("\n".join(visible(line) for line in f'"{text}"'.split("\n")))
