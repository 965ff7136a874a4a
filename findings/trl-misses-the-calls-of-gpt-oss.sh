#!/usr/bin/env bash
# What: trl's parser for gpt-oss finds no tool call in the forms that OpenAI's own package reads and writes, and gives a
#   message with no call and no content.
# Versions: trl==1.16.0 (it ships the model's template), transformers==5.24.0, openai-harmony==0.0.8,
#   tml-renderers==0.2.1 (ships the vocabulary)
# Expected: the tool loop of trl runs the calls that openai-harmony does; failing that, their text is the content.
# Seen: "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>" and "to=functions.f<|channel|>
#   commentary <|constrain|>json<|message|>{…}<|call|>", which is what openai-harmony renders, are messages to functions.f
#   for openai-harmony and {"role": "assistant", "content": ""} for trl, which knows only "commentary json".
# Matters: GRPO with tools on gpt-oss: calls are not run, the episode ends with an empty answer, and that is rewarded.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv transformers==5.24.0 datasets==5.2.0 jinja2==3.1.6 openai-harmony==0.0.8
# Its templates and parsers need no torch; of tml-renderers only the vocabulary is read.
"$work/venv/bin/python" -m pip install --quiet --no-deps trl==1.16.0 tml-renderers==0.2.1 || exit 75
run <<'PYTHON'
import os
import sysconfig
from pathlib import Path

packages = Path(sysconfig.get_path("purelib"))
os.environ.setdefault("TIKTOKEN_ENCODINGS_BASE", str(packages / "tml_renderers" / "data"))

from openai_harmony import HarmonyEncodingName, Message, Role, load_harmony_encoding
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl.chat_template_utils import add_response_schema, parse_response

letters = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
inner = Tokenizer(models.BPE(letters, []))
inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
inner.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|return|>")
marks = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>"]
tokenizer.add_tokens(marks, special_tokens=True)
tokenizer.chat_template = (packages / "trl" / "chat_templates" / "gptoss.jinja").read_text(encoding="utf-8")
tokenizer = add_response_schema(tokenizer)
harmony = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)

ARGUMENTS = '{"x": 1}'
call = Message.from_role_and_content(Role.ASSISTANT, ARGUMENTS)
call = call.with_channel("commentary").with_recipient("functions.f").with_content_type("<|constrain|>json")
prompt = tokenizer.apply_chat_template([{"role": "user", "content": "q"}], add_generation_prompt=True, tokenize=False)
prefix = tokenizer.encode(prompt, add_special_tokens=False)
rendered = harmony.decode(harmony.render(call)).removeprefix("<|start|>assistant")
CASES = {
    f"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{ARGUMENTS}<|call|>": False,
    rendered: False,
    f" to=functions.f<|channel|>commentary json<|message|>{ARGUMENTS}<|call|>": True,
}
for text, wanted in CASES.items():
    tokens = harmony.encode(text, allowed_special="all")
    (theirs,) = harmony.parse_messages_from_completion_tokens(tokens, Role.ASSISTANT)
    assert (theirs.recipient, theirs.content[0].text) == ("functions.f", ARGUMENTS), theirs
    parsed = parse_response(tokenizer, tokenizer.encode(text, add_special_tokens=False), prefix=prefix)
    print(f"{text}\n   openai-harmony: to {theirs.recipient}; trl: {parsed}")
    assert ("tool_calls" in parsed) is wanted, f"trl's parser sees {parsed} now"
    assert parsed["content"] == ""
PYTHON
