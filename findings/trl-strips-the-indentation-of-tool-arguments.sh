#!/usr/bin/env bash
# What: trl's parser of tool calls takes the white space from both ends of each text argument of Qwen3.5 and GLM-4 MoE
#   calls, so that a tool gets other text than the model wrote.
# Versions: trl==1.16.0 (it ships the templates of the models), transformers==5.24.0
# Expected: what stands between the line breaks of <parameter=old>…</parameter> is the argument, as the chat template
#   writes it; a call that is rendered and parsed again comes back as it was.
# Seen: the call edit(old="    return x\n") is rendered whole, and parse_response with the same tool's schema gives
#   edit(old="return x"). Qwen3, whose calls are JSON, gives it back as it was.
# Matters: tools that edit files or run Python get code without its first line's indentation: the edit fails or breaks
#   the file, and the model is rewarded for a call that it did not make.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv transformers==5.24.0 datasets==5.2.0 jinja2==3.1.6
# Its templates and parsers need no torch.
"$work/venv/bin/python" -m pip install --quiet --no-deps trl==1.16.0 || exit 75
run <<'PYTHON'
import sysconfig
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl.chat_template_utils import add_response_schema, parse_response

ENDS = {"qwen3": "<|im_end|>", "qwen3_5_think": "<|im_end|>", "glm4moe": "<|user|>"}
ARGUMENTS = {"old": "    return x\n"}
TOOL = {"name": "edit", "parameters": {"type": "object", "properties": {"old": {"type": "string"}}}}
QUESTION = [{"role": "user", "content": "Edit it."}]
ANSWER = {
    "role": "assistant",
    "content": "",
    "reasoning_content": "So be it.",
    "tool_calls": [{"type": "function", "function": {"name": "edit", "arguments": ARGUMENTS}}],
}


def tokenizer_of(template, end):
    letters = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(letters, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=end)
    folder = Path(sysconfig.get_path("purelib"), "trl", "chat_templates")
    tokenizer.chat_template = (folder / f"{template}.jinja").read_text(encoding="utf-8")
    return add_response_schema(tokenizer)


seen = {}
for template, end in ENDS.items():
    tokenizer = tokenizer_of(template, end)
    tools = [{"type": "function", "function": TOOL}]
    prompt = tokenizer.apply_chat_template(QUESTION, tools=tools, add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template([*QUESTION, ANSWER], tools=tools, tokenize=False)
    assert whole.startswith(prompt), "the prompt is no beginning of the chat now"
    answer = whole[len(prompt) :]
    assert "    return x\n" in answer or r"    return x\n" in answer, "the template doesn't write the argument whole"
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in (answer, prompt)]
    parsed = parse_response(tokenizer, ids[0], prefix=ids[1], tools=tools)
    seen[template] = parsed["tool_calls"][0]["function"]["arguments"]
    print(f"{template}: {answer!r}\n   is parsed as {seen[template]}")
assert seen["qwen3"] == ARGUMENTS, seen
assert seen["qwen3_5_think"] == {"old": "return x"}, seen
assert seen["glm4moe"] == {"old": "return x"}, seen
PYTHON
