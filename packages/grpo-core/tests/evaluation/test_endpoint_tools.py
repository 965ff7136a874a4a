import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ears import Ears
from local_endpoint import Reply, completion, serving

from grpo_core import evaluate
from grpo_sdk import Message, UserError
from grpo_sdk.endpoints.base import Sampling
from grpo_sdk.endpoints.openai import OpenAIEngine

CHAT = Path(__file__).parents[1] / "support" / "chat_shop.py"
TEXT = Path(__file__).parents[3] / "grpo-sdk" / "tests" / "scoring" / "shop_tasks.py"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setitem(OpenAIEngine.__init__.__kwdefaults__, "backoff_s", 0.01)


def call(name: Any, arguments: Any, **more: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function", "function": {"name": name, "arguments": text}, **more}


def message(content: str | None = None, *calls: Any, finish_reason: str = "", **more: Any) -> Reply:
    said = {"role": "assistant", "content": content, "tool_calls": list(calls) or None, **more}
    reason = finish_reason or ("tool_calls" if calls else "stop")
    reply = {"choices": [{"message": said, "finish_reason": reason}], "usage": {"completion_tokens": 5}}
    return 200, json.dumps(reply).encode()


def results(request: dict[str, Any]) -> list[str]:
    return [each["content"] for each in request["messages"] if each["role"] == "tool"]


def shopping(request: dict[str, Any]) -> Reply:
    """Look up a price and a thing that is not there, buy, and say so."""
    turns = sum(each["role"] == "assistant" for each in request["messages"])
    log = request["messages"][1]["content"].partition("(")[2].partition(")")[0]
    if turns == 0:
        wanted = [call("look_up", {"item": item}, id="same") for item in ("apple", "pear")]
        return message("I look.", *wanted, reasoning="Where is it?")
    return message(None, call("buy", {"item": "apple", "log": log})) if turns == 1 else message("done")


def judged(spec: str, respond: Callable[[dict[str, Any]], Reply], **options: Any) -> tuple[dict[str, Any], Any, Ears]:
    """The result of a task, the server, and what was said."""
    watch = Ears()
    with serving(respond) as server:
        (result,) = evaluate(spec, "m", endpoint=server.url, callbacks=(watch,), **{"size": 1, **options}).values()
    return result, server, watch


def judged_rows(
    count: int, respond: Callable[[int, dict[str, Any]], Reply], folder: Path
) -> tuple[dict[str, Any], list[dict[str, Any]], list[list[Any]]]:
    """The result of rows that are each replied to in another way, their records, and the messages of their requests."""

    def row_of(asked: dict[str, Any]) -> int:
        return int(asked["messages"][1]["content"].rpartition(" ")[2])

    options = {"size": count, "output_dir": folder, "concurrency": 1}
    result, server, _ = judged(f"{CHAT}:SHOP?rows={count}", lambda asked: respond(row_of(asked), asked), **options)
    (file,) = folder.rglob("records.jsonl.gz")
    records = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    return (
        result,
        records,
        [[asked["messages"] for asked in server.seen if row_of(asked) == row] for row in range(count)],
    )


def test_calls_go_to_the_tools_and_results_to_the_endpoint(tmp_path: Path) -> None:
    spec = f"{CHAT}:SHOP?log={tmp_path / 'log'}"
    result, server, watch = judged(spec, shopping, size=2, n=2, temperature=1.0, concurrency=1)
    assert (result["solved_rate"], result["pass@2"], result["mean_length"]) == (1.0, 1.0, 15)
    assert (result["parts"]["n_calls"]["mean"], result["parts"]["valid_calls"]["mean"]) == (3.0, 1.0)
    assert result["timing"]["tools_s"] > 0
    assert [(each.value, each.why) for each in watch.choices if each.what == "tool calls"] == [
        ("chat_shop.shop: native", "the endpoint's own")
    ]
    first, last = server.seen[0], server.seen[-1]
    assert [each["function"]["name"] for each in first["tools"]] == ["look_up", "buy"]
    assert first["tools"][1]["function"]["parameters"]["properties"]["size"]["enum"] == ["small", "large"]
    assert "tool_choice" not in first and first["messages"][0] == {"role": "system", "content": "Be brief."}
    _, _, looked, *told, bought, receipt = last["messages"]
    assert (looked["content"], looked["reasoning"], bought["content"]) == ("I look.", "Where is it?", "")
    ids = [each["id"] for said in (looked, bought) for each in said["tool_calls"]]
    assert ids == ["call00000", "call00001", "call00002"], "the endpoint's own are twice the same"
    assert [each["tool_call_id"] for each in (*told, receipt)] == ids
    assert [each["content"] for each in told] == ["3", "no pear here; there is apple"]
    assert json.loads(looked["tool_calls"][1]["function"]["arguments"]) == {"item": "pear"}
    assert receipt == {"role": "tool", "name": "buy", "tool_call_id": ids[2], "content": "1 small apple"}


def test_a_repeated_request_runs_no_tool_twice(tmp_path: Path) -> None:
    failures = iter([(503, b"busy"), (200, b'{"choices": ['), (500, b"tool support crashed")] * 2)
    seen: set[str] = set()

    def flaky(request: dict[str, Any]) -> Reply:
        asked = json.dumps(request["messages"])
        if asked not in seen and len(seen) > 0:  # each of the later turns once
            seen.add(asked)
            return next(failures)
        seen.add(asked)
        return shopping(request)

    result, server, _ = judged(f"{CHAT}:SHOP?log={tmp_path / 'log'}", flaky)
    assert (result["solved_rate"], len(server.seen)) == (1.0, 5)
    assert (tmp_path / "log").read_text() == "apple\n"


HOSTILE: dict[str, tuple[Reply, str]] = {
    "broken JSON": (message("", call("look_up", '{"item": "app')), "broken JSON: Unterminated string"),
    "arguments as an object": (
        message("", {"function": {"name": "look_up", "arguments": {"item": "apple"}}}), "3"
    ),
    "no arguments": (message("", call("look_up", "")), "look_up was not called"),
    "something behind": (message("", call("look_up", '{"item": "apple"} and')), "behind the arguments stands 'and'"),
    "an unknown name": (message(None, call("lookup", {"item": "apple"})), "no tool 'lookup'. Did you mean 'look_up'?"),
    "a name that endpoints refuse": (message(None, call("look up<|", {})), "no tool 'look up<|'"),
    "no name": (message(None, call(None, {})), '"name" must be the name of a tool, not null'),
    "no function": (message(None, {"id": "x"}), 'a call must have a "function"'),
    "null in place of a call": (message(None, None), 'a call must have a "function"'),
    "null in place of arguments": (
        message("", {"function": {"name": "look_up", "arguments": None}}), '"arguments" must be an object'
    ),
    "an id and an index that are none": (message(None, call("look_up", {"item": "apple"}, id=7, index="x")), "3"),
    "thinking beside it": (
        message(None, call("look_up", {"item": "apple"}), reasoning_content="Buy <tool_call>{</tool_call>?"), "3"
    ),
    "a huge argument": (
        message(None, call("look_up", {"item": "x" * 2**20})), "its arguments have 1,048,588 bytes, of at most"
    ),
    "in the text": (message('<tool_call>{"name": "look_up", "arguments": {"item": "apple"}}</tool_call>'), "3"),
}  # fmt: skip


def test_whatever_is_called_the_model_is_told_what_is_wrong(tmp_path: Path) -> None:
    replies = [reply for reply, _ in HOSTILE.values()]
    result, _, requests = judged_rows(
        len(HOSTILE), lambda row, asked: message("done") if results(asked) else replies[row], tmp_path
    )
    assert (result["n"], result["abstained"], result["parts"]["n_calls"]["mean"]) == (len(HOSTILE), 0, 1.0)
    for (kind, (_, told)), asked in zip(HOSTILE.items(), requests, strict=True):
        _, _, said, answered = asked[-1]
        (sent,) = said["tool_calls"]
        assert told in answered["content"], kind
        assert sent["id"] == answered["tool_call_id"] == "call00000", kind
        assert set(sent["function"]["name"]) <= set("lookup_named"), kind
        assert isinstance(json.loads(sent["function"]["arguments"]), dict), kind


def test_the_calls_beyond_a_turn_s_bound_are_told_of_and_not_sent_back() -> None:
    many = [call("look_up", {"item": "apple"}, index=2 * number, id="same") for number in range(200)]
    result, server, _ = judged(f"{CHAT}:SHOP", lambda asked: message("3") if results(asked) else message(None, *many))
    assert results(server.seen[-1]) == ["3"] * 16 + ["184 more calls were not run: a turn has at most 16."]
    assert len(server.seen[-1]["messages"][2]["tool_calls"]) == 17, "each has a result"
    assert (result["parts"]["n_calls"]["mean"], result["parts"]["valid_calls"]["mean"]) == (17, pytest.approx(16 / 17))


UNMEANT: Sequence[tuple[Reply, str]] = [
    (message(None, *[{}] * 1_000_000), "there are more than 256 calls"),
    (message(None, *[call("look_up", {"item": "apple"})] * 257), "there are more than 256 calls"),
    (message("", call("look_up", '{"item": "app'), finish_reason="length"), "the length limit cut a call off"),
    (message("", call("look_up", ""), finish_reason="length"), "the length limit cut a call off"),
    (message("<tool_call>{", finish_reason="length"), "the length limit cut a call off"),
]


def test_a_turn_that_cannot_be_meant_is_invalid(tmp_path: Path) -> None:
    result, records, requests = judged_rows(len(UNMEANT), lambda row, asked: UNMEANT[row][0], tmp_path)
    assert (result["n"], result["valid_rate"], result["solved_rate"]) == (len(UNMEANT), 0.0, 0.0)
    assert [record["score"]["why"] for record in records] == [f"invalid: {why}" for _, why in UNMEANT]
    assert {len(asked) for asked in requests} == {1}, "nothing is asked again"


NO_ANSWERS: Sequence[tuple[Reply, str]] = [
    (message(None, finish_reason="tool_calls"), "a reply without text"),
    (message(None, function_call={"name": "buy", "arguments": "{}"}, finish_reason="function_call"),
     "a reply with function_call, which was before tool_calls; take --tool-form text"),
    ((200, b'{"error": {"message": "the model is asleep"}}'), 'no completion: Field required: {"error": {"message"'),
    ((400, b"this conversation has a tool that is not supported"), "HTTP 400: this conversation"),
    (message("done", finish_reason="content_filter"), "content_filter"),
    ((200, b'{"choices": [{"message": {"content": "a", "tool_calls": {"0": 1}}}]}'), "tool_calls are no list"),
]  # fmt: skip


def test_what_is_no_answer_is_never_a_score(tmp_path: Path) -> None:
    def second(row: int, asked: dict[str, Any]) -> Reply:
        if not results(asked):
            return message("", call("look_up", {"item": "apple"}))
        return message("done") if row % 2 else NO_ANSWERS[row // 2][0]  # between answers, so that it is not given up

    result, records, _ = judged_rows(2 * len(NO_ANSWERS), second, tmp_path)
    assert (result["n"], result["abstained"]) == (len(NO_ANSWERS), len(NO_ANSWERS))
    for (_, why), record in zip(NO_ANSWERS, records[::2], strict=True):
        assert record["score"]["value"] is None and why in record["score"]["why"]


def test_a_turn_without_a_call_ends_the_episode() -> None:
    reply = message("It is 3.", finish_reason="tool_calls")
    result, server, watch = judged(f"{CHAT}:SHOP", lambda asked: reply)
    assert (result["n"], result["valid_rate"], result["solved_rate"], len(server.seen)) == (1, 1.0, 0.0, 1)
    assert result["parts"]["n_calls"]["mean"] == 0.0 and "valid_calls" not in result["parts"]
    assert any("no completion called a tool" in each for each in watch.said)


@pytest.mark.parametrize("refusal", [
    (400, b'"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    (400, b'{"error": {"message": "gemma:2b does not support tools"}}'),
    (500, b'{"error": {"message": "tools param requires --jinja flag"}}'),
    (422, b'{"detail": [{"loc": ["body", "tools"], "msg": "Extra inputs are not permitted"}]}'),
    (400, b'{"error": {"message": "tool_choice is not supported for this model"}}'),
])  # fmt: skip
def test_an_endpoint_that_refuses_tools_ends_it_and_is_told_of(refusal: Reply) -> None:
    with pytest.raises(UserError, match=r"refuses the task's tools\. vLLM .*--tool-form text .*without --tool-choice"):
        judged(f"{CHAT}:SHOP", lambda asked: refusal, tool_choice="required")


def test_a_message_may_describe_the_tools_instead(tmp_path: Path) -> None:
    def in_text(request: dict[str, Any]) -> Reply:
        said = request["messages"][-1]["content"]
        log = json.dumps(str(tmp_path / "log"))
        if "<tool_result>" not in said:
            return message(f'So: <tool_call>{{"name": "buy", "arguments": {{"item": "x", "log": {log}}}}}</tool_call>')
        return message("done")

    result, server, watch = judged(f"{CHAT}:SHOP", in_text, tool_form="text")
    assert (result["solved_rate"], len(server.seen)) == (1.0, 2)
    first, last = server.seen
    assert "tools" not in first and '"name": "look_up"' in first["messages"][0]["content"]
    assert [each["role"] for each in last["messages"]] == ["system", "user", "assistant", "user"]
    assert last["messages"][3]["content"] == "<tool_result>1 small x</tool_result>"
    assert ("chat_shop.shop: text", "--tool-form") in [(each.value, each.why) for each in watch.choices]


def test_a_prompt_that_is_text_goes_on_as_text() -> None:
    def shop(request: dict[str, Any]) -> Reply:
        asked = request["prompt"]
        if "<tool_result>" not in asked:
            return completion('<tool_call>{"name": "look_up", "arguments": {"item": "apple"}}</tool_call> and so on')
        return completion('<tool_call>{"name": "order", "arguments": {"item": "pear", "count": 1}}</tool_call>')

    result, server, watch = judged(f"{TEXT}:SHOP", shop)
    assert (result["solved_rate"], result["parts"]["looks"]["mean"], result["abstained"]) == (1.0, 1.0, 0)
    assert server.seen[-1]["prompt"].endswith("}}</tool_call>\n<tool_result>3</tool_result>\n")
    assert "tools" not in server.seen[0] and not watch.said[1:]
    with pytest.raises(UserError, match=r"--tool-choice required: shop_tasks\.shop is asked in text"):
        judged(f"{TEXT}:SHOP", shop, tool_choice="required")


@pytest.mark.parametrize(("choice", "sent"), [
    ("required", "required"), ("none", "none"), ("buy", {"type": "function", "function": {"name": "buy"}})
])  # fmt: skip
def test_an_endpoint_is_told_whether_to_call(choice: str, sent: Any, tmp_path: Path) -> None:
    result, server, watch = judged(
        f"{CHAT}:SHOP", lambda asked: message("done"), tool_choice=choice, output_dir=tmp_path
    )
    assert server.seen[0]["tool_choice"] == sent
    (meta,) = tmp_path.rglob("run_meta.json")
    (summary,) = tmp_path.rglob("summary.json")
    (numbers,) = json.loads(summary.read_text())["tasks"].values()
    for each in (result, json.loads(meta.read_text())["summary"], numbers["final"]):
        assert (each["tool_form"], each["tool_choice"]) == ("native", choice)
    assert any("no completion called a tool" in each for each in watch.said) == (choice != "none")


def test_with_the_choice_none_what_looks_like_a_call_is_text() -> None:
    written = '<tool_call>{"name": "look_up", "arguments": {"item": "apple"}}</tool_call>'
    for reply in (message(written), message("", call("look_up", {"item": "apple"}))):
        result, server, _ = judged(f"{CHAT}:SHOP", lambda asked, reply=reply: reply, tool_choice="none")  # type: ignore[misc]
        assert (result["parts"]["n_calls"]["mean"], len(server.seen)) == (0.0, 1)


BOUGHT = [{"type": "function", "function": {"name": "buy", "arguments": {"item": item}}} for item in "ab"]
EXAMPLE = (
    Message(role="user", content="An apple."),
    Message(role="assistant", content="", tool_calls=BOUGHT),
    Message(role="user", content="A pear."),
)


def test_an_example_in_a_prompt_keeps_its_calls() -> None:
    with serving(lambda asked: message("done")) as server:
        assert [each.text for _, each in OpenAIEngine(server.url, "m").answers([EXAMPLE], Sampling())] == ["done"]
    _, said, *told, asked = server.seen[0]["messages"]
    assert [each["function"]["arguments"] for each in said["tool_calls"]] == ['{"item": "a"}', '{"item": "b"}']
    assert [each["id"] for each in said["tool_calls"]] == [each["tool_call_id"] for each in told]
    assert [each["content"] for each in told] == ["", ""] and asked["content"] == "A pear."


@pytest.mark.parametrize(("task", "options", "why"), [
    (f"{CHAT}:SHOP", {"tool_choice": "by"}, r"takes auto, none, required, look_up, buy\. Did you mean 'buy'\?"),
    (f"{CHAT}:SHOP", {"tool_form": "xml"}, "write native or text"),
    (f"{CHAT}:SHOP", {"tool_choice": "required", "tool_form": "text"}, "asked in text"),
    ("math.arithmetic", {"tool_choice": "required"}, r"math\.arithmetic has no tools"),
    (f"{CHAT}:SHOP", {"tool_choice": "required", "endpoint": None}, "for --endpoint: the form of a model in this"),
    (f"{CHAT}:SHOP", {"tool_choice": "none", "endpoint": None}, "nothing makes it call a tool or keeps it from it"),
])  # fmt: skip
def test_what_an_endpoint_cannot_do_is_refused(task: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        evaluate(task, "tiny", **{"endpoint": "http://127.0.0.1:1/v1", "size": 1, **options})
