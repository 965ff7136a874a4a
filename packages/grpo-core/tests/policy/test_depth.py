from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from grpo_core.errors import UserError
from grpo_core.policy.depth import add_layers
from grpo_core.policy.fresh import fresh_model

SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "pad_token_id": 0,
}
TOKENS = torch.arange(2, 26).reshape(2, 12)


def llama() -> Any:
    return fresh_model("tiny", seed=0)[0]


def qwen2() -> Any:
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=4, max_window_layers=2))


def gemma2() -> Any:
    torch.manual_seed(0)
    return Gemma2ForCausalLM(Gemma2Config(**SHAPE, sliding_window=4))


def smollm3() -> Any:
    torch.manual_seed(0)
    return SmolLM3ForCausalLM(SmolLM3Config(**SHAPE, no_rope_layer_interval=2, eos_token_id=None, bos_token_id=None))


@pytest.mark.parametrize("make", [llama, qwen2, gemma2, smollm3])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_a_deeper_model_computes_the_same_until_it_is_trained(make: Any, count: int, tmp_path: Any) -> None:
    model = make().eval()
    before = model(TOKENS).logits
    add_layers(model, count)
    assert model.config.num_hidden_layers == len(model.model.layers) == 4 + count
    torch.testing.assert_close(model(TOKENS).logits, before, rtol=0, atol=0)
    cached = model.generate(TOKENS[:1], max_new_tokens=4, do_sample=False, eos_token_id=None)
    whole = model.generate(TOKENS[:1], max_new_tokens=4, do_sample=False, eos_token_id=None, use_cache=False)
    assert cached.tolist() == whole.tolist()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(loaded(TOKENS).logits, before, rtol=0, atol=0)


def test_each_added_layer_learns() -> None:
    model = llama()
    add_layers(model, 2)
    model(TOKENS, labels=TOKENS).loss.backward()
    added = [layer for layer in model.model.layers if not layer.self_attn.o_proj.weight.any()]
    assert len(added) == 2
    for layer in added:
        assert layer.self_attn.o_proj.weight.grad.abs().sum() > 0
        assert layer.mlp.down_proj.weight.grad.abs().sum() > 0


def test_added_layers_share_no_weights_and_are_spread_over_the_depth() -> None:
    model = llama()
    add_layers(model, 2)
    added = [place for place, layer in enumerate(model.model.layers) if not layer.mlp.down_proj.weight.any()]
    assert added == [2, 5]
    pointers = [parameter.data_ptr() for parameter in model.model.layers.parameters()]
    assert len(set(pointers)) == len(pointers)


def test_more_layers_than_there_are_or_layers_of_another_kind_are_refused() -> None:
    with pytest.raises(UserError, match="--add-layers 5: the model has 4 layers; add 1 to 4"):
        add_layers(llama(), 5)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2))
    with pytest.raises(UserError, match="GPT2LMHeadModel has no layers like Llama's"):
        add_layers(model, 1)
