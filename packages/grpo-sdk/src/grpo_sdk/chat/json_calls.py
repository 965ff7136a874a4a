"""Calls that are JSON between marks, read from a completion, which may hold anything."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

from grpo_sdk.task.marks import thinking_marks
from grpo_sdk.task.row import Prompt
from grpo_sdk.task.tools.calls import Reading, ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
"""Stand around a call: `{"name": …, "arguments": {…}}`."""

MAX_CALLS = 256
"""Most calls of a completion."""

CUT_CALL = "the length limit cut a call off"
TOO_MANY_CALLS = f"there are more than {MAX_CALLS} calls"

MAX_DEPTH = 64
"""Deepest nesting of an argument."""

MAX_DIGITS = 1_000
"""Most digits of a number."""


class _Unreadable(ValueError):
    """What stands in a call that JSON has, or Python's reader takes, and no tool gets."""


def read_json_calls(text: str, *, is_thinking: bool, is_cut: bool) -> Reading:
    """Read a completion whose calls are JSON between `<tool_call>` and `</tool_call>`; takes linear time.

    A call is an object with a text `name` and an object `arguments`; further keys say nothing. A mark inside a string
    of a call is part of the string. What stands in thinking is no call, also where the thinking does not end. What
    cannot be read ends at the next mark, and is a call with a `problem`.

    Args:
        text: The completion.
        is_thinking: Whether it begins in thinking, which the prompt has opened.
        is_cut: Whether the length limit ended it.
    """
    marks = [(start, end, "thought" if is_end else "think") for start, end, is_end in thinking_marks(text)]
    marks = sorted((*marks, *((*mark.span(), mark[0]) for mark in _MARK.finditer(text))))
    starts = [mark[0] for mark in marks]
    thoughts: list[str] = []
    said: list[str] = []
    calls: list[ToolCall] = []
    at = located = thought_until = 0
    problem = ""
    for start, end, mark in marks:
        if start < at or (is_thinking and mark != "thought"):
            continue
        if mark == "thought" and not is_thinking:  # everything before it was thinking
            thoughts, said, calls, thought_until, at = [], [], [], start, end
        elif mark == "thought":
            thoughts.append(text[at:start])
            is_thinking, at = False, end
        elif mark == "think":
            said.append(text[at:start])
            is_thinking, at = True, end
        elif mark == OPEN:
            said.append(text[at:start])
            if located == MAX_CALLS:
                calls, at, problem = [], start, TOO_MANY_CALLS
                break
            located += 1
            name, arguments, wrong, at = _read_object(text, end)
            next_mark = bisect_left(starts, at)
            if next_mark == len(marks) and is_cut:
                at, problem = start, CUT_CALL
                break
            behind = marks[next_mark] if next_mark < len(marks) else (len(text), len(text), "")
            if not wrong and text[at : behind[0]].strip():
                wrong = f"behind the object stands {text[at : behind[0]].strip()!r:.40}: {CLOSE} must follow it"
            elif not wrong and behind[2] != CLOSE:
                wrong = f"{CLOSE} is missing behind the object"
            at = behind[1] if behind[2] == CLOSE else behind[0]
            calls.append(ToolCall(name, None, wrong) if wrong else judged(name, arguments))
    (thoughts if is_thinking else said).append(text[at:])
    thinking = (text[:thought_until] + "".join(thoughts)).strip()
    is_whole = len(said) == 1 and not (at or problem)
    return Reading(text if is_whole else "".join(said).strip(), thinking, tuple(calls), problem)


def read_answer(text: str, calls: Sequence[Any], prompt: Prompt, *, is_cut: bool) -> Reading:
    """Read an answer of an endpoint: its text, and the calls that it sends apart.

    Those are in OpenAI's form, `{"function": {"name": …, "arguments": …}}` with the arguments as JSON text, and may be
    anything; ids say nothing. Where none is sent apart, those in the text count, as in `read_json_calls`: an endpoint
    may not know how its model calls tools, and leaves in the text what it can't read.

    Args:
        text: The completion, its thinking between marks.
        calls: Calls that are sent apart.
        prompt: What was answered; a text, or the assistant's message that is continued, may begin its thinking.
        is_cut: Whether the length limit ended it.
    """
    continued = (
        prompt if isinstance(prompt, str) else "" if prompt[-1]["role"] != "assistant" else prompt[-1]["content"]
    )
    continued = continued[-100:].rstrip()
    marks = thinking_marks(continued)
    is_thinking = bool(marks) and marks[-1][1:] == (len(continued), False)
    reading = read_json_calls(text, is_thinking=is_thinking, is_cut=is_cut)
    if not calls:
        return reading
    if len(calls) > MAX_CALLS:
        return replace(reading, calls=(), problem=TOO_MANY_CALLS)
    read = tuple(read_call(call, is_cut=is_cut and call is calls[-1]) for call in calls)
    if is_cut and read[-1].arguments is None:
        return replace(reading, calls=read[:-1], problem=CUT_CALL)
    return replace(reading, calls=read)


