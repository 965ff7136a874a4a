#!/usr/bin/env bash
# What: trl's parse_response gives each answer back as plain text, its calls and thoughts unparsed, unless a prefix is
#   passed, which is optional: it swallows the error in which transformers asks for it.
# Versions: trl==1.16.0, transformers==5.24.0
# Expected: the example of its own docstring, parse_response(tokenizer, ids), gives the tool call; a missing argument
#   raises.
# Seen: that example gives {"role": "assistant", "content": "<tool_call>\n{…}\n</tool_call>"}, without a warning; with
#   prefix=[] it gives the call. tokenizer.parse_response(ids) itself raises "requires `prefix=`".
# Matters: an evaluation or a loop of tools written after the documentation sees a model that never calls a tool and
#   never thinks, and scores it so.
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

letters = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
inner = Tokenizer(models.BPE(letters, []))
inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
inner.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")
folder = Path(sysconfig.get_path("purelib"), "trl", "chat_templates")
tokenizer.chat_template = (folder / "qwen3.jinja").read_text(encoding="utf-8")
tokenizer = add_response_schema(tokenizer)

text = '<tool_call>\n{"name": "multiply", "arguments": {"a": 3, "b": 4}}\n</tool_call><|im_end|>'
ids = tokenizer.encode(text, add_special_tokens=False)
without, with_one = parse_response(tokenizer, ids), parse_response(tokenizer, ids, prefix=[])
print("without a prefix:", without)
print("with an empty one:", with_one)
assert with_one["tool_calls"][0]["function"] == {"name": "multiply", "arguments": {"a": 3, "b": 4}}
assert without == {"role": "assistant", "content": text.removesuffix("<|im_end|>")}, "it parses without a prefix now"
try:
    tokenizer.parse_response(ids)
except ValueError as error:
    print("transformers:", error)
else:
    raise SystemExit("transformers needs no prefix now")
PYTHON
