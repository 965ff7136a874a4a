"""Tasks of inspect-ai with tools; tests/test_foreign_tasks.py runs this in an environment that has it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai")

from environments import called
from inspect_ai import eval as run_eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.tool import ToolCall
from trained_tools import check_that_a_run_trains

from grpo_sdk import BoundTask, Scorer, UserError, load_task

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of inspect-ai

EVALS = Path(__file__).with_name("evals.py")


def bound(name: str, **options: Any) -> BoundTask:
    return load_task("inspect.task", file=EVALS, name=name, **{"split_by": "none", "maximum": "9", **options})


def look(place: Any) -> tuple[str, dict[str, Any]]:
    return "look", {"place": place}


def submit(answer: str) -> tuple[str, dict[str, Any]]:
    return "submit", {"answer": answer}


@pytest.fixture(scope="module")
def looking() -> Iterator[Scorer]:
    with Scorer(bound("looking"), workers=1, tool_workers=1, timeout_s=8) as scorer:
        yield scorer


def test_tools_and_prompts_are_what_the_solvers_show() -> None:
    task = bound("looking")
    (tool,) = task.task.all_tools()
    assert (tool.name, tool.description) == ("look", "Look at a place.")
    assert tool.parameters["properties"]["place"] == {"type": "integer", "description": "Its number."}
    assert [message["role"] for message in task.prompt(task.rows()[0])] == ["system", "user"]  # type: ignore[index]
    agent = bound("agent")
    assert [tool.name for tool in agent.task.all_tools()] == ["look", "submit"]
    assert "call the submit() tool" in agent.prompt(agent.rows()[0])[0]["content"]  # type: ignore[index]


def test_an_episode_has_a_store_of_its_own(looking: Scorer) -> None:
    rows = looking.task.rows()
    _, score, _ = called(looking, rows[3], [[look("3"), look(2)], []], ["", "it is w3"])
    assert score.parts == {
        "includes": 1.0, "few_looks_looks": 2.0, "few_looks_said": 2.0, "n_calls": 2.0, "valid_calls": 1.0
    }  # fmt: skip
    _, score, _ = called(looking, rows[2], [[look(1)]])
    assert (score.parts["few_looks_looks"], score.parts["includes"]) == (1.0, 0.0), "cut off after a call"


def test_a_mistake_is_read(looking: Scorer) -> None:
    (calls,), _, _ = called(looking, looking.task.rows()[0], [[look(5), look(6), look([]), submit("x")]])
    assert [call.ok for call in calls] == [False] * 4
    assert [call.result for call in calls[:2]] == ["there is no place 5", "Command timed out before completing."]
    assert "not of type 'integer'" in calls[2].result and calls[3].result.startswith("no tool 'submit'")


@pytest.mark.parametrize(("place", "why"), [
    (7, "tool look() raised ZeroDivisionError"),
    (8, "tool look(): no answer within 8 s"),
    (9, "tool look() returned image, and the policy reads text only"),
])  # fmt: skip
def test_what_is_not_the_policys_fault_abstains(looking: Scorer, place: int, why: str) -> None:
    _, score, _ = called(looking, looking.task.rows()[0], [[look(place)]])
    assert score.abstained and why in score.why


@pytest.mark.parametrize("name", ["agent", "basic"])
def test_an_agents_submission_ends_the_episode(name: str) -> None:
    with Scorer(bound(name), workers=1, tool_workers=1) as scorer:
        row = scorer.task.rows()[3]
        calls, score, _ = called(scorer, row, [[look(3)], [submit("w3"), look(3)], [look(3)]])
        assert len(calls) == 2 and len(calls[1]) == 1, "what stands behind it is not run"
        assert score.parts["includes"] == 1.0
        assert called(scorer, row, [[look(3)], []], ["", "w3"])[1].parts["includes"] == 1.0, "it may go without"


def test_an_agent_with_attempts_goes_on() -> None:
    with Scorer(bound("agent", args="attempts:2"), workers=1, tool_workers=1) as scorer:
        calls, score, _ = called(scorer, scorer.task.rows()[3], [[submit("w1")], [submit("w3")], [look(3)]])
    assert "incorrect" in calls[0][0].result and len(calls) == 2 and score.parts["includes"] == 1.0


def test_calls_that_a_human_approves_are_refused() -> None:
    with pytest.raises(UserError, match="wait for approval"):
        bound("approved")


def test_a_run_trains_on_the_tools(tmp_path: Path) -> None:
    spec = f"inspect.task?file={EVALS}&name=looking&split_by=none&maximum=9&chat=false&max_turns=3"
    check_that_a_run_trains(spec, [look(3), look(5)], str(tmp_path))


Turns = list[tuple[str, list[tuple[str, dict[str, Any]]]]]

EPISODES: dict[str, list[Turns]] = {
    "looking": [
        [("w0", [])],
        [("I look.", [look(1)]), ("w1", [])],
        [("", [look(1), look(2)]), ("", [look(5)]), ("it is w2", [])],
        [("", [look("x")]), ("", [look(6)]), ("w1", [])],
    ],
    "agent": [
        [("", [submit("w0")])],
        [("I look.", [look(1)]), ("", [submit("w1")])],
        [("", [look(2), look(1)]), ("So.", [submit("w3")])],
    ],
    "basic": [[("", [look(0)]), ("", [submit("w0")])], [("", [submit("w5")])]],
}
"""Task -> episodes of its samples, each turn a text and its calls."""


@pytest.mark.parametrize("name", EPISODES)
def test_inspect_ais_own_run_gives_the_same_scores(name: str, tmp_path: Path) -> None:
    with Scorer(bound(name), workers=1, tool_workers=1) as scorer:
        for number, turns in enumerate(EPISODES[name]):
            outputs = [_output(text, calls) for text, calls in turns]
            model = get_model("mockllm/model", custom_outputs=outputs, memoize=False)
            (log,) = run_eval(
                f"{EVALS}@{name}", model=model, sample_id=f"place {number}", display="none", log_dir=str(tmp_path)
            )
            (sample,) = log.samples or []
            assert not sample.error, sample.error
            theirs = {"includes": float(sample.scores["includes"].value == "C")}
            theirs |= {f"few_looks_{key}": float(value) for key, value in sample.scores["few_looks"].value.items()}
            calls, score, _ = called(scorer, scorer.task.rows()[number], [c for _, c in turns], [t for t, _ in turns])
            assert {part: score.parts[part] for part in theirs} == theirs, (turns, theirs, score)
            shown = [each.error.message if each.error else each.text for each in sample.messages if each.role == "tool"]
            told = [call.result for turn in calls for call in turn if call.name == "look"]
            assert [each for each in shown if not each.startswith("w") or " " in each] == told


def _output(text: str, calls: list[tuple[str, dict[str, Any]]]) -> ModelOutput:
    output = ModelOutput.from_content("mockllm/model", text, stop_reason="tool_calls" if calls else "stop")
    output.usage = ModelUsage()
    output.message.tool_calls = [
        ToolCall(id=f"c{text}{place}", function=name, arguments=given) for place, (name, given) in enumerate(calls)
    ] or None
    return output
