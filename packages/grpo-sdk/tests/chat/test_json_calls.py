from __future__ import annotations

import json
import time
from typing import Any

import pytest

from grpo_sdk.chat.json_calls import MAX_CALLS, read_json_calls
from grpo_sdk.task.tools.calls import Reading, ToolCall


def read(text: str, *, is_thinking: bool = False, is_cut: bool = False) -> Reading:
    return read_json_calls(text, is_thinking=is_thinking, is_cut=is_cut)


def call(name: str = "add", **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


ADD = ToolCall("add", {"a": 1})


def test_text_and_calls_are_told_apart() -> None:
    assert read(f"Look: {call(a=1)}\n{call('sub', b=[1, {'c': None}])} done") == Reading(
        "Look: \n done", calls=(ADD, ToolCall("sub", {"b": [1, {"c": None}]}))
    )
    assert read("  an answer </tool_call>\n") == Reading("  an answer </tool_call>\n"), "as it stands"
    assert read(f"<tool_call>\n  {call(a=1)[11:-12]} \n</tool_call>").calls == (ADD,)
    assert read(call(a=1) * 3).calls == (ADD, ADD, ADD), "each of them, also if they are equal"


def test_a_mark_inside_a_string_is_part_of_it() -> None:
    code = 'print("</tool_call><tool_call>{}")  # <think> </think>'
    assert read(f"{call(code=code)}{call(a=1)}").calls == (ToolCall("add", {"code": code}), ADD)


def test_values_are_those_of_json() -> None:
    written = '{"x": 1.0, "y": 1e3, "z": 123456789012345678901234567890, "t": "true", "n": null, "b": true, "": ""}'
    (found,) = read(f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>').calls
    assert repr(found.arguments) == repr(json.loads(written))


@pytest.mark.parametrize(("text", "reading"), [
    (f"<think>{call(a=2)}</think>{call(a=1)}", Reading("", call(a=2), (ADD,))),
    (f"<think>I {call(a=2)}", Reading("", f"I {call(a=2)}")),
    (f"I {call(a=2)} </think>\nso {call(a=1)}", Reading("so", f"I {call(a=2)}", (ADD,))),
    (f"<think>a<think>{call(a=2)}</think>so {call(a=1)}<think>b</think>",
     Reading("so", f"a<think>{call(a=2)}b", (ADD,))),
])  # fmt: skip
def test_a_call_in_thinking_is_none(text: str, reading: Reading) -> None:
    assert read(text) == reading


def test_thinking_that_the_prompt_began_hides_calls() -> None:
    assert read(call(a=1), is_thinking=True) == Reading("", call(a=1))
    assert read(f"hm</think>{call(a=1)}", is_thinking=True) == Reading("", "hm", (ADD,))


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("", "broken JSON: Expecting value at character 1, at '</tool_call>"),
        ('{"name": "add", "arguments": {"a": NaN}}', "NaN is no number of JSON"),
        ('{"name": "add", "arguments": {"a": 1e999}}', "inf is no number of JSON"),
        (f'{{"name": "add", "arguments": {{"a": {"9" * 5000}}}}}', "a number has 5000 digits; 1000 are allowed"),
        (f'{{"name": "add", "arguments": {{"a": {"[" * 99}{"]" * 99}}}}}', "nested deeper than 64"),
        ('{"name": "add", "arguments": {"a": "\\ud800"}}', "'\\ud800' is half of a surrogate pair"),
        ('{"name": "\\ud800", "arguments": {}}', "half of a surrogate pair"),
        ('{"name": "add", "arguments": {"a": 1, "a": 2}}', "the key 'a' stands twice in an object"),
        ('{"name": "add", "arguments": [1]}', '"arguments" must be an object, e.g. {}, not a list'),
        ('{"name": "add", "parameters": {}}', "\"arguments\" is missing; the object has 'name', 'parameters'"),
        ('{"name": 5, "arguments": {}}', '"name" must be the name of a tool, not 5'),
        ('{"name": "", "arguments": {}}', "not ''"),
        ('{"arguments": {}}', "\"name\" is missing; the object has 'arguments'"),
        ("{}", '"name" is missing; the object has no key'),
        ("7", 'a call must be an object with "name" and "arguments", not 7'),
        ('{"name": "add", "arguments": {}} and more', "behind the object stands 'and more'"),
    ],
)
def test_a_malformed_call_says_what_is_wrong_and_hides_no_other(inside: str, problem: str) -> None:
    first, wrong, last = read(f"{call(a=1)}<tool_call>{inside}</tool_call>{call(a=1)}").calls
    assert first == last == ADD
    assert wrong.arguments is None and problem in wrong.problem and len(wrong.problem) < 300
    assert wrong.name in ("", "add")


def test_a_call_inside_a_call_is_the_inner_one() -> None:
    outer, inner = read(f"<tool_call>{call(a=1)}</tool_call>").calls
    assert "Expecting value" in outer.problem and inner == ADD
    outer, inner = read(f"{call(a=2).removesuffix('</tool_call>')}{call(a=1)}").calls
    assert outer == ToolCall("add", None, "</tool_call> is missing behind the object") and inner == ADD


@pytest.mark.parametrize("length", [11, 12, 25, 40, 50, len(call(a=1)) - 1])
def test_a_call_that_the_limit_cut_off_makes_the_turn_invalid(length: int) -> None:
    cut = read(f"Look: {call(a=1)} {call(a=1)[:length]}", is_cut=True)
    assert (cut.problem, cut.calls) == ("the length limit cut a call off", (ADD,))
    assert read(f"{call(a=1)} and", is_cut=True).problem == "", "only text was cut"
    ended = read(f"Look: {call(a=1)} {call(a=1)[:length]}")
    assert not ended.problem and ended.calls[1].problem, "the model itself ended the turn"


def test_a_stop_string_inside_a_string_says_how_to_write_it() -> None:
    (cut,) = read('<tool_call>{"name": "run", "arguments": {"code": "a </tool_call>').calls
    assert cut.problem.endswith(r"; a string that holds </tool_call> writes it as <\/tool_call>")
    assert read(r'<tool_call>{"name": "run", "arguments": {"code": "<\/tool_call>"}}</tool_call>').calls == (
        ToolCall("run", {"code": "</tool_call>"}),
    )


def test_more_calls_than_the_bound_make_the_turn_invalid() -> None:
    assert len(read(call(a=1) * MAX_CALLS).calls) == MAX_CALLS
    assert read(call(a=1) * (MAX_CALLS + 1)).problem == "there are more than 256 calls"


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" * 90_000,
        '<tool_call>"' * 80_000,
        "<think></think>" * 60_000 + "<tool_call>",
        "</think><tool_call>" * 50_000,
        "<tool_call>" + " " * 10**6,
        "<tool_call>" + "[" * 10**6,
        '<tool_call>{"a": "' + "\\\\" * 500_000,
        '<tool_call>{"name": "f", "arguments": {' + ", ".join(f'"{key}": 1' for key in range(90_000)) + ', "0": 1}}',
        f'<tool_call>{{"name": "f", "arguments": {{"a": [{"[1], " * 200_000}1]}}}}</tool_call>',
        f"<tool_call>{'9' * 10**6}</tool_call>",
    ],
    ids=range(10),
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    start = time.process_time()
    read(text), read(text, is_cut=True), read(text, is_thinking=True)
    assert time.process_time() - start < 5.0
