"""Environments of OpenEnv whose actions are calls of tools, as openenv 0.10.0 answers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from environments import Environment, Session, called, environment
from trained_tools import check_that_a_run_trains

from grpo_sdk import BoundTask, Score, Scorer, UserError, load_task

ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
SAY = {
    "name": "say",
    "description": "Say the sum.",
    "input_schema": {"type": "object", "properties": {"total": {"type": "string"}}, "required": ["total"]},
}
SCHEMA = {
    "action": {"properties": {"type": {}, "tool_name": {"type": "string"}, "arguments": {}, "metadata": {}}},
    "observation": {"properties": {"tool_name": {"type": "string"}, "result": {}, "error": {}}},
}


def answer(observation: dict[str, Any], reward: Any = None, done: bool = False) -> dict[str, Any]:
    return {
        "type": "observation",
        "data": {"observation": {"metadata": {}, **observation}, "reward": reward, "done": done},
    }


def text(value: object, kind: str = "text") -> dict[str, Any]:
    content = [{"type": kind, "text": str(value), "annotations": None}]
    return {"result": {"content": content, "data": value, "is_error": False}, "error": None}


def failed(kind: str, message: str) -> dict[str, Any]:
    return {"result": None, "error": {"error_type": kind, "message": message}}


def first(session: Session, _: Any) -> Any:
    return answer({"metadata": {"question": f"What is {session.seed % 10} + 1?"}}, 0.0)


def sums(session: Session, action: dict[str, Any]) -> Any:
    """`add` costs a bit, `say` ends the episode; some arguments go wrong in their way."""
    if action["type"] == "list_tools":
        return answer({"tools": [ADD, SAY]})
    given = action["arguments"]
    if action["tool_name"] == "say":
        rewards = {"NaN": None, str(session.seed % 10 + 1): 1.0}
        return answer(text("heard"), rewards.get(given["total"], 0.0), True)
    wrong = {
        1: answer(failed("execution_error", "1 is no number to add")),
        2: None,
        3: answer(failed("timeout", "Tool 'add' timed out after 30.0 seconds")),
        4: answer(text("", "image"), 0.0),
        5: {"type": "error", "data": {"code": "EXECUTION_ERROR", "message": "a bug"}},
        6: answer(text(6), None),
    }
    return wrong[given["a"]] if given["a"] in wrong and not given["b"] else answer(text(given["a"] + given["b"]), -0.1)


def bound(address: str, **options: Any) -> BoundTask:
    options = {"actions": "tools", "observation": "metadata.question", "size": 2, **options}
    return load_task(f"openenv.remote?url={quote(address, safe='')}", **options)


@contextmanager
def served(step: Callable[[Session, Any], Any] = sums, **options: Any) -> Iterator[Environment]:
    with environment(step, options.pop("first", first), schema=SCHEMA, **options) as server:
        yield server


def playing(task: BoundTask) -> Scorer:
    return Scorer(task, workers=1, tool_workers=1)


def scored(scorer: Scorer, *turns: list[tuple[str, dict[str, Any]]]) -> tuple[list[str], Score]:
    calls, score, _ = called(scorer, scorer.task.rows()[0], turns)
    return [call.result for turn in calls for call in turn], score


def test_the_tools_of_an_environment_are_the_tasks() -> None:
    with served() as server:
        task = bound(server.address)
        row = task.rows()[0]
        seed = int(row.id.removeprefix("seed-"))
        assert task.prompt(row) == f"What is {seed % 10} + 1?"
        assert [tool.spec["function"] for tool in task.task.all_tools()] == [
            {"name": each["name"], "description": each["description"], "parameters": each["input_schema"]}
            for each in (ADD, SAY)
        ]
        say = ("say", {"total": str(seed % 10 + 1)})
        with playing(task) as scorer:
            results, score = scored(scorer, [("add", {"a": "3", "b": 4})], [say], [("add", {"a": 3, "b": 4})])
    assert results == ["7", "heard"], "with which the episode is over"
    assert score.value == pytest.approx(0.9) and score.parts["finished"] == 1.0 and score.parts["turns"] == 2.0


def test_each_episode_has_a_session_of_its_own() -> None:
    with served() as server:
        task = bound(server.address)
        task.rows()
        before = server.sessions
        with Scorer(task, workers=1, tool_workers=2) as scorer:
            sessions = [scorer.session(task.rows()[number % 2]) for number in range(6)]
            for session in sessions:
                assert session.begin().result().prompt
            assert server.open == 6
        assert server.sessions - before <= 6 + 2, "and each worker lists the tools once"


def test_rewards_are_the_environments_or_none() -> None:
    add, say = ("add", {"a": 1, "b": 1}), ("say", {"total": "x"})
    with served() as server, playing(bound(server.address)) as scorer:
        with playing(bound(server.address, reward="last")) as last:
            assert scored(last, [add], [say])[1].value == 0.0
        assert scored(scorer)[1].value == 0.0, "nothing was asked of it"
        assert scored(scorer, [add], [add])[1].value == pytest.approx(-0.2)
        assert scored(scorer, [add], [say])[1].value == pytest.approx(-0.1)
        results, score = scored(scorer, [("add", {"a": 1, "b": 0})])
        assert (results, score.value) == (["1 is no number to add"], 0.0), "the policy's mistake"
        for turns in ([[add], [("say", {"total": "NaN"})]], [[("add", {"a": 6, "b": 0})]]):
            score = scored(scorer, *turns)[1]
            assert score.fault == "infrastructure" and "no reward, or NaN" in score.why


@pytest.mark.parametrize(("a", "why"), [
    (2, "no answer within 1.5 s"),
    (3, "timed out after 30.0 seconds"),
    (4, "tool add() returned a block of type 'image', and the policy reads text only"),
    (5, "EXECUTION_ERROR: a bug"),
])  # fmt: skip
def test_what_is_not_the_policys_fault_abstains_and_ends_the_session(a: int, why: str) -> None:
    with served() as server:
        task = bound(server.address, timeout_s=1.5)
        task.rows()
        with playing(task) as scorer:
            before = server.sessions
            _, score, said = called(scorer, task.rows()[0], [[("add", {"a": a, "b": 0})], [("add", {"a": 1, "b": 1})]])
            assert score.abstained and why in score.why and "tool add()" in said
            assert server.sessions - before == 2, "no call is sent again, on no other session"


def test_a_list_that_is_empty_is_refused_with_the_reason() -> None:
    empty = {"tools": [], "metadata": {"error": "tool x has no description", "error_type": "list_tools_failed"}}
    for step, why in (
        (lambda session, action: answer(empty), "list_tools gave no tools: tool x has no description"),
        (lambda session, action: answer({"tools": []}), "list_tools gave no tools: it does not say why"),
        (lambda session, action: answer({"tools": [{"name": "x"}]}), "is no tool"),
    ):
        with served(step) as server, pytest.raises(UserError, match=why):
            bound(server.address)
    invalid = {"type": "error", "data": {"code": "VALIDATION_ERROR", "message": "guess: Field required"}}
    with served(lambda session, action: invalid) as server, pytest.raises(UserError, match="guess: Field required"):
        bound(server.address)


def test_a_list_that_changes_is_named() -> None:
    listed = [ADD, SAY]

    def step(session: Session, action: dict[str, Any]) -> Any:
        return answer({"tools": listed})

    with served(step) as server:
        task = bound(server.address)
        task.rows()
        listed.pop()
        with playing(task) as scorer:
            assert "its tools are not those of the run's beginning" in scored(scorer)[1].why


def test_a_full_server_is_waited_for_and_named() -> None:
    with served(most=1) as server:
        task = bound(server.address, timeout_s=1.5, sessions=1)
        row = task.rows()[0]
        with playing(task) as scorer:
            kept = scorer.session(row)
            assert kept.begin().result().prompt
            other = scorer.session(row).begin().result()
            assert other.fault == "infrastructure" and "raise the server's max_concurrent_envs" in other.why


@pytest.mark.parametrize(("options", "message"), [
    ({"actions": "text"}, "its actions are calls of tools; give actions=tools"),
    ({"observation": "metadata.quest"}, "Did you mean 'metadata.question'"),
    ({"observation": ""}, "observation=metadata.question"),
])  # fmt: skip
def test_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    with served() as server, pytest.raises(UserError, match=message):
        bound(server.address, **options).rows()


def test_an_instruction_alone_may_be_the_prompt() -> None:
    with served() as server:
        task = bound(server.address, observation="", instruction="Add.")
        assert task.prompt(task.rows()[0]) == "Add."
        chat = bound(server.address, observation="", instruction="Add.", chat=True)
        assert chat.prompt(chat.rows()[0]) == ({"role": "user", "content": "Add."},)


def test_a_run_trains_on_the_tools(tmp_path: Path) -> None:
    with served() as server:
        options = "actions=tools&observation=metadata.question&max_turns=3"
        spec = f"openenv.remote?url={quote(server.address, safe='')}&{options}"
        check_that_a_run_trains(spec, [["add", {"a": 7, "b": 1}], ["say", {"total": "8"}]], str(tmp_path))
