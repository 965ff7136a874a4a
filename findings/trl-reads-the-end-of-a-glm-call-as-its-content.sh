#!/usr/bin/env bash
# What: trl's parser for GLM-4 MoE gives each tool call the content "<|observation|>", the token with which the model ends
#   a call; only an answer's end, <|user|>, is taken away.
# Versions: trl==1.16.0 (it ships the template of GLM-4 MoE), transformers==5.24.0
# Expected: a message with a call and no text has the empty content, as for Qwen3.
# Seen: "…</tool_call><|observation|>" gives content "<|observation|>" beside the call; without that token, or with Qwen3's
#   "…</tool_call><|im_end|>", the content is "".
# Matters: the completion that reward functions, logs and judges see: text where there is none, e.g. for a reward that
#   wants calls without text, or one that counts words; a token of the format stands in it as text.
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


def parsed(template, end, marks, answer):
    letters = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(letters, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=end)
    tokenizer.add_tokens(marks, special_tokens=True)
    folder = Path(sysconfig.get_path("purelib"), "trl", "chat_templates")
    tokenizer.chat_template = (folder / f"{template}.jinja").read_text(encoding="utf-8")
    tokenizer = add_response_schema(tokenizer)
    chat = [{"role": "user", "content": "Run it."}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in (answer, prompt)]
    return parse_response(tokenizer, ids[0], prefix=ids[1])


GLM = ("glm4moe", "<|endoftext|>", ["<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "[gMASK]", "<sop>"])
QWEN = ("qwen3", "<|im_end|>", ["<|im_start|>", "<|im_end|>"])
GLM_CALL = "\n<think></think>\n<tool_call>run\n<arg_key>code</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"
QWEN_CALL = '<tool_call>\n{"name": "run", "arguments": {"code": "x"}}\n</tool_call>'
CASES = (
    (GLM, GLM_CALL + "<|observation|>", "<|observation|>"),
    (GLM, GLM_CALL, ""),
    (GLM, "\n<think></think>\nDone.<|user|>", "Done."),
    (QWEN, QWEN_CALL + "<|im_end|>", ""),
)
for model, answer, wanted in CASES:
    message = parsed(*model, answer)
    print(f"{model[0]}: {answer!r}\n   is {message}")
    assert message["content"] == wanted, f"the content is {message['content']!r} now"
    assert ("tool_calls" in message) == ("<tool_call>" in answer)
PYTHON
