#!/usr/bin/env bash
# What: the package renderers renders the Qwen3-*-Instruct-2507 models as it does the first Qwen3, so that an answer of
#   these models, which never think, gets an empty <think> block that their own chat template doesn't write.
# Versions: renderers==0.1.12, openai==2.54.0, transformers==5.24.0, trl==1.16.0 (ships the model's template, byte for byte)
# Expected: the renderer that the package's table names for a model writes the tokens of the model's chat template;
#   that is its purpose.
# Seen: MODEL_RENDERER_MAP["Qwen/Qwen3-4B-Instruct-2507"] is "qwen3"; for a question and its answer the template writes
#   "assistant\nHi<|im_end|>\n", the renderer "assistant\n<think>\n\n</think>\n\nHi<|im_end|>\n". The renderer for
#   qwen3-vl agrees with the template on this chat.
# Matters: supervised examples and finished chats of the most used small instruct models are trained on tokens that the
#   model never sees at inference.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv renderers==0.1.12 transformers==5.24.0 openai==2.54.0 jinja2
# Only its templates are read, so that torch isn't needed.
"$work/venv/bin/python" -m pip install --quiet --no-deps trl==1.16.0 || exit 75
run <<'PYTHON'
import sysconfig
from pathlib import Path

from renderers.base import MODEL_RENDERER_MAP
from renderers.qwen3 import Qwen3Renderer
from renderers.qwen3_vl import Qwen3VLRenderer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

MODEL = "Qwen/Qwen3-4B-Instruct-2507"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>"]
SPECIAL += ["</tool_response>", "<think>", "</think>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
SPECIAL += ["<|video_pad|>"]

bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
inner = Tokenizer(models.BPE({byte: index for index, byte in enumerate(bytes_)}, []))
inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
inner.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>")
tokenizer.add_tokens(SPECIAL, special_tokens=True)
folder = Path(sysconfig.get_path("purelib"), "trl", "chat_templates")
tokenizer.chat_template = (folder / "qwen3_instruct_2507.jinja").read_text(encoding="utf-8")

chat = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
template = tokenizer.apply_chat_template(chat, tokenize=False)
rendered = {
    kind: tokenizer.decode(renderer(tokenizer).render_ids(chat))
    for kind, renderer in (("qwen3", Qwen3Renderer), ("qwen3-vl", Qwen3VLRenderer))
}
print(f"{MODEL} has the renderer {MODEL_RENDERER_MAP[MODEL]}")
print("template:", repr(template))
for kind, text in rendered.items():
    print(f"{kind}: {text!r}")
assert MODEL_RENDERER_MAP[MODEL] == "qwen3", f"the table names {MODEL_RENDERER_MAP[MODEL]} now"
assert "<think>" not in template
assert rendered["qwen3"] == template.replace("Hi", "<think>\n\n</think>\n\nHi"), "qwen3 writes another text now"
assert rendered["qwen3-vl"] == template, "qwen3-vl doesn't agree with the template now"
PYTHON
