from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from grpo_sdk import Environment, InfrastructureError, Scorer, Task, UserError, reward, tool
from grpo_sdk.scoring.tool_workers import ToolSession
from grpo_sdk.task.tools.calls import Call, Reading, ToolCall, ToolTurn, read_tool_turns, write_tool_turns
from grpo_sdk.task.turns import TurnState

TASKS = Path(__file__).with_name("shop_tasks.py")


@pytest.fixture(scope="module")
def shop() -> Iterator[Scorer]:
    with Scorer(f"{TASKS}:SHOP", workers=1, tool_workers=1) as scorer:
        yield scorer


@pytest.fixture(scope="module")
def bad() -> Iterator[Scorer]:
    with Scorer(f"{TASKS}:BAD", workers=1, tool_workers=2) as scorer:
        yield scorer


@pytest.fixture(scope="module")
def forgiving() -> Iterator[Scorer]:
    with Scorer(f"{TASKS}:FORGIVING", workers=1, tool_workers=1) as scorer:
        yield scorer


def call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


def turn(session: ToolSession, *calls: ToolCall, before: Sequence[ToolTurn] = ()) -> TurnState:
    return session.answer(before, "said", Reading("said", calls=calls), "prompt").result()


def results(state: TurnState) -> list[str]:
    return [each.result for each in state.moves[-1].calls]


def test_an_episode_keeps_its_environment_until_it_is_scored(shop: Scorer) -> None:
    row = shop.task.rows()[1]
    session = shop.session(row)
    assert session.begin().result().prompt == "Buy 2 apple. You have 20 coins."
    looked = turn(session, call("look_up", item="apple"))
    assert looked.prompt == "\n<tool_result>3</tool_result>\n"
    ordered = turn(session, call("order", item="apple", count="2"), before=looked.moves)
    assert ordered.prompt is None, "order() ends the episode"
    text = write_tool_turns(ordered.moves)
    live = session.score(text).result()
    parts = {"right": 1.0, "looks": 1.0, "n_calls": 2.0, "valid_calls": 1.0}
    assert (live.value, live.parts, live.solved, list(live.seconds)[-1]) == (1.0, parts, True, "tools()")
    assert shop.score([text], [row]) == [live], "repeating the calls gives the same state"


def test_a_text_whose_results_are_not_those_of_the_tools_abstains(shop: Scorer) -> None:
    row = shop.task.rows()[0]
    forged = write_tool_turns([ToolTurn("a", (Call("look_up", {"item": "apple"}, "1", ok=True),))])
    assert shop.score([forged], [row])[0].why == "repeating the calls: look_up() of turn 1 gave '3', not '1'"


def test_a_gold_need_not_say_the_results(shop: Scorer) -> None:
    gold = '{"turns": [{"text": "", "calls": [{"name": "order", "arguments": {"item": "apple", "count": 1}}]}]}'
    assert shop.score([gold], [shop.task.rows()[0]])[0].solved


def test_what_stands_behind_the_end_of_an_episode_is_not_run(shop: Scorer) -> None:
    row = shop.task.rows()[1]
    session = shop.session(row)
    state = turn(session, call("order", item="apple", count=1), call("order", item="apple", count=1))
    assert results(state) == ["1 apple"] and state.prompt is None
    assert session.score(write_tool_turns(state.moves)).result().value == 0.0
    order = Call("order", {"item": "apple", "count": 1}, "1 apple", ok=True)
    for turns in ([ToolTurn("a", (order, order))], [ToolTurn("a", (order,)), ToolTurn("b", (order,))]):
        assert shop.score([write_tool_turns(turns)], [row])[0].value == 0.0, "neither in a text"


def test_wrong_calls_are_results_that_the_policy_reads(shop: Scorer) -> None:
    state = turn(
        shop.session(shop.task.rows()[0]),
        call("lookup", item="apple"),
        call("look_up", name="apple"),
        call("look_up"),
        call("look_up", item="fig"),
        ToolCall("", None, "broken JSON: Expecting value"),
        call("order", item="apple", count=1.5),
    )
    unknown, surplus, missing, refused, broken, fraction = results(state)
    assert "no tool 'lookup'. Did you mean 'look_up'?" in unknown
    assert "unknown argument 'name'" in surplus and "missing argument 'item'" in missing
    assert refused == "no fig here; there are apple, pear" and broken == "broken JSON: Expecting value"
    assert "count" in fraction
    assert not any(each.ok for each in state.moves[-1].calls)
    assert [each.ran for each in state.moves[-1].calls] == [False, False, False, True, False, False]


