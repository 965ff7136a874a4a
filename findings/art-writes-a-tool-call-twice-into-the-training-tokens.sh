#!/usr/bin/env bash
# What: openpipe-art writes each tool call of a rollout, except one in the last turn, twice into the tokens of training:
#   once as it was sampled, with its end token, and behind it once more as the chat template writes it.
# Versions: openpipe-art==0.5.18, transformers==5.24.0, openai==2.54.0, trl==1.16.0 (ships the template of Qwen3)
# Expected: the tokens of the rollout: prompt, sampled call, tool's result, sampled answer.
# Seen: for a question, a sampled call, its result and the sampled answer "ok" with Qwen3's template the tokens are
#   "…assistant\n<tool_call>…</tool_call><|im_end|>\n<tool_call>…</tool_call><|im_end|>\n<|im_start|>user\n…"; the first
#   copy is trained, the second is context of all that follows. The text that is kept beside them has the call once.
# Matters: training of agents with several turns: logprobs of the policy are computed in a context that no rollout had, and
#   ratios against the sampled logprobs are off in each turn behind a call.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv transformers==5.24.0 openai==2.54.0 jinja2==3.1.6 pillow==12.3.0 numpy==2.3.5
# Only the tokenization of openpipe-art, and the template of trl.
"$work/venv/bin/python" -m pip install --quiet --no-deps openpipe-art==0.5.18 trl==1.16.0 || exit 75
run <<'PYTHON'
import sys
import sysconfig
import types
from pathlib import Path

from openai.types.chat.chat_completion import Choice
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.image_processing_utils import BaseImageProcessor  # noqa: F401

packages = Path(sysconfig.get_path("purelib"))
# The tokenization asks torch only for a type; the package's own __init__ loads much that it doesn't need.
sys.modules.setdefault("torch", types.ModuleType("torch")).Tensor = type("Tensor", (), {})
for name in ("art", "art.preprocessing"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(packages.joinpath(*name.split(".")))]
from art.preprocessing.tokenize import tokenize_trajectory
from art.trajectories import History, Trajectory

letters = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
inner = Tokenizer(models.BPE({**letters, "zq": len(letters)}, [("z", "q")]))
inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
inner.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")
tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
template = packages / "trl" / "chat_templates" / "qwen3_instruct_2507.jinja"
tokenizer.chat_template = template.read_text(encoding="utf-8")


def sampled(text, content=None, calls=None):
    """A choice as vLLM gives it with the ids of its tokens."""
    tokens = [
        {"token": f"token_id:{token}", "logprob": -0.5, "bytes": list(tokenizer.decode([token]).encode())}
        for token in tokenizer.encode(text, add_special_tokens=False)
    ]
    tokens = [{**token, "top_logprobs": []} for token in tokens]
    message = {"role": "assistant", "content": content, "tool_calls": calls}
    fields = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": {"content": tokens, "refusal": None}}
    return Choice.model_validate(fields)


CALL = '<tool_call>\n{"name": "run", "arguments": {"code": "x"}}\n</tool_call>'
function = {"name": "run", "arguments": '{"code": "x"}'}
messages = [
    {"role": "user", "content": "go"},
    sampled(CALL + "<|im_end|>", calls=[{"id": "c1", "type": "function", "function": function}]),
    {"role": "tool", "tool_call_id": "c1", "content": "r"},
    sampled("ok<|im_end|>", content="ok"),
]
history = History(messages_and_choices=messages)
rollout = Trajectory(messages_and_choices=messages, reward=1.0)
result = tokenize_trajectory(tokenizer, None, history, 1.0, False, rollout)
text = tokenizer.decode(result.token_ids)
trained = tokenizer.decode([token for token, is_trained in zip(result.token_ids, result.assistant_mask) if is_trained])
print("tokens:", repr(text))
print("trained:", repr(trained))
print("chat:", repr(result.chat))
assert result.chat.count(CALL) == 1
assert text.count(CALL) == 2 and f"{CALL}<|im_end|>\n{CALL}<|im_end|>" in text, "the call stands there once now"
assert trained == f"{CALL}<|im_end|>ok<|im_end|>"
PYTHON
