"""Episodes with tools to try: golds changed, calls made from schemas and what a prompt shows, and hostile arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from random import Random
from typing import Any

from grpo_sdk.check.answers import prompt_text
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score
from grpo_sdk.task.tools.calls import Call, ToolTurn, read_tool_turns, write_tool_turns
from grpo_sdk.task.tools.tool import Tool, pointed
from grpo_sdk.task.turns import TurnState

MAX_CALLS = 6
"""Calls of an episode that is made at random."""

MAX_LEVELS = 4
"""Levels of what is made from a schema, which may refer to itself."""

_NUMBER = re.compile(r"[0-9]{1,15}")
_WORDS = ("a", "1", "yes", "all", "north")
_KINDS: Mapping[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float)}

HOSTILE_ARGUMENTS: Mapping[str, Any] = {
    "null": None,
    "true": True,
    "a fraction": 1.5,
    "-1": -1,
    "0": 0,
    "a number of 30 digits": -(10**30),
    "a huge number": 1e300,
    "empty text": "",
    "a word that is none": "qxzjv",
    "a digit": "0",
    "a minus sign and digits": "-999999999999",
    "200,000 letters": "x" * 200_000,
    "50,000 parentheses": "(" * 50_000 + ")" * 50_000,
    "a tower of powers": "9**9**9**9",
    "a NUL": "4\x002",
    "a lone surrogate": "\ud800",
    "right-to-left marks": "\N{RIGHT-TO-LEFT OVERRIDE}24\N{POP DIRECTIONAL FORMATTING}",
    "digits of other scripts": "\N{ARABIC-INDIC DIGIT FOUR}\N{SUPERSCRIPT TWO}",
    "control characters": "".join(map(chr, range(1, 32))),
    "a path": "../../../../../no/such/folder/\x00file",
    "a shell command": "$(sleep 600); `sleep 600` | sleep 600 & #'\"",
    "format fields": "{0} {self.row} %s %n ${HOME} {{7*7}}",
    "an empty list": [],
    "an empty object": {},
    "a list of 10,000": [0] * 10_000,
}
"""Name -> a value that takes the place of an argument."""


def deep(levels: int) -> Any:
    """A list in a list, as often as `levels` says."""
    nested: Any = []
    for _ in range(levels):
        nested = [nested]
    return nested


@dataclass(frozen=True, slots=True)
class Plan:
    """An episode to play.

    Attributes:
        kind: What it is, for messages.
        row: Its row.
        turns: What the policy says and calls; the results are not looked at.
    """

    kind: str
    row: Row
    turns: tuple[ToolTurn, ...]

    @property
    def text(self) -> str:
        """The episode as a gold is written."""
        return write_tool_turns(self.turns, with_results=False)


@dataclass(frozen=True, slots=True)
class Played:
    """An episode that was played.

    Attributes:
        plan: What was planned.
        state: Its state at the end; a tool that failed is its `fault`.
        score: Its score; None where a tool failed.
    """

    plan: Plan
    state: TurnState
    score: Score | None

    @property
    def calls(self) -> list[Call]:
        """The calls that were answered, with their results."""
        return [call for turn in self.state.moves for call in turn.calls]


def play(scorer: Scorer, plans: Sequence[Plan]) -> list[Played]:
    """Play episodes beside each other, a turn of each in turn, and score them by their environments."""
    sessions = [scorer.session(plan.row) for plan in plans]
    states: list[TurnState] = [TurnState(())] * len(plans)
    for new in zip_longest(*(session.play(plan.turns) for session, plan in zip(sessions, plans, strict=True))):
        states = [state or before for state, before in zip(new, states, strict=True)]
    scores = [
        None if state.fault else session.score(write_tool_turns(state.moves)).result()
        for session, state in zip(sessions, states, strict=True)
    ]
    return [Played(*each) for each in zip(plans, states, scores, strict=True)]


def plan_of(kind: str, row: Row, tools: Sequence[Tool], prompt: str, seed: object) -> Plan:
    """An episode that calls tools in a random order, one a turn and those that end it last, and says nothing."""
    random = Random(f"{kind}/{seed}/{row.id}")
    order = sorted(random.sample(tools, len(tools)), key=lambda tool: tool.ends)
    values = shown_values(row, prompt)
    calls = [Call(tool.name, arguments_of(tool, values, random), "", ok=True) for tool in order]
    return Plan(kind, row, tuple(ToolTurn("", (call,)) for call in calls))


def calls_made(scorer: Scorer, row: Row, random: Random, *, is_blind: bool, says_result: bool) -> tuple[ToolTurn, ...]:
    """Play an episode of random calls as a policy may make them that doesn't know the answer.

    Args:
        scorer: Scorer of the task.
        row: The row.
        random: Chooses tools and arguments.
        is_blind: Whether arguments come from the schemas alone; else also from the prompt and from earlier results.
        says_result: Whether it says the last result at the end.

    Returns:
        Its turns.
    """
    tools, told, turns = scorer.task.task.all_tools(), list[TurnState](), list[ToolTurn]()
    lasting, count = [tool for tool in tools if not tool.ends] or tools, random.randint(1, MAX_CALLS)

    def chosen() -> Iterator[ToolTurn]:
        values = [] if is_blind else shown_values(row, prompt_text(told[0].prompt or ""))
        for number in range(count):
            tool = random.choice(tools if number == count - 1 else lasting)
            turns.append(ToolTurn("", (Call(tool.name, arguments_of(tool, values, random), "", ok=True),)))
            yield turns[-1]
            result = told[-1].moves[-1].calls[-1].result
            values += [] if is_blind else [result, *map(int, _NUMBER.findall(result))]
        if says_result:
            turns.append(ToolTurn(result))
            yield turns[-1]

    for state in scorer.session(row).play(chosen()):
        told.append(state)
    return tuple(turns)


def has_answer(calls: Iterable[Call], gold: str, tools: Sequence[Tool]) -> bool:
    """Whether the last call of a gold, which decides what it earns, is among calls; defaults written or not."""
    made = [call for turn in read_tool_turns(gold)[0] for call in turn.calls]
    return bool(made) and any(_meant(call, tools) == _meant(made[-1], tools) for call in calls)


def _meant(call: Call, tools: Sequence[Tool]) -> tuple[str, Mapping[str, Any]]:
    defaults = {
        name: schema["default"]
        for tool in tools
        if tool.name == call.name
        for name, schema in tool.parameters["properties"].items()
        if "default" in schema
    }
    return call.name, {**defaults, **call.arguments}


def shown_values(row: Row, prompt: str) -> list[Any]:
    """Texts and numbers that a policy may take for arguments: those of the row that its prompt shows, and its numbers.

    Args:
        row: The row.
        prompt: Text of its first prompt.
    """
    own = _leaves(row.model_dump(mode="json", exclude={"id", "gold", "difficulty"}))
    shown = [value for value in own if str(value).strip() and str(value) in prompt]
    return [*dict.fromkeys([*shown, *map(int, _NUMBER.findall(prompt))])]


def arguments_of(tool: Tool, values: Sequence[Any], random: Random) -> dict[str, Any]:
    """Arguments that a tool's schema describes, of given values where they fit; optional ones come half of the time."""
    return _made(tool.parameters, tool.parameters, values, random, 0)  # type: ignore[no-any-return]


