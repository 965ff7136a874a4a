from typing import Any

import pytest
import torch
from small_models import small_model
from transformers import AutoModelForCausalLM

from grpo_core.policy.depth import add_layers
from grpo_sdk.errors import UserError

TOKENS = torch.arange(2, 26).reshape(2, 12)


def small(kind: str = "llama", **changes: Any) -> Any:
    return small_model(kind, torch.float32, num_hidden_layers=4, **changes)


@pytest.mark.parametrize(("kind", "changes"), [
    ("llama", {}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}),
    ("gemma2", {"sliding_window": 4}),
    ("smollm3", {"no_rope_layer_interval": 2}),
])  # fmt: skip
@pytest.mark.parametrize("count", [3, 4])
def test_a_deeper_model_computes_the_same(kind: str, changes: dict[str, Any], count: int, tmp_path: Any) -> None:
    model = small(kind, **changes)
    before = model(TOKENS).logits
    add_layers(model, count)
    assert model.config.num_hidden_layers == len(model.model.layers) == 4 + count
    torch.testing.assert_close(model(TOKENS).logits, before, rtol=0, atol=0)
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None}
    cached, whole = (model.generate(TOKENS[:1], use_cache=uses, **options) for uses in (True, False))
    assert cached.tolist() == whole.tolist()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(loaded(TOKENS).logits, before, rtol=0, atol=0)


def test_each_added_layer_learns_has_weights_of_its_own_and_they_are_spread_over_the_depth() -> None:
    model = small()
    add_layers(model, 2)
    model(TOKENS, labels=TOKENS).loss.backward()
    layers = model.model.layers
    added = [place for place, layer in enumerate(layers) if not layer.mlp.down_proj.weight.any()]
    assert added == [2, 5]
    for place in added:
        assert not layers[place].self_attn.o_proj.weight.any()
        assert layers[place].self_attn.o_proj.weight.grad.abs().sum() > 0
        assert layers[place].mlp.down_proj.weight.grad.abs().sum() > 0
    pointers = [parameter.data_ptr() for parameter in layers.parameters()]
    assert len(set(pointers)) == len(pointers)


def test_more_layers_than_there_are_or_layers_of_another_kind_are_refused() -> None:
    with pytest.raises(UserError, match="--add-layers 5: the model has 4 layers; add 1 to 4"):
        add_layers(small(), 5)
    with pytest.raises(UserError, match="GPT2LMHeadModel has no layers like Llama's"):
        add_layers(small_model("gpt2"), 1)
