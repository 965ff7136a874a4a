"""An explained score as a tree for a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from grpo_sdk.display.text import quoted, spoken, table, visible
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.explanation import Explanation, PartExplanation
from grpo_sdk.task.row import Message, Prompt, Row, prompt_text

MAX_SHOWN_CHARS = 4000
"""Longest prompt or completion shown: some pages of a terminal; --json has all of it."""

MAX_GOLD_CHARS = 200
"""Longest gold shown, on one line."""


def explanation_tree(
    task: BoundTask, row: Row, prompt: Prompt, text: str, explanation: Explanation, messages: Sequence[Message] = ()
) -> list[RenderableType]:
    """What `grpo explain` prints: the completion, and its score as a tree; untrusted text is escaped.

    Args:
        task: The task.
        row: Row of the completion.
        prompt: The first prompt.
        text: The completion.
        explanation: Its explained score.
        messages: Who said what in it, where it stands for several turns.
    """
    listing = table("", "")
    if task.task.has_tools:
        listing.add_row("tools", tools_text([tool.spec for tool in task.task.all_tools()]))
    listing.add_row("prompt", block(prompt_text(prompt)))
    if row.gold is not None and row.gold != text:
        listing.add_row("gold", quoted(row.gold, MAX_GOLD_CHARS))
    listing.add_row("text", spoken(messages) if messages else block(text))
    tree = Tree(_verdict(explanation))
    tree.add(_validator(explanation))
    if explanation.base is not None:
        tree.add(_labelled("value", visible(explanation.rule)))
        if explanation.base or all(part.contribution is None for part in explanation.parts):
            tree.add(_labelled("base", f"{explanation.base:+.4g}"))
    if task.task.judges() and explanation.score.value is not None and explanation.score.why:
        tree.add(_labelled("why", visible(explanation.score.why)))
    width = max((len(part.name) for part in explanation.parts), default=0)
    for part in explanation.parts:
        tree.add(_part(part, width))
    for spec in task.task.group_specs():
        tree.add(
            Text(f"{spec.name:<{width}}  compares all completions of a prompt: no part of one", style="bright_black")
        )
    heading = Text(visible(f"{task.spec}   row {row.id}"), style="bold")
    return [heading, listing, tree]


def tools_text(tools: Sequence[Mapping[str, Any]]) -> str:
    """Tools in OpenAI's form as people read them, one a line: `order(item: string, count: integer = 1)`."""
    return "\n".join(visible(_signature(**tool["function"])) for tool in tools)


def _signature(name: str, description: str, parameters: Mapping[str, Any]) -> str:
    needed, shown = parameters.get("required", ()), []
    for parameter, schema in parameters["properties"].items():
        given = isinstance(schema, Mapping) and "default" in schema
        default = "" if parameter in needed else f" = {json.dumps(schema['default']) if given else '…'}"
        shown.append(f"{parameter}: {_kind(schema)}{default}")
    first = description.strip().partition("\n")[0]
    return f"{name}({', '.join(shown)}){'   ' if first else ''}{first}"


def _kind(schema: Any) -> str:
    """What a schema takes, in a few words."""
    if not isinstance(schema, Mapping):
        return "any"
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return " | ".join(map(_kind, schema[keyword]))
    if "const" in schema or "enum" in schema:
        return " | ".join(map(json.dumps, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type") or schema.get("$ref", "any").rpartition("/")[2])


def block(text: str) -> Text:
    """Untrusted text in quotes with its line breaks, shortened to `MAX_SHOWN_CHARS`."""
    if len(text) > MAX_SHOWN_CHARS:
        text = (
            f"{text[: MAX_SHOWN_CHARS // 2]}…[{len(text) - MAX_SHOWN_CHARS} characters]…{text[-MAX_SHOWN_CHARS // 2 :]}"
        )
    return Text("\n".join(visible(line) for line in f'"{text}"'.split("\n")))


def _verdict(explanation: Explanation) -> Text:
    score = explanation.score
    if score.value is None:
        return Text.assemble(("NOT SCORED", "bold yellow"), f"   {visible(score.fault)}: {visible(score.why)}")
    judged = ("solved", "bold green") if score.solved else ("NOT SOLVED", "bold red")
    return Text.assemble((f"{score.value:.4g}   ", "bold"), judged)


def _validator(explanation: Explanation) -> Text:
    score = explanation.score
    if score.value is None:
        return _labelled("validator", "-")
    if score.valid:
        return _labelled("validator", f"answer {visible(explanation.answer)}" if explanation.answer else "valid")
    return _labelled("validator", Text(visible(score.why or "not valid"), style="red"))


def _labelled(label: str, what: str | Text) -> Text:
    return Text.assemble((f"{label}  ", "cyan"), what)


def _part(part: PartExplanation, width: int) -> Text:
    name = f"{visible(part.name):<{width}}  "
    if part.raw is None:
        return Text(f"{name}{part.why}", style="bright_black")
    if part.kind == "watched":
        return Text(f"{name}{part.raw:.4g}   {part.why}", style="bright_black")
    amount = f"{part.weight:g} × {part.raw:.4g}"
    if part.kind == "criterion":
        amount += f" of {part.maximum:g}"
    amount = f"weight {amount}"
    is_lost = part.raw < part.maximum if part.kind == "criterion" else part.weight * part.raw < 0
    earned = "" if part.contribution is None else f"{part.contribution:+.4g}"
    return Text.assemble(
        (name, "bold"),
        (f"{earned:>7}   ", "red" if is_lost else "green"),
        f"{amount}   {visible(part.why)}",
    )
