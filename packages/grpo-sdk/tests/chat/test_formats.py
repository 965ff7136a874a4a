from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from tool_conversations import ASKED, TOOLS, called, marked_bytes, played, sampled

from grpo_sdk.chat import choose_format
from grpo_sdk.chat.encode import encode_text
from grpo_sdk.chat.renderer_form import RendererForm
from grpo_sdk.chat.template_form import TemplateForm, as_talk
from grpo_sdk.task.row import Message
from grpo_sdk.task.tools.calls import Reading, ToolCall

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "</tool_call>"}}\n</tool_call>'
READ = ToolCall("add", {"a": 1, "b": "</tool_call>"})


@pytest.fixture(autouse=True)
def no_renderers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "renderers" else found(name, *a))


def whole(tokenizer: Any, messages: Any) -> tuple[int, ...]:
    specs = [tool.spec for tool in TOOLS]
    text = tokenizer.apply_chat_template(as_talk(messages), tools=specs, tokenize=False, add_generation_prompt=True)
    return tuple(encode_text(tokenizer, text))


@pytest.mark.parametrize("template", ["qwen2_5", "qwen3_instruct_2507"])
def test_a_template_that_renders_tools_keeps_eight_turns_as_sampled(template: str) -> None:
    tokenizer = marked_bytes(template)
    form = choose_format(tokenizer, TOOLS, ASKED)
    assert (form.name, form.stop) == ("template", ())
    assert "our reader of JSON reads its calls back" in form.why and "grpo-sdk[renderers]" in form.why
    assert "größer als null" in tokenizer.decode(form.first(ASKED))
    turns = ["Looking.\n" + CALL, f"{CALL}\n{CALL}", "so", CALL, CALL, CALL, f"{CALL}\n{CALL}", CALL]
    for prompt, completion, following, messages in played(form, tokenizer, [f"{turn}<|im_end|>" for turn in turns], 4):
        sampled_ids = (*prompt, *completion.token_ids)
        assert following[: len(sampled_ids)] == sampled_ids
        assert following == whole(tokenizer, messages), "these templates spell calls as they were sampled"


def test_results_follow_thinking_and_a_question_after_thinking_begins_anew() -> None:
    tokenizer = marked_bytes("qwen3")
    form = choose_format(tokenizer, TOOLS, ASKED)
    turns = [
        f"<think>\nhm\n</think>\n\n{CALL}<|im_end|>",
        f"{CALL}{CALL}<|im_end|>",
        "<think>\nhm\n</think>\n\n2<|im_end|>",
    ]
    played_turns = list(played(form, tokenizer, turns))
    for prompt, completion, following, _ in played_turns[:2]:
        assert following[: len(prompt) + len(completion.token_ids)] == (*prompt, *completion.token_ids)
    prompt, completion, following, messages = played_turns[2]
    assert following[: len(prompt)] != prompt and following == whole(tokenizer, messages), "it drops past thinking"


def test_a_turn_that_was_cut_is_closed() -> None:
    tokenizer = marked_bytes("qwen2_5")
    form = choose_format(tokenizer, TOOLS, ASKED)
    prompt, completion = form.first(ASKED), sampled(tokenizer, CALL, "length")
    messages = [*ASKED, called([READ]), Message(role="tool", content="2 mark0mark", name="add")]
    following = form.following(prompt, completion, messages, 1)
    assert following == (*prompt, *completion.token_ids, *following[len(prompt) + len(completion.token_ids) :])
    behind = tokenizer.decode(following[len(prompt) + len(completion.token_ids) :])
    assert behind.startswith("<|im_end|>\n<|im_start|>user\n<tool_response>\n2 mark0mark\n</tool_response>")


