from __future__ import annotations

import json
from typing import Any

import pytest
from tool_conversations import TOOLS, sampled

from grpo_core.policy.fresh import EOS_TOKEN, byte_tokenizer
from grpo_sdk.chat import choose_format
from grpo_sdk.errors import UserError
from grpo_sdk.task.row import Message
from grpo_sdk.task.tools.calls import ToolCall

NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'


def test_a_text_prompt_stays_as_its_author_wrote_it(tokenizer: Any) -> None:
    form = choose_format(tokenizer, TOOLS, "1+1? ")
    assert (form.name, form.why, form.stop) == ("text", "the task's prompts are text", ("</tool_call>",))
    prompt = form.first("1+1? ")
    assert tokenizer.decode(prompt) == "1+1? "
    completion = sampled(tokenizer, CALL)
    assert form.read(prompt, completion).calls == (ToolCall("add", {"a": 1}),)
    results = [Message(role="tool", content="2", name="add"), Message(role="tool", content="3", name="add")]
    following = form.following(prompt, completion, results[:1], 1)
    assert following[: len(prompt) + len(completion.token_ids)] == (*prompt, *completion.token_ids)
    assert tokenizer.decode(following) == f"1+1? {CALL}\n<tool_result>2</tool_result>\n"
    following = form.following(prompt, completion, [*results, Message(role="user", content="And?")], 3)
    added = "\n<tool_result>2</tool_result>\n<tool_result>3</tool_result>\nAnd?"
    assert tokenizer.decode(following) == f"1+1? {CALL}{added}"


@pytest.mark.parametrize("has_system", [True, False])
def test_chat_is_told_of_its_tools_and_goes_on(tokenizer: Any, has_system: bool) -> None:
    tokenizer.chat_template = tokenizer.chat_template if has_system else NO_SYSTEM + tokenizer.chat_template
    asked = (Message(role="user", content="1+1?"),)
    form = choose_format(tokenizer, TOOLS, asked)
    assert (form.name, form.stop) == ("text", ())
    prompt = form.first(asked)
    text = tokenizer.decode(prompt)
    told = json.dumps(TOOLS[0].spec["function"], ensure_ascii=False)
    assert told in text and text.startswith("<system>You can call tools." if has_system else "<user>You can call")
    assert text.endswith(f"{'<user>' if has_system else ''}1+1?{EOS_TOKEN}\n<assistant>")
    calls = [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}] * 2
    answer = Message(role="assistant", content="", tool_calls=calls)
    results = [Message(role="tool", content=each, name="add") for each in ("2", "3")]
    for end in (EOS_TOKEN, ""):  # which the completion sampled, or it was cut
        completion = sampled(tokenizer, CALL + CALL + end)
        assert form.read(prompt, completion).calls == (ToolCall("add", {"a": 1}),) * 2
        following = form.following(prompt, completion, [*asked, answer, *results], 2)
        assert following[: len(prompt) + len(completion.token_ids)] == (*prompt, *completion.token_ids)
        added = f"{EOS_TOKEN}\n<user><tool_result>2</tool_result>\n<tool_result>3</tool_result>{EOS_TOKEN}\n<assistant>"
        assert tokenizer.decode(following) == text + CALL + CALL + added


def test_instructions_follow_a_message_of_the_system(tokenizer: Any) -> None:
    asked = (Message(role="system", content="Be brief."), Message(role="user", content="1+1?"))
    text = tokenizer.decode(choose_format(tokenizer, TOOLS, asked).first(asked))
    assert text.startswith("<system>Be brief.\n\nYou can call tools.") and text.count("<system>") == 1


def test_chat_needs_a_template() -> None:
    with pytest.raises(UserError, match="no chat template"):
        choose_format(byte_tokenizer(), TOOLS, (Message(role="user", content="1+1?"),))


def test_a_call_is_cut_by_the_limit_or_hidden_by_the_prompts_thinking(tokenizer: Any) -> None:
    form = choose_format(tokenizer, TOOLS, "1+1? ")
    cut = form.read(form.first("1+1?"), sampled(tokenizer, CALL[:30], "length"))
    assert cut.problem == "the length limit cut a call off"
    assert form.read(form.first("Say it in <think> and </think>."), sampled(tokenizer, CALL)).calls
    hidden = form.read(form.first("1+1? <think>\n"), sampled(tokenizer, CALL))
    assert (hidden.calls, hidden.thinking) == ((), CALL)


def test_thinking_between_special_tokens_hides_calls(tokenizer: Any) -> None:
    tokenizer.add_special_tokens({"extra_special_tokens": ["[THINK]", "[/THINK]"]})
    form = choose_format(tokenizer, TOOLS, "1+1? ")
    completion = sampled(tokenizer, f"[THINK]so {CALL}[/THINK]{CALL}{EOS_TOKEN}")
    assert completion.text == f"so {CALL}{CALL}", "as engines decode it"
    reading = form.read(form.first("1+1? "), completion)
    assert (reading.thinking, reading.calls, reading.text) == (f"so {CALL}", (ToolCall("add", {"a": 1}),), "")
