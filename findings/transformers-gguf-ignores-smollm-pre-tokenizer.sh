#!/usr/bin/env bash
# What: from a GGUF file, transformers honours tokenizer.ggml.pre for some names (llama-bpe, qwen2) and takes GPT-2's
#   split without a word for others: smollm, refact and starcoder lose the splitting of their digits.
# Versions: transformers==5.24.0, gguf==0.19.0, torch==2.13.0
# Expected: the key says how text is split, and is honoured or refused: the loader raises for architectures that it
#   does not know, and it does honour the key for the two large families.
# Seen: for one vocabulary with the merges "1 2" and "3 4", "1234" is 12, 34 under smollm as under gpt-2, where the
#   model was trained on 1, 2, 3, 4 (so llama.cpp splits it); under qwen2 it is 1, 2, 3, 4.
# Matters: a SmolLM GGUF reads and is trained on tokens for numbers that it hardly ever saw; arithmetic falls, and
#   log-probabilities differ from those of llama.cpp or of the original repository.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv transformers==5.24.0 gguf==0.19.0 torch==2.13.0
run <<'PYTHON'
import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoTokenizer

WORDS = [*sorted(ByteLevel.alphabet()), "12", "34", "<end>"]


def pieces(split):
    """How "1234" is cut by the tokenizer of a file that names this split."""
    path = f"{split}.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_block_count(1)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(8)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(WORDS)
    writer.add_token_types([1] * (len(WORDS) - 1) + [3])
    writer.add_token_merges(["1 2", "3 4"])
    writer.add_eos_token_id(len(WORDS) - 1)
    writer.add_tensor("token_embd.weight", np.zeros((len(WORDS), 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return AutoTokenizer.from_pretrained(".", gguf_file=path).tokenize("1234")


seen = {split: pieces(split) for split in ("gpt-2", "qwen2", "smollm", "refact", "starcoder")}
for split, tokens in seen.items():
    print(split, tokens)
assert seen["gpt-2"] == ["12", "34"], "GPT-2's split is another now"
assert seen["qwen2"] == ["1", "2", "3", "4"], "qwen2's name is no longer honoured"
for split in ("smollm", "refact", "starcoder"):
    assert seen[split] == seen["gpt-2"], f"{split} is cut into {seen[split]} now"
PYTHON
