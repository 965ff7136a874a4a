#!/usr/bin/env bash
# What: chat templates of well-known models write an empty message, without an error, where `content` is of the form
#   that they don't expect: text for SmolVLM, Idefics3 and LLaVA-NeXT, a list of blocks for Qwen3; Llama 3's and
#   Gemma's write the Python list itself into the prompt.
# Versions: trl==1.16.0 (ships the models' templates, byte for byte), transformers==5.24.0
# Expected: a text and a list with one block of type text are the same message, as in the APIs whose format this is;
#   or the template raises, as those of Qwen2.5, Phi-3, DeepSeek-V3 and gpt-oss do.
# Seen: SmolVLM with "PLAIN": "<|im_start|>User: <end_of_utterance>\nAssistant:"; Qwen3 with a block of it:
#   "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"; Llama 3.1: "[{'type': 'text', 'text': 'PLAIN'}]".
# Matters: data in the form for images are rewarded and trained on prompts without a question when the model is swapped
#   for one of text only (or the other way round); the loss looks normal.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv transformers==5.24.0 jinja2
# Only its templates are read, so that torch isn't needed.
"$work/venv/bin/python" -m pip install --quiet --no-deps trl==1.16.0 || exit 75
run <<'PYTHON'
import sysconfig
from pathlib import Path

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

FOLDER = Path(sysconfig.get_path("purelib"), "trl", "chat_templates")
inner = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def outcome(template, content):
    message = {"role": "user", "content": content}
    try:
        prompt = tokenizer.apply_chat_template(
            [message], chat_template=template, tokenize=False, add_generation_prompt=True
        )
    except Exception:
        return "raises"
    return "drops" if "PLAIN" not in prompt else "writes the list" if "'text'" in prompt else "writes"


seen = {}
for path in sorted(FOLDER.glob("*.jinja")):
    if not path.stem.endswith("_training"):
        text = path.read_text(encoding="utf-8")
        seen[path.stem] = outcome(text, "PLAIN"), outcome(text, [{"type": "text", "text": "PLAIN"}])
        print(f"{path.stem:28} text: {seen[path.stem][0]:8} list: {seen[path.stem][1]}")
for name in ("smolvlm", "idefics3", "llava_next"):
    assert seen[name] == ("drops", "writes"), f"{name}: {seen[name]} now"
for name in ("qwen3", "qwen3_instruct_2507"):
    assert seen[name] == ("writes", "drops"), f"{name}: {seen[name]} now"
for name in ("llama3", "llama3_1", "gemma"):
    assert seen[name] == ("writes", "writes the list"), f"{name}: {seen[name]} now"
for name in ("qwen2_5", "phi3", "deepseekv3", "gptoss"):
    assert seen[name] == ("writes", "raises"), f"{name}: {seen[name]} now"
PYTHON