def test_episodes_of_one_worker_share_no_state(shop: Scorer) -> None:
    first, second = (shop.session(shop.task.rows()[0]) for _ in range(2))
    ordered = turn(first, call("order", item="apple"))
    assert first.score(write_tool_turns(ordered.moves)).result().solved
    assert not second.score(write_tool_turns([ToolTurn("nothing")])).result().valid


@pytest.mark.parametrize(
    ("asked", "fault", "why"),
    [
        (call("sleep", seconds=60), "timeout", "tool sleep(): no answer within 0.5 s"),
        (call("spin"), "timeout", "tool spin(): no answer within 0.5 s"),
        (call("leave"), "reward", "tool leave(): its worker exited with status 3"),
        (call("crash"), "reward", "tool crash() raised KeyError (shop_tasks.py:"),
        (call("image"), "reward", "tool image() returned builtins.bytes; return text"),
    ],
)
def test_a_broken_tool_abstains_and_is_named(bad: Scorer, asked: ToolCall, fault: str, why: str) -> None:
    state = turn(bad.session(bad.task.rows()[0]), call("long", length=1), asked)
    assert (state.fault, state.prompt) == (fault, None)
    assert state.why.startswith(f"task shop_tasks.bad: {why}")


@pytest.mark.parametrize(("name", "why"), [("spin", "no answer within"), ("leave", "its worker exited with status 3")])
def test_a_text_whose_tools_do_not_answer_names_its_calls(bad: Scorer, name: str, why: str) -> None:
    text = write_tool_turns([ToolTurn("", (Call("long", {"length": 1}, "x", ok=True), Call(name, {}, "", ok=True)))])
    score = bad.score([text], [bad.task.rows()[0]])[0]
    assert score.abstained and score.why.startswith(f"task shop_tasks.bad: repeating long() and {name}(): {why}")


@pytest.mark.parametrize("asked", [call("sleep", seconds=60), call("leave"), call("crash")])
def test_a_task_may_go_on_after_a_broken_tool(forgiving: Scorer, asked: ToolCall) -> None:
    session = forgiving.session(forgiving.task.rows()[0])
    state = turn(session, call("long", length=1), asked, call("long", length=2))
    assert [(each.ok, each.ran) for each in state.moves[-1].calls] == [(True, True), (False, False), (True, True)]
    text = write_tool_turns((*state.moves, ToolTurn("done")))
    assert session.score(text).result().solved and forgiving.score([text], [forgiving.task.rows()[0]])[0].solved


def test_the_other_episodes_of_a_killed_worker_go_on_with_their_state(shop: Scorer) -> None:
    session, restarts = shop.session(shop.task.rows()[1]), shop.stats.restarts
    looked = turn(session, call("look_up", item="apple"))
    assert turn(shop.session(shop.task.rows()[0]), call("haggle")).fault == "timeout"
    ordered = turn(session, call("order", item="apple", count=2), before=looked.moves)
    assert session.score(write_tool_turns(ordered.moves)).result().parts["looks"] == 1.0
    assert shop.stats.restarts == restarts + 1


def test_a_slow_tool_is_repeated_within_its_own_limit() -> None:
    with Scorer(f"{TASKS}:SLOW", workers=1, tool_workers=1) as scorer:
        row = scorer.task.rows()[0]
        session = scorer.session(row)
        state = turn(session, call("ponder"))
        text = write_tool_turns((*state.moves, ToolTurn("done")))
        for score in (session.score(text).result(), scorer.score([text], [row])[0]):
            assert score.solved and score.parts["waited"] >= 1.5


def test_an_environment_that_does_not_close_changes_no_score() -> None:
    with Scorer(f"{TASKS}:CLOSES", workers=1, tool_workers=1) as scorer:
        row = scorer.task.rows()[0]
        session = scorer.session(row)
        state = turn(session, call("knock"))
        assert session.score(write_tool_turns((*state.moves, ToolTurn("done")))).result().solved
        with pytest.warns(UserWarning, match=r"close\(\) of its environment failed: no answer within 1 s"):
            assert results(turn(scorer.session(row), call("knock"))) == ["who?"]


def test_a_failed_call_leaves_no_trace_in_the_state() -> None:
    with Scorer(f"{TASKS}:COUNTER", workers=1, tool_workers=1) as scorer:
        session = scorer.session(scorer.task.rows()[0])
        state = turn(session, call("add", count=1), call("add_and_cancel", count=100), call("add", count=1))
        assert [each.result for each in state.moves[-1].calls if each.ok] == ["1", "2"]


