"""`grpo sample`: show rows of a task before training on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import click
import orjson

from grpo_sdk.cli.options import COUNT, HELP, JSON
from grpo_sdk.cli.tasks import readable
from grpo_sdk.display.explanation import tools_text
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err, print_json, print_out, spoken, table, visible
from grpo_sdk.episodes.player import first_prompt, retold
from grpo_sdk.errors import GrpoError
from grpo_sdk.plugins.tasks import bind
from grpo_sdk.scoring.conditions import condition_choices
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.mixture import task_labels
from grpo_sdk.task.row import Prompt
from grpo_sdk.task.spec import parse_task_specs

EXAMPLES = """\b
Examples:
  grpo sample math.arithmetic -n 5
  grpo sample "math.gsm8k?path=rows.jsonl&split=test"
"""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("task", metavar="TASK")
@click.option("-n", "count", default=3, show_default=True, type=COUNT, help="Rows of each task.")
@JSON
def sample(task: str, count: int, as_json: bool) -> None:
    """Show rows of a task with prompt, gold and the score of the gold.

    The exit code is 1 if a gold is not scored or not solved, unless the task is exempt from the check `gold`.
    """
    tasks = [bind(spec) for spec in parse_task_specs(task)]
    with Waiting(err()) as progress:
        labelled = dict(zip(task_labels(tasks), tasks, strict=True))
        with progress.ticking("asking what scores depend on"):  # an engine may take long to answer
            choices = condition_choices(labelled)
        progress.on_choices(choices)
    with Waiting(err()) as progress, progress.ticking("scoring golds"):
        samples = [entry for bound in tasks for entry in _samples(bound, count)]
    if as_json:
        print_json(samples)
    seen: set[str] = set()
    for entry in () if as_json else samples:
        print_out(*([""] if seen else []), _entry(entry, shows_tools=entry["task"] not in seen))
        seen.add(entry["task"])
    _check_scored(samples, {bound.label for bound in tasks if "gold" in bound.task.exempt})


def _check_scored(samples: Sequence[Mapping[str, Any]], exempt: Collection[str]) -> None:
    """Refuse golds without a score, and those that are not solved.

    Raises:
        GrpoError: there are some; names the first.
    """
    scored = [entry for entry in samples if entry["score"] is not None]
    missing = [entry for entry in scored if entry["score"]["value"] is None]
    unsolved = [entry for entry in scored if not entry["score"]["solved"] and entry["task"] not in exempt]
    if first := next(iter(missing or unsolved), None):
        what = "could not be scored: a run would leave such completions out"
        if not missing:
            what = "are not solved: the reward calls wrong what the row calls right. Correct them, or the reward"
        raise GrpoError(
            f"{len(missing or unsolved)} of {len(scored)} golds {what}. The first is that of row "
            f"{first['row']['id']!r} of {first['task']}, whose score says why."
        )


def _samples(bound: BoundTask, count: int) -> Iterable[dict[str, Any]]:
    """Yield rows with prompt, gold and the gold's score, which the killable scorer computes as in training."""
    conditions = dict(bound.conditions)
    if bound.config.size is None or bound.config.size > count:
        bound = bound.with_options(size=count)
    rows = bound.rows()
    golds = [row for row in rows if row.gold is not None]
    scores, told = {}, {}
    prompts: dict[str, Prompt] = {}
    if (golds or bound.task.has_tools) and bound.opponent is None:  # an opponent would need a model
        with Scorer(bound, workers=1) as scorer:
            scores = {
                row.id: score
                for row, score in zip(golds, scorer.score([str(row.gold) for row in golds], golds), strict=True)
            }
            told = {row.id: retold(scorer, row, str(row.gold)) for row in golds if bound.has_turns}
            prompts = {row.id: first_prompt(scorer, row) for row in rows}
    for row in rows:
        score = scores.get(row.id)
        yield {
            "task": bound.label,
            "row": row.model_dump(mode="json"),
            "prompt": prompts.get(row.id) or bound.prompt(row),
            "tools": [tool.spec for tool in bound.task.all_tools()],
            "gold": row.gold,
            "messages": told.get(row.id, ()),
            "score": None if score is None else score.as_json(),
            "conditions": conditions,
        }


def _entry(entry: dict[str, Any], *, shows_tools: bool) -> Any:
    listing = table("", "")
    if shows_tools and entry["tools"]:
        listing.add_row("tools", tools_text(entry["tools"]))
    listing.add_row("row", visible(orjson.dumps(entry["row"]).decode()))
    listing.add_row("prompt", readable(entry["prompt"]))
    gold = "-" if entry["gold"] is None else readable(entry["gold"])
    listing.add_row("gold", spoken(entry["messages"]) if entry["messages"] else gold)
    listing.add_row("score", _score(entry["score"]))
    return listing


def _score(score: dict[str, Any] | None) -> str:
    if score is None:
        return "-"
    if score["value"] is None:
        return visible(f"not scored ({score['fault']}): {score['why']}")
    parts = ", ".join(f"{name} {value:g}" for name, value in score["parts"].items())
    judged = "solved" if score["solved"] else "NOT SOLVED"
    why = f"   {score['why']}" if score["why"] else ""
    return visible(f"{score['value']:g}   {judged}   {parts}{why}")
