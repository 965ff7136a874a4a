"""Products through oneDNN are those of `F.linear` up to rounding, and packed weights leave a model as it was."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_models import small_model
from torch import nn

from grpo_core.algorithms import cpu_matmul
from grpo_core.algorithms.cpu_matmul import Linear, PackedLinears, has_onednn, linear, use_onednn

needs_onednn = pytest.mark.skipif(not has_onednn(), reason="this torch or processor does not use oneDNN here")
N, K, ROWS = 320, 256, 64  # above MIN_PRODUCTS


@pytest.fixture(autouse=True)
def avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes through oneDNN is the same on every CPU."""
    monkeypatch.setattr(cpu_matmul, "has_avx512", lambda: True)


def llama(**options: object) -> Any:
    sizes = {"hidden_size": 256, "intermediate_size": 384, "attention_bias": False}
    return small_model("llama", torch.float32, std=None, **sizes, **options)


def assert_same_product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Values and gradients are torch's, up to rounding."""
    leaves = [each.detach().requires_grad_() for each in (x, weight, bias) if each is not None]
    own, expected = linear(*leaves), F.linear(*leaves)
    torch.testing.assert_close(own, expected, atol=1e-3, rtol=1e-4)
    upstream = torch.randn(own.shape, generator=torch.Generator().manual_seed(1))
    found = [torch.autograd.grad(out, leaves, upstream) for out in (own, expected)]
    torch.testing.assert_close(*found, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("shape", [(K,), (0, K), (1, K), (33, K), (2, 70, K)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_products_and_gradients_are_those_of_torch(shape: tuple[int, ...], with_bias: bool) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(shape), torch.randn(N, K), torch.randn(N) if with_bias else None
    assert_same_product(x, weight, bias)
    assert_same_product(x, weight.t().contiguous().t(), bias)


@pytest.mark.parametrize(("rows", "dtype"), [(8, torch.float32), (N, torch.float64), (N, torch.bfloat16)])
def test_small_weights_and_other_types_are_left_to_torch(rows: int, dtype: torch.dtype) -> None:
    x, weight = torch.randn(5, K, dtype=dtype), torch.randn(rows, K, dtype=dtype)
    assert torch.equal(linear(x, weight), F.linear(x, weight))


@needs_onednn
def test_a_model_trains_as_before_and_only_frozen_weights_have_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, found, products = torch.arange(2 * ROWS).view(2, ROWS), [], []
    product = cpu_matmul._product
    monkeypatch.setattr(cpu_matmul, "_product", lambda *each: products.append(each) or product(*each))
    for through_onednn in (False, True):
        model = llama()
        model.model.layers[0].mlp.up_proj.weight.requires_grad = False
        if through_onednn:
            use_onednn(model)
            assert type(model.model.layers[0].mlp.up_proj) is Linear
        model(ids, labels=ids).loss.backward()
        assert bool(products) is through_onednn  # on some CPUs both libraries give the same bits
        found.append({name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None})
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)
    assert "model.layers.0.mlp.up_proj.weight" not in found[0]


@needs_onednn
def test_a_compiled_layer_is_torchs_own() -> None:
    layer, x = nn.Sequential(nn.Linear(K, N)), torch.randn(ROWS, K)
    use_onednn(layer)
    traced = torch.compile(layer, backend="eager", fullgraph=True)
    assert torch.equal(traced(x), F.linear(x, layer[0].weight, layer[0].bias))


@needs_onednn
@pytest.mark.parametrize("tied", [False, True])
def test_packed_layers_compute_the_same_and_only_within_the_block(tied: bool) -> None:
    model, ids = llama(tie_word_embeddings=tied), torch.arange(24).view(2, 12)
    with torch.no_grad():
        before = model(ids).logits
        with pytest.raises(KeyboardInterrupt), PackedLinears(model, 24).in_use():
            assert any("forward" in module.__dict__ for module in model.modules())
            within = model(ids).logits
            model.lm_head.weight.zero_()  # the copies do not follow
            assert torch.equal(model(ids).logits, within) or tied  # a tied embedding is read from the weight
            raise KeyboardInterrupt
        assert torch.allclose(within, before, atol=1e-5)
        assert model(ids).logits.abs().max() == 0
    assert not any("forward" in module.__dict__ for module in model.modules())