def _made(schema: Any, root: Mapping[str, Any], values: Sequence[Any], random: Random, level: int) -> Any:
    def made(inner: Any) -> Any:
        return _made(inner, root, values, random, level + 1)

    if level > 2 * MAX_LEVELS:
        return None
    if not isinstance(schema, Mapping):  # true takes anything
        schema = {}
    if "$ref" in schema:
        return made(pointed(root, schema["$ref"]))
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return made(random.choice(schema[keyword]))
    if "const" in schema or "enum" in schema:
        return random.choice(schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    kind = random.choice(kind) if isinstance(kind, list) else kind
    fitting = [each for each in values if type(each) in _KINDS.get(str(kind), ())]
    if kind == "string" and not fitting:
        fitting = [str(each) for each in values]
    if fitting and random.random() < 0.8:
        return random.choice(fitting)
    if kind in ("integer", "number"):
        least = int(schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1))
        return random.randint(least, max(least, int(schema.get("maximum", schema.get("exclusiveMaximum", least + 10)))))
    if kind == "array":
        inner = schema.get("items", {})
        return [made(inner) for _ in range(random.randint(1, 2))] if level < MAX_LEVELS else []
    if kind == "object":
        needed = schema.get("required", ())
        inside = schema.get("properties", {}).items()
        return {name: made(each) for name, each in inside if name in needed or random.random() < 0.5}
    return {"boolean": random.random() < 0.5, "null": None}.get(str(kind), random.choice(_WORDS))


def _leaves(value: Any) -> Iterator[str | int | float]:
    if isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(each)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield value


def rewritten(gold: str, change: Callable[[str], str]) -> str:
    """A gold of which every text is changed, those and the numbers among the arguments of its calls, too."""
    turns = read_tool_turns(gold)[0]
    if turns == (ToolTurn(gold),):
        return change(gold)
    changed = [
        ToolTurn(
            change(turn.text),
            tuple(replace(call, arguments=_changed(call.arguments, change)) for call in turn.calls),
            turn.problem,
        )
        for turn in turns
    ]
    return write_tool_turns(changed, with_results=False)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _changed(each, change) for name, each in value.items()}
    if isinstance(value, list):
        return [_changed(each, change) for each in value]
    if isinstance(value, str):
        return change(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return type(value)(change(str(value) if isinstance(value, int) else f"{value:f}"))
    return value


def saying(gold: str, text: str) -> str:
    """A gold that says another text in its last turn."""
    turns = read_tool_turns(gold)[0]
    if turns == (ToolTurn(gold),):
        return text
    return write_tool_turns((*turns[:-1], replace(turns[-1], text=text)), with_results=False)
