#!/usr/bin/env bash
# What: with ensure_weight_tying=True, PEFT puts one LoRA on the embedding and on the tied head, and its merge adds the
#   LoRA's update to their one matrix twice: merged = base + 2 * update.
# Versions: peft==0.21.2, transformers==5.24.0, torch==2.13.0
# Expected: the option is the one that PEFT's warning about merging tied models names as not set; with it, the merged
#   model computes what the adapted model computed, as merge_and_unload() promises.
# Seen: (merged - base) / update is 2.0 in the embedding of a tiny tied Llama, and logits move by more than 1 (a warning
#   speaks of complications). Without the option they move as well: the head then gets an update that it was not
#   trained with. Untied before the merge, by cloning the head's matrix, nothing moves.
# Matters: whoever trains embeddings (new tokens) of a small model, most of which are tied, and publishes the merged
#   weights or sends them to vLLM evaluates or samples from another policy than the trained one.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv peft==0.21.2 transformers==5.24.0 torch==2.13.0
run <<'PYTHON'
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

IDS = torch.arange(10)[None]


def merged(untie):
    """(merged - base) / update in the embedding, and how far the logits move by the merge."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    base = model.model.embed_tokens.weight.detach().clone()
    model = get_peft_model(model, LoraConfig(r=4, target_modules=["embed_tokens"], ensure_weight_tying=True))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.1)
        update = model.base_model.model.model.embed_tokens.get_delta_weight("default").clone()
        adapted = model(IDS).logits
        if untie:
            head = model.base_model.model.lm_head.base_layer
            head.weight = torch.nn.Parameter(head.weight.clone())
        model = model.merge_and_unload()
        times = ((model.model.embed_tokens.weight - base) / update).median().item()
        return times, (model(IDS).logits - adapted).abs().max().item()


times, moved = merged(untie=False)
print(f"tied: the update is in the embedding {times:.3f} times, logits move by {moved:.3g}")
untied_times, untied_moved = merged(untie=True)
print(f"untied before: {untied_times:.3f} times, {untied_moved:.3g}")
assert abs(untied_times - 1) < 1e-3 and untied_moved < 1e-4, "an untied model changes by its merge now"
assert abs(times - 2) < 1e-3 and moved > 0.1, f"a tied model has the update {times:.3f} times now"
PYTHON
