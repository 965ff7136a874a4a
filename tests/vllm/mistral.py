"""Writes a small model's configuration beside Mistral's tokenizer, which mistral-common carries: mistral.py FOLDER."""

import json
import shutil
import sys
from importlib.resources import files
from pathlib import Path

CONFIG = {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "vocab_size": 131_072,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    shutil.copy(str(files("mistral_common") / "data" / "tekken_240911.json"), folder / "tekken.json")
    (folder / "config.json").write_text(json.dumps(CONFIG))
