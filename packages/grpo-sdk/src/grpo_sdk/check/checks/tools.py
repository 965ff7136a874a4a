"""What the tools of a task do: with calls of golds, calls made from the schemas, and hostile arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from grpo_sdk.check.answers import prompt_text
from grpo_sdk.check.checks.scores import CURES
from grpo_sdk.check.limits import TOLERANCE
from grpo_sdk.check.probes import HOSTILE_ARGUMENTS, Played, arguments_of, deep, has_answer, play, shown_values
from grpo_sdk.check.results import Result, failed, not_applicable, passed, shown, warning
from grpo_sdk.check.subject import Subject
from grpo_sdk.check.worker import compared
from grpo_sdk.task.tools.calls import Call, Reading, ToolCall
from grpo_sdk.task.tools.tool import MAX_DEPTH, MAX_RESULT_CHARS, Tool
from grpo_sdk.task.turns import TurnState

AT_ONCE = 6
"""Episodes that are played beside each other."""

MOST = 0.5
"""Share of the rows on which calls may earn what the gold earns by luck."""

RAISE_TOOL_ERROR = "Raise ToolError(text) for what the policy did wrong: it reads the text, and the episode goes on."
BOUND_IT = "Bound what is read, computed and waited for, or state the limit that it needs: @tool(timeout_s=…)."


def schema(subject: Subject) -> Result:
    """Every tool and parameter is described, and arguments made from the schema are accepted."""
    tools = subject.task.task.all_tools()
    if subject.task.max_turns == 1 and (unread := [f"{tool.name}()" for tool in tools if not tool.ends]):
        return warning(
            "max_turns is 1, so that no result is read: the episode is over with the turn that calls",
            ", ".join(unread),
            "Give Task(…, max_turns=…): the most turns that follow each other, the answer among them.",
        )
    for tool in tools:
        made = [call for each in subject.played for call in each.calls if call.name == tool.name]
        if made and not any(call.ran for call in made):
            return warning(
                f"none of {len(made)} arguments made from the schema of {tool.name}() is accepted",
                f"{shown(_written(made[-1]))}: {made[-1].result}",
                "Say in the description what is allowed, or in the schema: Literal, pattern, ge and le.",
            )
    parameters = [(tool, name, each) for tool in tools for name, each in tool.parameters["properties"].items()]
    missing = [f"{tool.name}()" for tool in tools if not tool.description.strip()]
    missing += [f"{name} of {tool.name}()" for tool, name, each in parameters if not each.get("description", "")]
    if missing:
        return warning(
            f"{len(missing)} of {len(tools) + len(parameters)} tools and parameters have no description",
            ", ".join(missing),
            "Write a docstring with Args: it is what the policy knows about a tool.",
        )
    return passed(f"tools ({len(tools)}) and parameters ({len(parameters)}) are described, and take what is allowed")


def hang(subject: Subject) -> Result:
    """Ordinary calls end in time."""
    return _without(subject, lambda each: each.state.fault == "timeout", "end in time", BOUND_IT)


def crash(subject: Subject) -> Result:
    """Ordinary calls raise nothing but `ToolError`, and end no process."""
    return _without(subject, lambda each: each.state.fault not in ("", "timeout"), "raise nothing", RAISE_TOOL_ERROR)


def oversized(subject: Subject) -> Result:
    """The results of ordinary calls are read whole."""
    calls = [(each, call) for each in subject.played for call in each.calls]
    each, longest = max(calls, key=lambda pair: len(pair[1].result), default=(None, None))
    if each is None or longest is None:
        return not_applicable("no call was answered")
    if len(longest.result) > MAX_RESULT_CHARS:
        return failed(
            f"a result of {longest.name}() is cut: the policy reads {MAX_RESULT_CHARS:,} characters",
            f"row {each.plan.row.id!r}: {_written(longest)} -> {shown(longest.result)}",
            "Return less, a page of it, or take a parameter that says which part.",
        )
    return passed(f"{len(calls)} results have at most {len(longest.result):,} characters")


def arguments(subject: Subject) -> Result:
    """Every hostile argument gets a result; those of a tool are tried in one episode, while that goes on."""
    tools, row = subject.task.task.all_tools(), subject.rows[0]
    values = shown_values(row, prompt_text(subject.opened[subject.loaded.index(row)][1]))
    count = 0
    for tool in tools:
        state = TurnState(())
        for name, hostile in _hostile(tool, values):
            if state.prompt is None:
                session = subject.scorer.session(row)
                state = session.begin().result()
                opened = state.prompt or ""
            said = Reading("", calls=(ToolCall(tool.name, hostile),))
            state = state if state.fault else session.answer((), "", said, opened).result()
            count += 1
            if state.fault:
                return failed(
                    f"{tool.name}() fails on {name} ({state.fault})",
                    f"row {row.id!r}: {shown(_written(Call(tool.name, hostile, '', ok=True)))}: {state.why}",
                    BOUND_IT if state.fault == "timeout" else CURES.get(state.fault, RAISE_TOOL_ERROR),
                )
    return passed(f"{count} calls with hostile arguments got a result")


def _hostile(tool: Tool, values: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    random = Random(tool.name)
    for parameter in tool.parameters["properties"]:
        for name, value in {**HOSTILE_ARGUMENTS, "deep nesting": deep(MAX_DEPTH - 2)}.items():
            yield f"{name} as {parameter}", {**arguments_of(tool, values, random), parameter: value}


def repeat(subject: Subject) -> Result:
    """The same episodes in another process have the same results and scores."""
    again = subject.play_plans()
    for once, other in zip(subject.played, again, strict=False):
        if difference := _difference(once, other, "in another process"):
            return failed(
                *difference,
                "A result must follow from row and calls, since scores are asked for again. If chance is the task: "
                'exempt={"repeat": "…"}; such an episode is scored only where it was played.',
            )
    calls = sum(len(each.calls) for each in again)
    return passed(f"{calls} calls in {len(again)} episodes give the same results and scores in another process")


def state(subject: Subject) -> Result:
    """Episodes beside each other in one process are like each in a process of its own."""
    called = [each.plan for each in subject.played if each.calls]
    plans = called[:: max(1, len(called) // AT_ONCE)][:AT_ONCE]  # golds come first, other calls behind them
    if not plans:
        return not_applicable("no call was answered")
    with subject.new_scorer(len(plans) + 1) as scorer:
        apart = play(scorer, [*plans, plans[0]])
    with subject.new_scorer(len(plans) + 1) as scorer:
        again = play(scorer, [*plans, plans[0]])
    if any(_difference(one, two, "") for one, two in zip(apart, again, strict=True)):
        return not_applicable("the results differ by themselves; see repeat")
    with subject.new_scorer(1) as scorer:
        together = [*play(scorer, plans), *play(scorer, plans[:1])]
    for one, two in zip(apart, together, strict=True):
        if difference := _difference(one, two, "beside another episode"):
            return failed(
                *difference,
                "Keep the state of an episode in attributes that reset() sets: not in the class, a module or a file.",
            )
    return passed(f"{len(together)} episodes that share a process are like those that do not")


def pay(subject: Subject) -> Result:
    """Calls that are not the gold's do not earn what the gold earns."""
    golds = {each.row.id: each for each in subject.golds if each.score.value is not None and each.score.solved}
    tried: dict[str, list[Played]] = {}
    tools = subject.task.task.all_tools()
    for each in subject.played:
        row = each.plan.row.id
        if (
            each.calls
            and row in golds
            and each.score is not None
            and not has_answer(each.calls, golds[row].text, tools)
        ):
            tried.setdefault(row, []).append(each)
    if not tried:
        return not_applicable("no gold that was scored has other calls beside it")
    paid: dict[str, Played] = {}
    for row, episodes in tried.items():
        best = max(episodes, key=_value)
        if _value(best) >= (golds[row].score.value or 0.0) - TOLERANCE:
            paid[row] = best
    if len(paid) > MOST * len(tried):
        each = next(iter(paid.values()))
        return failed(
            f"calls that are not the gold's earn what it earns on {len(paid)} of {len(tried)} rows",
            f"row {each.plan.row.id!r}: {', '.join(map(_written, each.calls))} earns {_value(each):g}",
            "Compare the state that the calls leave, or the answer, with the row's; a call by itself is no solution.",
        )
    most = max(_value(each) for episodes in tried.values() for each in episodes)
    return passed(f"{sum(map(len, tried.values()))} episodes of other calls earn at most {most:g}")