def test_calls_of_asynchronous_tools_run_together_also_where_they_are_repeated(bad: Scorer) -> None:
    session = bad.session(bad.task.rows()[0])
    turn(session, call("long", length=1))
    started = time.monotonic()
    state = turn(session, *[call("wait", seconds=0.5)] * 8)
    assert time.monotonic() - started < 2
    assert results(state) == ["0.5"] * 8
    started = time.monotonic()
    assert bad.score([write_tool_turns((*state.moves, ToolTurn("done")))], [bad.task.rows()[0]])[0].solved
    assert time.monotonic() - started < 2


def test_a_worker_that_somebody_kills_is_no_fault_of_a_tool(bad: Scorer) -> None:
    before = set(psutil.Process().children(recursive=True))
    with Scorer(f"{TASKS}:BAD", workers=1, tool_workers=1) as scorer:
        session = scorer.session(scorer.task.rows()[0])
        turn(session, call("long", length=1))
        state = session.answer((), "", Reading("", calls=(call("wait", seconds=30),)), "")
        time.sleep(0.5)
        for process in set(psutil.Process().children(recursive=True)) - before:
            if not process.children():
                process.kill()
        assert state.result().fault == "infrastructure"
        assert results(turn(session, call("long", length=2))) == ["xx"], "it goes on in another worker"


def test_a_closed_scorer_begins_no_episode() -> None:
    with Scorer(f"{TASKS}:SHOP", workers=1) as scorer:
        row = scorer.task.rows()[0]
    with pytest.raises(InfrastructureError, match="closed"):
        scorer.session(row)


def test_a_turn_has_bounded_calls_and_results(bad: Scorer) -> None:
    state = turn(bad.session(bad.task.rows()[0]), *[call("long", length=10_000_000)] * 200)
    assert len(state.moves[-1].calls) == 17
    assert results(state)[0].endswith("… [cut: 10,000 of 10,000,000 characters]")
    assert results(state)[-1] == "184 more calls were not run: a turn has at most 16."


def test_what_a_tool_has_started_ends_with_its_worker() -> None:
    with Scorer(f"{TASKS}:BAD", workers=1, tool_workers=1) as scorer:
        state = turn(scorer.session(scorer.task.rows()[0]), call("fork"))
        child = psutil.Process(int(results(state)[0]))
        assert child.is_running()
    child.wait(10)


NAN = '{"turns": [{"text": "", "calls": [{"name": "f", "arguments": {"x": NaN}}]}]}'
FORGED = write_tool_turns([ToolTurn("a", (Call("look_up", {}, "forged", ok=True, ran=False),))])
"""A call that did not run cannot be said to be ok."""


def test_any_text_is_read_and_what_is_written_is_read_back() -> None:
    turns = (
        ToolTurn("\ud800", (Call("f", {"x": [1, None, "é"]}, "r", ok=False, ran=False, are_texts=True),)),
        ToolTurn("cut", problem="the length limit cut a call off"),
    )
    assert read_tool_turns(write_tool_turns(turns)) == (turns, True)
    for text in ('{"turns": []}', '{"turns": [1]}', "[" * 100_000, '{"turns": [{"text": 1}]}', "\ud800", NAN, FORGED):
        assert read_tool_turns(text) == ((ToolTurn(text),), True)


class NeedsRow(Environment):
    def __init__(self, row: object) -> None: ...


class OverByCall(Environment):
    def is_over(self) -> bool: ...  # type: ignore[override]


class Waits(Environment):
    async def reset(self, row: object) -> None: ...  # type: ignore[override]


class Gathers(Environment):
    def reset(self, **row: object) -> None: ...  # type: ignore[override]


@tool
def sorted_words(text: str) -> str:
    return " ".join(sorted(text.split()))


@reward()
def counts(calls: tuple[Call, ...]) -> float:
    return float(len(calls))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rewards": (counts,)}, "takes 'calls', and the task has none"),
        ({"tools": (print,), "respond": lambda text: None}, "tools exclude each other"),
        ({"tools": (each for each in ())}, "must be a tuple"),
        ({"environment": 3}, "must be a subclass of Environment"),
        ({"environment": NeedsRow}, "is made without arguments"),
        ({"environment": OverByCall}, "is_over must be an attribute or a property"),
        ({"environment": Waits}, "neither async nor a tool"),
        ({"environment": Gathers}, "must name what it takes"),
        ({"validate": lambda text, environment: text, "tools": (sorted_words,)}, "takes 'environment'"),
        ({"tools": (lambda x: x,)}, "tool name '<lambda>'"),
        ({"environment": Environment}, "has no tool"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_the_task_is_made(options: dict[str, Any], message: str) -> None:
    options = {"rewards": (reward()(lambda text: 0.0),), "validate": lambda text: text, **options}
    with pytest.raises(UserError, match=message):
        Task("t", list, lambda row: "", **options)
