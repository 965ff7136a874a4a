"""`grpo explain`: why a completion gets its score."""

from __future__ import annotations

import sys
from typing import Any

import click

from grpo_sdk.cli.options import HELP, JSON, open_input
from grpo_sdk.display.explanation import explanation_tree
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import err, print_json, print_out
from grpo_sdk.episodes.player import first_prompt, retold
from grpo_sdk.errors import ExitCode, UserError
from grpo_sdk.plugins.tasks import load_task
from grpo_sdk.scoring.scorer import MAX_TEXT_CHARS, Scorer
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.explanation import explain as explain_score
from grpo_sdk.task.game import write_transcript
from grpo_sdk.task.rows import row_by_id
from grpo_sdk.task.tools.calls import Call, ToolTurn, read_tool_turns, turns_problem, write_tool_turns
from grpo_sdk.task.turns import read_turns, write_turns

EXAMPLES = """\b
Examples:
  grpo explain math.arithmetic
  grpo explain math.arithmetic --completion "<answer>12</answer>"
  grpo explain ./rhyme.py:couplet --row r3 --completion @answer.txt
  grpo explain ./shop.py:shop --completion '{"turns": [{"text": "", "calls": [{"name": "look", "arguments": {}}]}]}'
"""


@click.command(epilog=EXAMPLES, context_settings=HELP)
@click.argument("task", metavar="TASK")
@click.option(
    "--completion", metavar="TEXT", help="Completion: a text, @FILE, or - for stdin.  [default: the gold of the row]"
)
@click.option("--row", "row_id", metavar="ID", help="Row that it answers.  [default: the first]")
@click.option("--prediction", "predictions", metavar="TEXT", multiple=True, help="Answer of the task's opponent.")
@JSON
def explain(task: str, completion: str | None, row_id: str | None, predictions: tuple[str, ...], as_json: bool) -> None:
    """Show why a completion gets its score: validator, each part of the reward with its weight, and how they add up.

    The completion is scored in a separate process with the task's time limit, as in training. A file or stdin is used
    unchanged, with its last newline. The exit code is 1 if it could not be scored.
    """
    text = None if completion is None else read_completion(completion)
    bound = load_task(task)
    if bound.opponent is not None and not predictions:
        raise UserError(f"task {bound.name!r} has an opponent: give its answers with --prediction TEXT, repeatable.")
    if bound.opponent is None and predictions:
        raise UserError(f"--prediction: task {bound.name!r} has no opponent.")
    rows = bound.rows()
    row = rows[0] if row_id is None else row_by_id(rows, row_id, bound.spec)
    if text is None and row.gold is None:
        raise UserError(
            f"row {row.id!r} of task {bound.name!r} has no gold: give --completion TEXT. {turns_of(bound)}".rstrip()
        )
    text = text if text is not None else str(row.gold)
    if bound.task.has_tools and (problem := turns_problem(text)):
        what = "the gold" if completion is None else "--completion"
        raise UserError(f"{what} is no episode with tools: {problem}. {turns_of(bound)}")
    with Waiting(err()) as display, display.ticking("scoring"), Scorer(bound, workers=1) as scorer:
        score = scorer.score([text], [row], [predictions] if predictions else None)[0]
        prompt = first_prompt(scorer, row)
        messages = retold(scorer, row, text) if bound.has_turns else ()
        answer = scorer.answer(text, row).result() if score.valid else None
    explanation = explain_score(bound, score, answer)
    if as_json:
        facts: dict[str, Any] = {"task": bound.spec, "row": row.model_dump(mode="json"), "prompt": prompt}
        facts |= {"text": text, "messages": messages, "tools": [tool.spec for tool in bound.task.all_tools()]}
        print_json({**facts, **explanation.as_json()})
    else:
        print_out(*explanation_tree(bound, row, prompt, text, explanation, messages))
    has_turns = read_tool_turns(text)[0] != (ToolTurn(text),) if bound.task.has_tools else read_turns(text) != (text,)
    if bound.task.game is None and not has_turns and (hint := turns_of(bound)):
        click.echo(f"note: {hint}", err=True)
    if score.abstained:
        sys.exit(ExitCode.FAILED)


def turns_of(task: BoundTask) -> str:
    """How `--completion` gives the turns of a rollout; empty for a task of one turn."""
    if not task.has_turns:
        return ""
    if task.task.game is not None:
        return f"A game is its transcript: '{write_transcript(task.task.game.roles[0], ['MOVE', 'MOVE'])}'."
    if task.task.has_tools:
        tool = task.task.all_tools()[0]
        call = Call(tool.name, dict.fromkeys(tool.parameters["properties"], "…"), "", ok=True)
        turns = write_tool_turns([ToolTurn("FIRST", (call,)), ToolTurn("LAST")], with_results=False)
        return f"Turns with calls are given as '{turns}', whose results the tools give.".replace("\\u2026", "…")
    if task.task.validates_all_turns:
        return f"Several turns are given as '{write_turns(['FIRST', 'SECOND'])}'."
    return "Of several turns, the last completion is scored by itself: give that one."


def read_completion(argument: str) -> str:
    """Read the text of `--completion`: itself, `@FILE`, or `-` for stdin.

    Raises:
        UserError: the file cannot be read, or the text is longer than what is scored.
    """
    if argument != "-" and not argument.startswith("@"):
        return argument
    limit = 4 * MAX_TEXT_CHARS + 1  # bytes: a character has at most 4 in UTF-8
    if argument == "-":
        if sys.stdin.isatty():
            click.echo("reading the completion from the terminal; end it with Ctrl-D", err=True)
        data = sys.stdin.buffer.read(limit)
    else:
        hint = "For a text that begins with @, give it on stdin: -"
        with open_input(argument[1:], f"--completion {argument}", hint) as file:
            data = file.read(limit)
    text = data.decode("utf-8", "replace")
    if len(text) > MAX_TEXT_CHARS:
        raise UserError(f"--completion {argument}: longer than the {MAX_TEXT_CHARS} characters that are scored.")
    return text