def test_hidden_and_cut_calls_of_a_template() -> None:
    tokenizer = marked_bytes("qwen3")
    form = choose_format(tokenizer, TOOLS, ASKED)
    prompt = form.first(ASKED)
    read = form.read(prompt, sampled(tokenizer, f"<think>{CALL}</think>a {CALL}<|im_end|>"))
    assert (read.calls, read.text, read.thinking) == ((READ,), "a", CALL)
    assert form.read(prompt, sampled(tokenizer, CALL[:40], "length")).problem == "the length limit cut a call off"


@pytest.mark.parametrize(("template", "why"), [
    ("llama3", "the chat template drops tools"),
    ("qwen3_5_think", "nothing reads calls as the chat template writes them"),
])  # fmt: skip
def test_other_templates_get_the_text_form_with_the_reason(template: str, why: str) -> None:
    tokenizer = marked_bytes(template)
    form = choose_format(tokenizer, TOOLS, ASKED)
    assert form.name == "text" and form.why.startswith(f"{why}; renderers is not installed (`pip install")
    assert "You can call tools." in tokenizer.decode(form.first(ASKED))
    for prompt, completion, following, _ in played(form, tokenizer, [CALL + tokenizer.eos_token] * 3):
        assert following[: len(prompt) + len(completion.token_ids)] == (*prompt, *completion.token_ids)


XML = "hm</think>\n\nSo\n\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
JSON = '{"name": "add", "parameters": {"a": 1}}'


@pytest.mark.parametrize(("template", "end", "call", "reading", "malformed", "problem"), [
    ("qwen3_5_think", "<|im_end|>", XML, Reading("So", "hm", (ToolCall("add", {"a": "1"}, are_texts=True),)),
     XML[:-14], "the call has no end"),
    ("llama3_2", "<|eot_id|>", JSON, Reading("", "", (ToolCall("add", {"a": 1}),)),
     JSON[:-1].replace("1", "1,"), "unreadable call"),
])  # fmt: skip
def test_a_response_template_reads_what_the_chat_template_writes(template, end, call, reading, malformed, problem):
    from trl.chat_template_utils import add_response_schema

    tokenizer = add_response_schema(marked_bytes(template))
    tokenizer.eos_token = end
    form = choose_format(tokenizer, TOOLS, ASKED)
    assert form.name == "template" and "the tokenizer's response template reads its calls back" in form.why
    prompt = form.first(ASKED)
    assert form.read(prompt, sampled(tokenizer, call + end)) == reading
    (broken,) = form.read(prompt, sampled(tokenizer, malformed + end)).calls
    assert broken.problem.startswith(problem)
    for before, completion, following, _ in played(form, tokenizer, [call + end] * 3):
        assert following[: len(before) + len(completion.token_ids)] == (*before, *completion.token_ids)
    if call == XML:
        assert form.read(prompt, sampled(tokenizer, malformed, "length")).problem == "the length limit cut a call off"
        assert form.read(prompt, sampled(tokenizer, call, "length")).calls == reading.calls, "the call itself is whole"


@pytest.mark.parametrize(
    ("template", "turn", "text", "calls"),
    [
        (
            "glm4moe",
            "\n<think></think>\nSo\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call><|observation|>",
            "So",
            (ToolCall("add", {"a": "1"}, are_texts=True),),
        ),
        (
            "gptoss",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.add "
            '<|constrain|>json<|message|>{"a": 1}<|call|>',
            "",
            (ToolCall("", None, "it ends as a call does, and has none"),),
        ),
    ],
)
def test_the_token_that_ends_calls_is_no_text_and_no_turn_without_calls(
    template: str, turn: str, text: str, calls: tuple[ToolCall, ...]
) -> None:
    from trl.chat_template_utils import add_response_schema

    tokenizer = add_response_schema(marked_bytes(template))
    tokenizer.add_special_tokens({"additional_special_tokens": [turn[turn.rindex("<|") :]]})
    form = choose_format(tokenizer, TOOLS, ASKED)
    assert form.name == "template", form.why
    read = form.read(form.first(ASKED), sampled(tokenizer, turn))
    assert (read.text, read.calls) == (text, calls)


