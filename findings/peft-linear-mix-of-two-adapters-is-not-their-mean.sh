#!/usr/bin/env bash
# What: peft's add_weighted_adapter with combination_type="linear" and weights 0.5, 0.5 isn't the mean of two adapters.
# Versions: peft==0.21.2, transformers==5.24.0, torch==2.13.0
# Expected: "linear" adds the two changes of the weights, each times its weight, so that 0.5 and 0.5 give the mean.
# Seen: the change is as far from the mean as the mean is from 0 (1.01 of its norm): A and B are mixed by themselves,
#   with the square roots of the weights, so their product holds B1·A2 and B2·A1 too. combination_type="cat"
#   gives the mean to 1e-7.
# Matters: whoever averages the adapters of two seeds or checkpoints evaluates another model than the mean.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv peft==0.21.2 transformers==5.24.0 torch==2.13.0
run <<'PYTHON'
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
shape = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4)
config = LoraConfig(target_modules=["q_proj"], r=4)
model = get_peft_model(LlamaForCausalLM(LlamaConfig(**shape)), config, adapter_name="one")
model.add_adapter("two", config)
for name, parameter in model.named_parameters():
    if "lora_" in name:
        parameter.data = torch.randn_like(parameter) * 0.1
layer = model.base_model.model.model.layers[0].self_attn.q_proj
mean = (layer.get_delta_weight("one") + layer.get_delta_weight("two")) / 2
distances = {}
for kind in ("linear", "cat"):
    model.add_weighted_adapter(["one", "two"], [0.5, 0.5], kind, combination_type=kind)
    distances[kind] = (layer.get_delta_weight(kind) - mean).norm().item() / mean.norm().item()
print("distance from the mean, by its norm:", distances)
assert distances["linear"] > 0.5, f"linear is {distances['linear']} from the mean now"
assert distances["cat"] < 1e-5, f"cat is {distances['cat']} from the mean now"
PYTHON
