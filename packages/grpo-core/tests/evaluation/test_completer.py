import json
import math
from typing import Any

import pytest
from local_endpoint import Reply, serving

from grpo_core import Completer
from grpo_sdk import InfrastructureError, Message, UserError, tool
from grpo_sdk.task.tools.calls import Reading, ToolCall


@pytest.fixture(scope="module")
def tiny() -> Completer:
    return Completer("tiny", max_completion_length=8, device="cpu")


def test_completions_are_in_the_order_of_the_prompts(tiny: Completer) -> None:
    prompts = ["1 + 1 =", "20 + 30 =", "1 + 1 ="]
    made = tiny(prompts)
    assert made[0] == made[2] and made == [tiny([prompt])[0] for prompt in prompts]


def test_sampling_depends_on_the_seed_and_the_call() -> None:
    first, again = (Completer("tiny", temperature=1.0, seed=3, max_completion_length=8, device="cpu") for _ in "ab")
    assert first(["48 + 37 ="] * 8) == again(["48 + 37 ="] * 8)
    assert len(set(first(["48 + 37 ="] * 32))) > 1


def test_log_probabilities_are_those_of_the_whole_completion(tiny: Completer) -> None:
    (likely,) = tiny(["20 + 30 ="])
    first, second = tiny.logprobs(["20 + 30 =", "20 + 30 ="], [likely.removesuffix("\n"), " zebra"])
    assert 0 > first > second
    # Of all one-digit answers, each with its end, no more than everything can be likely.
    digits = tiny.logprobs(["1 + 1 ="] * 10, [f" {digit}" for digit in range(10)])
    assert 0 < math.fsum(map(math.exp, digits)) <= 1


@tool
def look_up(item: str) -> int:
    """Look up a price."""
    raise AssertionError(f"nobody calls it: {item}")


def test_what_may_call_tools_is_read(tiny: Completer) -> None:
    plain = tiny(["1 + 1 ="])
    assert tiny.answer(["1 + 1 ="], [look_up]) == [Reading(plain[0])] and tiny.answer([], [look_up]) == []


def test_an_endpoint_completes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def respond(request: dict[str, Any]) -> Reply:
        wanted = {"function": {"name": "look_up", "arguments": '{"item": "pear"}'}}
        said = {"content": "I look.", "reasoning": "Hm.", "tool_calls": [wanted] if "tools" in request else None}
        if request["messages"][0]["content"] == "rude":
            return 400, b"too rude"
        return 200, json.dumps({"choices": [{"message": said, "finish_reason": "stop"}]}).encode()

    asked = (Message(role="user", content="A pear?"),)
    with serving(respond) as server:
        model = Completer(f"{server.url}#m")
        assert model([asked]) == ["<think>Hm.</think>I look."]
        read = Reading("I look.", "Hm.", (ToolCall("look_up", {"item": "pear"}),))
        assert model.answer([asked], [look_up]) == [read]
        told = Completer(f"{server.url}#m", tool_form="text")
        assert told.answer([asked], [look_up]) == [Reading("I look.", "Hm.")]
        assert '"name": "look_up"' in server.seen[-1]["messages"][0]["content"] and "tools" not in server.seen[-1]
        assert Completer(f"{server.url}#m", tool_choice="look_up").answer([asked], [look_up]) == [read]
        assert server.seen[-1]["tool_choice"] == {"type": "function", "function": {"name": "look_up"}}
        with pytest.raises(InfrastructureError, match=r"1 of 2 prompts have no completion: .*too rude"):
            model([asked, (Message(role="user", content="rude"),)])
    with pytest.raises(UserError, match="endpoints do not tell"):
        model.logprobs(["?"], ["!"])
    with pytest.raises(UserError, match="are for --endpoint"):
        Completer("tiny", tool_choice="none")
    with pytest.raises(UserError, match="has to serve the model with it"):
        Completer("http://127.0.0.1:1/v1#m", adapter="./adapter")
