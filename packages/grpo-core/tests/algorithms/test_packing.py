import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_models import SHAPE, small_model
from transformers import LlamaConfig

from grpo_core.algorithms import packing
from grpo_core.algorithms.causal_lm import causal_lm
from grpo_core.algorithms.hidden_states import completion_states
from grpo_core.algorithms.packing import attends_in_parts, can_pack, packed_states, pair_cost, plan_packs

MODELS = {"llama": {}, "qwen3": {}, "gpt2": {"attn_pdrop": 0.0}}
PROMPTS, COMPLETIONS = torch.tensor([3, 3, 3, 5, 5]), torch.tensor([4, 1, 6, 2, 3])
ALONE, PACKS = [(row,) for row in range(5)], [(0, 1, 2), (3, 4)]


def rows() -> torch.Tensor:
    """Five right-padded rows: the first three share a prompt, and so do the last two."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 19, (5, 9), generator=generator)
    ids[1, :3], ids[2, :3], ids[4, :5] = ids[0, :3], ids[0, :3], ids[3, :5]
    return ids


def logprobs(model: Any, packs: list[tuple[int, ...]], **options: float) -> torch.Tensor:
    return packed_states(model, rows(), PROMPTS, COMPLETIONS, packs).logprobs(**options)[0]


@pytest.mark.parametrize("attention", ["parts", "sdpa", "eager"])
@pytest.mark.parametrize("name", MODELS)
def test_packed_equals_alone_in_value_and_gradient(name: str, attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(name, **MODELS[name])
    model.set_attn_implementation("eager" if attention == "eager" else "sdpa")
    if attention == "sdpa":
        monkeypatch.setattr(packing, "attends_in_parts", lambda parts: False)
    assert can_pack(model)
    assert packing.attends_in_parts(causal_lm(model)) == (attention == "parts")
    upstream = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = []
    for packs in (ALONE, PACKS, [(0, 1), (2,), (3, 4)]):
        logp = logprobs(model, packs, temperature=0.7)
        gradient = torch.autograd.grad((logp * upstream).sum(), list(model.parameters()), allow_unused=True)
        found.append((logp.detach(), torch.cat([each.flatten() for each in gradient if each is not None])))
    assert torch.equal(found[0][0], completion_states(model, rows(), PROMPTS, COMPLETIONS).logprobs(temperature=0.7)[0])
    # Llama's and Qwen's eager softmax and the gradients of their RMSNorm are in float32 whatever the weights are.
    for logp, gradient in found[1:]:
        assert torch.allclose(logp, found[0][0], atol=1e-12 if name == "gpt2" or attention != "eager" else 1e-5, rtol=0)
        assert torch.allclose(gradient, found[0][1], atol=1e-12 if name == "gpt2" else 1e-3, rtol=1e-4)


def test_cheap_attention_packs_a_whole_group_and_dear_attention_none() -> None:
    lengths = ([10] * 4, [5] * 4, [0, 0, 0, 0])
    assert plan_packs(*lengths, pair_cost=0.0) == [(0, 1, 2, 3)]
    assert plan_packs(*lengths, pair_cost=math.inf) == [(0,), (1,), (2,), (3,)]
    # one token in, one out: 10 + 1·4 tokens packed and 10 + 4 each alone
    assert plan_packs(*lengths, pair_cost=0.0, max_tokens=18) == [(0, 1), (2, 3)]
    assert plan_packs(*lengths, pair_cost=0.0, max_rows=3) == [(0, 1), (2, 3)]  # as few prompts as 3 and 1


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.floats(0, 0.1),
    st.one_of(st.none(), st.integers(1, 5)),
    st.one_of(st.none(), st.integers(1, 60)),
)
def test_rows_are_in_one_pack_each(
    groups: list[int], cost: float, max_rows: int | None, max_tokens: int | None
) -> None:
    prompts, completions = [4 + group for group in groups], [1 + index % 5 for index in range(len(groups))]
    packs = plan_packs(prompts, completions, groups, pair_cost=cost, max_rows=max_rows, max_tokens=max_tokens)
    assert sorted(row for pack in packs for row in pack) == list(range(len(groups)))
    for pack in packs:
        assert len({groups[row] for row in pack}) == 1
        assert max_rows is None or len(pack) <= max_rows
        tokens = prompts[pack[0]] + sum(completions[row] - 1 for row in pack)
        assert max_tokens is None or len(pack) == 1 or tokens <= max_tokens


@pytest.mark.parametrize("packs", [[(0, 1, 2), (3, 4)], [(0, 1, 2, 3), (4,)]])
def test_completions_of_one_token_and_shorter_packs(packs: list[tuple[int, ...]]) -> None:
    model, ids = small_model(), torch.randint(0, 19, (5, 9))
    lengths = torch.tensor([4] * 5), torch.tensor([1] * 5)
    ids[:, :4] = ids[0, :4]
    alone, packed = (packed_states(model, ids, *lengths, each).logprobs()[0] for each in (ALONE, packs))
    assert torch.allclose(packed, alone, atol=1e-12, rtol=0)


def test_under_autocast_the_attention_is_in_its_type() -> None:
    model = small_model(dtype=torch.float32, std=None)
    expected = logprobs(model, PACKS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        packed = logprobs(model, PACKS)
        packed.sum().backward()
    assert not torch.equal(packed, expected)
    assert torch.allclose(packed, expected, atol=0.05)


def test_what_fills_blocks_has_no_part_in_gradients() -> None:
    model, weights = small_model(), []
    for scale in (1.0, 1e200):
        logp = logprobs(model, PACKS)
        upstream = torch.ones_like(logp).index_fill(0, torch.tensor([0]), scale)
        loss = (logp * upstream)[1:].sum()  # the first row, which fills the blocks of others, has no part in it
        weights.append(torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))]))
    assert torch.equal(*weights)


def test_attention_is_in_parts_only_where_it_is_the_same() -> None:
    model = small_model("gpt2", attn_pdrop=0.0)
    assert attends_in_parts(causal_lm(model))
    assert pair_cost(model) == 0
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert not attends_in_parts(causal_lm(model))  # the backward pass would call the attention again, without parts
    assert not attends_in_parts(causal_lm(small_model("gpt2")))  # which has dropout
    window = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}
    assert not can_pack(small_model("qwen3", **window))


def test_a_model_with_an_attention_of_its_own_is_masked() -> None:
    model = small_model()
    attention = model.model.layers[1].self_attn
    attention.config = LlamaConfig(**SHAPE)
    attention.config._attn_implementation = "sdpa"  # whatever the model's configuration says
    assert attends_in_parts(causal_lm(model))
    packed = logprobs(model, PACKS)
    assert not attends_in_parts(causal_lm(model))
    assert torch.allclose(packed, logprobs(model, ALONE), atol=1e-12, rtol=0)
