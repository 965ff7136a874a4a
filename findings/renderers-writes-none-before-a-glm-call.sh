#!/usr/bin/env bash
# What: for GLM models, the package renderers writes the word "None" into an assistant message whose content is None, which
#   is what a message with only tool calls is in OpenAI's format.
# Versions: renderers==0.1.12, openai==2.54.0, transformers==5.24.0, trl==1.16.0 (ships the template of GLM-4 MoE)
# Expected: no text, as the chat template writes it and as the other renderers of the package do.
# Seen: glm-4.5 writes "<think></think>\nNone\n<tool_call>run…" where the template writes "<think></think>\n<tool_call>…",
#   glm-5 and glm-5.1 write "</think>None<tool_call>run…"; glm-5.3, qwen3, qwen3-vl and qwen3.5 write no text. With
#   content "" glm-4.5 agrees with the template.
# Matters: multi-turn tool rollouts and examples taken from API answers: the model reads, and as a supervised example
#   learns, "None" before each call.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv renderers==0.1.12 transformers==5.24.0 openai==2.54.0 jinja2==3.1.6
# Only its templates are read, so that torch isn't needed.
"$work/venv/bin/python" -m pip install --quiet --no-deps trl==1.16.0 || exit 75
run <<'PYTHON'
import re
import sysconfig
from pathlib import Path

from renderers import create_renderer
from renderers.configs import GLM5RendererConfig, GLM45RendererConfig, GLM51RendererConfig, GLM53RendererConfig
from renderers.configs import Qwen3RendererConfig, Qwen3VLRendererConfig, Qwen35RendererConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

NONE = {GLM45RendererConfig: True, GLM5RendererConfig: True, GLM51RendererConfig: True, GLM53RendererConfig: False}
NONE |= {Qwen3RendererConfig: False, Qwen3VLRendererConfig: False, Qwen35RendererConfig: False}
SPECIAL = "<|endoftext|> <|user|> <|assistant|> <|observation|> <|system|> [gMASK] <sop> <think> </think> <tool_call>"
SPECIAL += " </tool_call> <arg_key> </arg_key> <arg_value> </arg_value> <tool_response> </tool_response> /nothink"
SPECIAL += " <|begin_of_image|> <|end_of_image|> <|image|> <|im_start|> <|im_end|> <|vision_start|> <|vision_end|>"
SPECIAL += " <|image_pad|> <|video_pad|>"
CALL = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": {"code": "x"}}}

letters = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
inner = Tokenizer(models.BPE(letters, []))
inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
inner.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|endoftext|>", pad_token="<|endoftext|>")
tokenizer.add_tokens(SPECIAL.split(), special_tokens=True)
folder = Path(sysconfig.get_path("purelib"), "trl", "chat_templates")
tokenizer.chat_template = (folder / "glm4moe.jinja").read_text(encoding="utf-8")


def chat(content):
    answer = {"role": "assistant", "content": content, "tool_calls": [CALL]}
    return [{"role": "user", "content": "go"}, answer, {"role": "tool", "tool_call_id": "c1", "name": "run", "content": "r"}]


for config, wanted in NONE.items():
    renderer = create_renderer(tokenizer, config())
    text = tokenizer.decode(renderer.render_ids(chat(None)))
    print(f"{config().name}:", repr(re.split("go", text)[-1]))
    assert ("None" in text) is wanted, f"{config().name} writes another text now"
template = tokenizer.apply_chat_template(chat(None), tokenize=False)
print("the template of GLM-4 MoE:", repr(re.split("go", template)[-1]))
assert "None" not in template
renderer = create_renderer(tokenizer, GLM45RendererConfig())
assert tokenizer.decode(renderer.render_ids(chat(""))) == tokenizer.apply_chat_template(chat(""), tokenize=False) == template
PYTHON