@dataclass
class FakeCall:
    name: Any
    arguments: Any
    status: str = "ok"
    token_span: tuple[int, int] | None = None
    raw: str = "raw"


@dataclass
class FakeRenderer:
    """Answers as a renderer does, with what a test says."""

    found: list[FakeCall] = field(default_factory=list)
    bridged: Any = None

    def parse_response(self, ids: list[int], *, tools: Any, prompt_ids: list[int]) -> Any:
        declared = tools[0]["function"]["parameters"]["properties"]
        assert set(map(str, declared.values())) == {"{'type': 'string'}"}, "so that values stay texts"
        return type("Parsed", (), {"content": "c", "reasoning_content": None, "tool_calls": self.found})()

    def bridge_to_next_turn(self, prompt: list[int], completion: list[int], new: Any, *, tools: Any) -> Any:
        assert [message["role"] for message in new] == ["tool"]
        made = self.bridged(prompt, completion) if self.bridged else None
        return made and type("Rendered", (), {"token_ids": made})()


def test_a_renderers_bridge_is_checked() -> None:
    tokenizer = marked_bytes("qwen3")
    renderer = FakeRenderer()
    form = RendererForm(tokenizer, TOOLS, "fake", renderer)
    assert form.name == "renderers fake"
    prompt, completion = form.first(ASKED), sampled(tokenizer, CALL + "<|im_end|>")
    messages = [*ASKED, called([READ]), Message(role="tool", content="2", name="add")]
    for renderer.bridged in (None, lambda prompt, completion: [*prompt, *completion[:-1], 7]):
        assert form.following(prompt, completion, messages, 1) == whole(tokenizer, messages)
    renderer.bridged = lambda prompt, completion: [*prompt, *completion, 7]
    assert form.following(prompt, completion, messages, 1) == (*prompt, *completion.token_ids, 7)


def test_what_a_renderer_finds_is_judged_here() -> None:
    tokenizer = marked_bytes("qwen3")
    ids = len(encode_text(tokenizer, "<think>x"))
    hidden = FakeCall("add", {}, token_span=(ids, ids + 1))
    good, other = FakeCall("add", {"a": "1"}), FakeCall("other", {}, "unknown_tool")
    nan = FakeCall("add", {"a": math.nan})
    bad = [FakeCall(None, {}, "missing_name"), FakeCall(5, {}), FakeCall("add", ["a"]), nan]
    renderer = FakeRenderer([hidden, good, other, *bad])
    form = RendererForm(tokenizer, TOOLS, "fake", renderer)
    form._are_texts = True
    completion = sampled(tokenizer, "<think>x<tool_call>y")
    read, unknown, *refused = form._read_by_renderer((), completion).calls
    assert read == ToolCall("add", {"a": "1"}, are_texts=True) and unknown == ToolCall("other", {}, are_texts=True)
    assert [bool(call.problem) for call in refused] == [True] * 4 and "missing name: 'raw'" in refused[0].problem
    renderer.found = [good, FakeCall("add", {}, "unclosed_block")]
    assert form._read_by_renderer((), completion).calls[1].problem.startswith("unclosed block")
    cut = form._read_by_renderer((), sampled(tokenizer, "x", "length"))
    assert cut.problem == "the length limit cut a call off" and cut.calls == (read,)


def test_a_template_form_says_what_it_lacks() -> None:
    tokenizer = marked_bytes("qwen3")
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>{% endfor %}"
    )
    assert TemplateForm(tokenizer, TOOLS).problem(ASKED) == "the chat template drops tools"
    tokenizer.chat_template = "{{ tools | tojson }}" + tokenizer.chat_template.replace("m.tool_calls or []", "[]")
    assert TemplateForm(tokenizer, TOOLS).problem(ASKED) == "the chat template drops calls"
    tokenizer.chat_template = "{{ tools[0].oops.oops }}"
    assert "the chat template refuses tools: 'dict object' has no attribute" in TemplateForm(tokenizer, TOOLS).problem(
        ASKED
    )
