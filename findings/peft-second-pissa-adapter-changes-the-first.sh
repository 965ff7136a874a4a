#!/usr/bin/env bash
# What: add_adapter() with init_lora_weights="pissa" or "olora" subtracts the new adapter's start from the shared base
#   weights, so that the model's outputs under the first adapter, which nobody touched, change.
# Versions: peft==0.21.2, transformers==5.24.0, torch==2.13.0
# Expected: adapters of one model are independent: adding one leaves the active one's outputs as they are, as it does
#   for the plain LoRA.
# Seen: a tiny Llama's logits under adapter "a" move by 0.07 (PiSSA) or 0.12 (OLoRA) when "b" is added, without an
#   exception or warning; those under "b" are not the base model's at its start either. Plain LoRA: 0.
# Matters: a reference or opponent kept as a second adapter (TRL does so for the KL term where it gets a PeftModel)
#   changes the policy before its first step, and what is saved belongs to no base that exists.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv peft==0.21.2 transformers==5.24.0 torch==2.13.0
run <<'PYTHON'
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

IDS = torch.arange(10)[None]


@torch.no_grad()
def moves(start):
    """How far logits are from the base model's: with "a" alone, with "a" once "b" is added, and with "b"."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2,
    )
    model = LlamaForCausalLM(config).eval()
    base = model(IDS).logits
    lora = dict(r=4, init_lora_weights=start, target_modules=["q_proj", "v_proj"])
    model = get_peft_model(model, LoraConfig(**lora), adapter_name="a")
    alone = model(IDS).logits
    model.add_adapter("b", LoraConfig(**lora))
    beside = model(IDS).logits
    model.set_adapter("b")
    return [(logits - base).abs().max().item() for logits in (alone, beside, model(IDS).logits)]


for start in (True, "pissa", "olora"):
    alone, beside, second = moves(start)
    print(f"{start}: a alone {alone:.2g}, a beside b {beside:.2g}, b {second:.2g}")
    assert alone < 1e-5, f"{start}: the first adapter doesn't begin as the base model"
    if start is True:
        assert beside < 1e-5 and second < 1e-5, "plain LoRA's adapters depend on each other now"
    else:
        assert beside > 1e-2, f"{start}: adding an adapter no longer changes the first ({beside:.2g})"
PYTHON