def _value(each: Played) -> float:
    return each.score.value if each.score is not None and each.score.value is not None else float("-inf")


def _without(subject: Subject, is_failure: Callable[[Played], bool], words: str, advice: str) -> Result:
    """The result of a check that no episode fails in one way."""
    each = next((each for each in subject.played if is_failure(each)), None)
    if each is None:
        count = sum(len(each.calls) for each in subject.played)
        return passed(f"{count} calls of {len(subject.played)} episodes {words}")
    return failed(
        f"{each.plan.kind}: {each.state.why.partition(': ')[2]}",
        f"row {each.plan.row.id!r}: {shown(each.plan.text)}",
        CURES.get(each.state.fault, advice) if each.state.fault != "timeout" else advice,
    )


def _difference(one: Played, other: Played, where: str) -> tuple[str, str] | None:
    """What differs between two plays of an episode, and an example; None where nothing does."""
    row = f"row {one.plan.row.id!r}"
    for call, again in zip(one.calls, other.calls, strict=False):
        if (call.result, call.ok) != (again.result, again.ok):
            text = f"{call.name}() gives another result {where}"
            return text, f"{row}: {_written(call)} -> {shown(call.result)}, {where} {shown(again.result)}"
    if one.state.fault != other.state.fault:
        return f"an episode fails {where}", f"{row}: {shown(one.plan.text)}: {one.state.why or other.state.why}"
    if one.score is None or other.score is None or compared(one.score) == compared(other.score):
        return None
    values = f"{one.score.value} and {where} {other.score.value}"
    return f"the same calls have another score {where}", f"{row}: {shown(one.plan.text)}: {values}"


def _written(call: Call) -> str:
    return f"{call.name}({', '.join(f'{name}={json.dumps(value)}' for name, value in call.arguments.items())})"
