"""What other trainers send, and what they get: the formats of their released clients."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from group_tasks import words
from local_endpoint import completion
from local_endpoint import serving as endpoint
from scoring_tasks import guess, sums
from served import ask, refused, send, serving
from small_games import GUESS, HEAP

from grpo_sdk import Opponent, load_task
from grpo_sdk.serve.server import TaskServer

SHOP = Path(__file__).parents[1] / "scoring" / "shop_tasks.py"
SUMS = "/scoring_tasks.sums"
ROW = json.dumps({"id": "mine", "a": 20, "b": 3})
"""A row that is none of the task's own, as a trainer's data carries it."""


@pytest.fixture(scope="module")
def server() -> Iterator[TaskServer]:
    shop = load_task(f"{SHOP}:SHOP")
    with serving(sums, load_task(sums, scale=0.5), GUESS, HEAP, words, guess, shop, timeout_s=1.0) as server:
        yield server


def test_one_completion(server: TaskServer) -> None:
    solved = ask(server, f"{SUMS}/score", {"row": "2+2", "completion": "4"})
    parts = {"right": 1.0, "without_torch": 0.0}
    expected = {"score": 2.0, "abstained": None, "parts": parts, "valid": True, "solved": True}
    assert solved == {**expected, "why": ""}
    assert ask(server, "/score", {"task": "scoring_tasks.sums", "row": "2+2", "completion": "4"}) == solved
    for row in (ROW, json.loads(ROW)):
        assert ask(server, f"{SUMS}/score", {"row": row, "completion": "23"})["solved"]
    assert ask(server, f"{SUMS}/score", {"row": "2+2", "completion": "half \ud800"})["valid"] is False


def test_several_completions_of_which_what_is_not_scored_is_null_with_its_reason(server: TaskServer) -> None:
    answer = ask(server, f"{SUMS}/score", {"row": "1+1", "completions": ["2", "3", "spin", "two", "404"]})
    assert [each["score"] for each in answer["scores"]] == [2.0, 0.0, None, 0.0, None]
    assert "timeout: task scoring_tasks.sums: no answer within 1 s" in answer["scores"][2]["abstained"]
    assert "no such number: 404" in answer["scores"][4]["abstained"]


def test_completions_of_several_rows_and_those_that_are_compared(server: TaskServer) -> None:
    answer = ask(server, f"{SUMS}/score", {"rows": ["1+1", ROW], "completions": ["2", "23"]})
    assert [each["solved"] for each in answer["scores"]] == [True, True]
    answer = ask(server, "/group_tasks.words/score", {"row": "train0", "completions": ["a", "aa", "aaa"]})
    assert [each["parts"]["shortest"] for each in answer["scores"]] == [1.0, 0.0, 0.0]  # they are compared


def test_predictions_of_an_opponent(server: TaskServer) -> None:
    body: dict[str, Any] = {"row": "1+1", "completion": "2", "predictions": ["2", "3"]}
    assert ask(server, "/scoring_tasks.guess/score", body)["score"] == 0.5


def test_an_endpoint_plays_the_opponent() -> None:
    with (
        endpoint(lambda request: completion("2")) as model,
        serving(replace(guess, opponent=Opponent(prompt=lambda answer: f"{answer}?", samples=2)),
                opponent_url=f"{model.url}#m") as server,
    ):  # fmt: skip
        assert ask(server, "/score", {"row": "1+1", "completion": "2"})["score"] == 1.0
        assert ask(server, "/remote_rm", {"prompt": "?", "response": "3", "label": "1+1"}) == 0.0
        assert [request["prompt"] for request in model.seen] == ["2?"] * 2 + ["3?"] * 2


def test_openrlhf(server: TaskServer) -> None:
    queries, prompts = ["<s>2 + 2 = 4<|im_end|>\n", "20 + 3 = 22</s>"], ["2 + 2 =", "20 + 3 ="]
    answer = ask(server, f"{SUMS}/get_reward", {"query": queries, "prompts": prompts, "labels": ["2+2", ROW]})
    assert answer["rewards"] == answer["scores"] == [2.0, 0.0]
    logs = {"solved": [1.0, 0.0], "valid": [1.0, 1.0], "right": [1.0, 0.0], "without_torch": [0.0, 0.0]}
    assert answer["extra_logs"] == logs


def test_slime(server: TaskServer) -> None:
    assert ask(server, f"{SUMS}/remote_rm", {"prompt": "?", "response": "4<|im_end|>", "label": "2+2"}) == 2.0


@pytest.mark.parametrize(("path", "body", "status", "why"), [
    (f"{SUMS}/get_reward", {"query": ["p 404"], "prompts": ["p "], "labels": ["2+2"]}, 503, "not scored: reward"),
    (f"{SUMS}/get_reward", {"query": ["q4"], "prompts": ["p"], "labels": ["2+2"]}, 400, "not contain its prompt"),
    (f"{SUMS}/get_reward", {"query": ["p4"], "prompts": ["p"], "labels": []}, 400, "0 labels"),
    (f"{SUMS}/remote_rm", {"prompt": "?", "response": "404", "label": "2+2"}, 503, "no such number"),
    (f"{SUMS}/remote_rm", {"prompt": "?", "response": 4, "label": "2+2"}, 400, "completion is text"),
    ("/scoring_tasks.guess/remote_rm", {"prompt": "?", "response": "4", "label": "2"}, 501, "--opponent-url"),
    ("/scoring_tasks.guess/score", {"row": "1+1", "completion": "2"}, 501, "--opponent-url"),
    ("/group_tasks.words/remote_rm", {"prompt": "", "response": "a", "label": "train0"}, 501, "compares the"),
])  # fmt: skip
def test_what_a_trainer_cannot_have_is_refused(server, path, body, status, why):
    refusal = refused(server, path, body)
    assert refusal[0] == status and why in refusal[1]


def nemo(text: str, **more: Any) -> dict[str, Any]:
    reasoning = {"type": "reasoning", "summary": []}
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    response = {"id": "r", "object": "response", "output": [reasoning, message], "model": "m"}
    return {"responses_create_params": {"input": "2 + 2 ="}, "response": response, "extra": {"kept": 1}, **more}


def test_nemo_gym(server: TaskServer) -> None:
    request = nemo("4", row="2+2")
    answer = ask(server, f"{SUMS}/verify", request)
    assert {name: answer[name] for name in request} == request
    assert (answer["reward"], answer["mask_sample"], answer["solved"]) == (2.0, False, 1.0)
    assert answer["reward_components"] == {"right": 1.0, "without_torch": 0.0}
    invalid = ask(server, f"{SUMS}/verify", nemo("four", row=ROW))
    assert invalid["reward"] == 0.0 and not invalid["mask_sample"]
    assert invalid["reward_components"].keys() == answer["reward_components"].keys()
    for place in ({"verifier_metadata": {"row": ROW}}, {"responses_create_params": {"metadata": {"row": ROW}}}):
        assert ask(server, f"{SUMS}/verify", nemo("23", **place))["reward"] == 2.0
    assert ask(server, f"{SUMS}/verify", {**nemo(""), "row": "2+2", "response": {"output": []}})["valid"] == 0.0
    assert ask(server, f"{SUMS}/reverify_mode") == "stateless"
    assert ask(server, f"{SUMS}/seed_session", {}) == {}
    session = {"resources_session_id": "s", "episode_id": "e", "task_id": "t", "task_data": {}}
    assert ask(server, f"{SUMS}/seed_session", session) == {"resources_session_id": "s"}


@pytest.mark.parametrize("content", [5, {"text": "4"}, ["4"], [{"type": "output_text", "text": 4}], [{"type": "text"}]])
def test_nemo_gym_refuses_what_is_no_answer_of_a_model(server: TaskServer, content: Any) -> None:
    output = [{"type": "message", "role": "assistant", "content": content}]
    status, why = refused(server, f"{SUMS}/verify", {**nemo("4", row="2+2"), "response": {"output": output}})
    assert status == 400 and "a message in 'response.output' is" in why


def test_nemo_gym_masks_what_is_not_scored(server: TaskServer) -> None:
    answer = ask(server, f"{SUMS}/verify", nemo("404", row="2+2", instance_config={"own": 1}))
    assert (answer["reward"], answer["mask_sample"], answer["failure_kind"]) == (0.0, True, "grpo:reward")
    assert answer["instance_config"] == {"own": 1, "mask_sample": True}
    assert answer["_ng_failure_class"] == "verification_failed"


def test_a_list_of_tasks_says_which_protocols_serve_each(server: TaskServer) -> None:
    listed = {each["name"]: each for each in ask(server, "/tasks")["tasks"]}
    every = ["score", "get_reward", "remote_rm", "verify", "openenv"]
    facts = {name: (each["kind"], each["protocols"]) for name, each in listed.items()}
    assert facts == {
        "scoring_tasks.sums": ("single-turn", every),
        "scoring_tasks.sums-2": ("single-turn", every),
        "small_games.guess": ("multi-turn", ["score", "openenv"]),
        "python.heap": ("game", ["score", "openenv"]),
        "group_tasks.words": ("single-turn", ["score"]),
        "scoring_tasks.guess": ("single-turn", ["score"]),
        "shop_tasks.shop": ("multi-turn", ["score", "openenv"]),
    }
    assert "reset and step" in listed["python.heap"]["not_served"]["verify"]
    assert "has tools: play it with OpenEnv's reset and step" in listed["shop_tasks.shop"]["not_served"]["verify"]
    assert ask(server, "/scoring_tasks.sums") == listed["scoring_tasks.sums"]
    assert ask(server, "/scoring_tasks.sums-2/score", {"row": "2+2", "completion": "4"})["score"] == 1.0


def test_a_task_with_tools_takes_finished_episodes(server: TaskServer) -> None:
    bought = {"text": "", "calls": [{"name": "order", "arguments": {"item": "apple"}, "result": "1 apple"}]}
    body = {"row": "apple 1", "completion": json.dumps({"turns": [bought]})}
    assert ask(server, "/shop_tasks.shop/score", body)["score"] == 1.0


def test_metrics_are_prometheus_format(server: TaskServer) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    ask(server, f"{SUMS}/score", {"row": "0+0", "completions": ["0", "1", "spin"]})
    refused(server, f"{SUMS}/score", {"row": "none", "completion": "0"})
    families = text_string_to_metric_families(send(server, "/metrics")[1])
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value for family in families for sample in family.samples
    }
    for outcome in ("solved", "unsolved", "timeout"):
        assert samples[("grpo_serve_completions_total", *sorted((outcome, "scoring_tasks.sums")))] >= 1
    assert samples["grpo_serve_requests_total", "404", "score"] >= 1
    assert samples["grpo_serve_request_seconds_count", "score"] >= 2
    assert samples["grpo_serve_scorers",] >= 1
    assert ask(server, "/health") == {"status": "healthy"}