def read_call(call: Any, *, is_cut: bool = False) -> ToolCall:
    """A call in OpenAI's form, which may be anything; with a problem where it is none.

    Args:
        call: The call.
        is_cut: Whether the length limit ended it.
    """
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return ToolCall("", None, 'a call must have a "function" with "name" and "arguments"')
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(arguments, str):
        return judged(name, arguments)
    if not arguments.strip() and not is_cut:  # as many write that there are none
        arguments = "{}"
    value, problem, end = _decoded(arguments, 0)
    if not problem and arguments[end:].strip():
        problem = f"behind the arguments stands {arguments[end:].strip()!r:.40}"
    named = judged(name, {})
    return replace(named, arguments=None, problem=named.problem or problem) if problem else judged(name, value)


def judged(name: Any, arguments: Any, *, are_texts: bool = False) -> ToolCall:
    """A call of what a parser found, which may be anything; with a problem unless it names a tool with arguments."""
    if not isinstance(name, str) or not name:
        return ToolCall("", None, f'"name" must be the name of a tool, not {_shown(name)}')
    if not isinstance(arguments, dict):
        return ToolCall(name, None, f'"arguments" must be an object, e.g. {{}}, not {_shown(arguments)}')
    try:
        _check([name, arguments])
    except _Unreadable as error:
        return ToolCall("" if any("\ud800" <= each <= "\udfff" for each in name) else name, None, str(error))
    return ToolCall(name, arguments, are_texts=are_texts)


def _read_object(text: str, start: int) -> tuple[Any, Any, str, int]:
    """(name, arguments, problem, place behind what could be read) of the JSON that begins at a place."""
    value, problem, end = _decoded(text, start)
    if problem:
        return "", None, problem, end
    if not isinstance(value, dict):
        return "", None, f'a call must be an object with "name" and "arguments", not {_shown(value)}', end
    missing = [key for key in ("name", "arguments") if key not in value]
    if missing:
        problem = f'"{missing[0]}" is missing; the object has {", ".join(map(repr, value)) or "no key"}'
        return value.get("name", "") if isinstance(value.get("name"), str) else "", None, problem[:200], end
    return value["name"], value["arguments"], "", end


def _decoded(text: str, start: int) -> tuple[Any, str, int]:
    """(value, problem, place behind what could be read) of the JSON that begins at a place."""
    begin = _BLANKS.match(text, start).end()  # type: ignore[union-attr]  # it matches nothing too
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except json.JSONDecodeError as error:
        problem = f"broken JSON: {error.msg} at character {error.pos - start + 1}, {_at(text, error.pos)}"
        if error.msg.startswith("Unterminated string") and text.endswith(CLOSE):
            problem += rf"; a string that holds {CLOSE} writes it as <\/tool_call>"
        return None, problem, error.pos
    except RecursionError:
        return None, f"the JSON is nested deeper than {MAX_DEPTH}", begin
    except _Unreadable as error:
        return None, str(error), begin
    return value, "", end


def _at(text: str, place: int) -> str:
    return f"at {text[place : place + 20]!r}" if text[place:] else "where the text ends"


def _shown(value: Any) -> str:
    if value is None or isinstance(value, list | dict):
        return "null" if value is None else "a list" if isinstance(value, list) else "an object"
    return f"{value!r:.40}"


def _check(value: Any) -> None:
    """Refuse what cannot be sent to a tool: half of a surrogate pair, NaN, and nesting without end."""
    inner = [(value, 0)]
    while inner:
        each, depth = inner.pop()
        if depth > MAX_DEPTH:
            raise _Unreadable(f"the JSON is nested deeper than {MAX_DEPTH}")
        if isinstance(each, str):
            try:
                each.encode()
            except UnicodeEncodeError as error:
                raise _Unreadable(f"{each[error.start]!a} is half of a surrogate pair, which is no text") from None
        elif isinstance(each, float) and not math.isfinite(each):
            raise _Unreadable(f"{each} is no number of JSON")
        elif isinstance(each, dict):
            inner += [(part, depth + 1) for item in each.items() for part in item]
        elif isinstance(each, list):
            inner += [(part, depth + 1) for part in each]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        (key, _), *_ = (Counter(key for key, _ in pairs)).most_common(1)
        raise _Unreadable(f"the key {key!r:.40} stands twice in an object")
    return made


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _Unreadable(f"a number has {len(digits)} digits; {MAX_DIGITS} are allowed")
    return int(digits)


def _no_constant(name: str) -> NoReturn:
    raise _Unreadable(f"{name} is no number of JSON")


_MARK = re.compile(f"{OPEN}|{CLOSE}")
_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_constant=_no_constant)
