import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from grpo_core.algorithms import packing
from grpo_core.algorithms.causal_lm import causal_lm
from grpo_core.algorithms.hidden_states import completion_logprobs
from grpo_core.algorithms.packing import attends_in_parts, can_pack, packed_states, pair_cost, plan_packs

SMALL = {"vocab_size": 19, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, **HEADS)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL, **HEADS, head_dim=8)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=19, n_embd=16, n_layer=2, n_head=2, n_positions=64, attn_pdrop=0.0)
    ),
}
PROMPTS = [3, 3, 3, 5, 5]
COMPLETIONS = [4, 1, 6, 2, 3]
PACKS = [(0, 1, 2), (3, 4)]


def rows() -> torch.Tensor:
    """Five right-padded rows: the first three share a prompt, and so do the last two."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 19, (5, 9), generator=generator)
    ids[1, :3], ids[2, :3], ids[4, :5] = ids[0, :3], ids[0, :3], ids[3, :5]
    return ids


@pytest.mark.parametrize("attention", ["parts", "sdpa", "eager"])
@pytest.mark.parametrize("name", MODELS)
def test_packed_equals_alone_in_values_and_gradients(
    name: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().double().eval()
    model.set_attn_implementation("eager" if attention == "eager" else "sdpa")
    if attention == "sdpa":
        monkeypatch.setattr(packing, "attends_in_parts", lambda parts: False)
    assert can_pack(model)
    assert packing.attends_in_parts(causal_lm(model)) == (attention == "parts")
    prompts, completions = torch.tensor(PROMPTS), torch.tensor(COMPLETIONS)
    upstream = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = []
    for packs in ([(row,) for row in range(5)], PACKS, [(0, 1), (2,), (3, 4)]):
        logp, _ = packed_states(model, rows(), prompts, completions, packs).logprobs(temperature=0.7)
        gradient = torch.autograd.grad((logp * upstream).sum(), list(model.parameters()), allow_unused=True)
        found.append((logp.detach(), torch.cat([each.flatten() for each in gradient if each is not None])))
    # Llama's and Qwen's eager softmax and the gradients of their RMSNorm are in float32 whatever the weights are.
    for logp, gradient in found[1:]:
        assert torch.allclose(logp, found[0][0], atol=1e-12 if name == "gpt2" or attention != "eager" else 1e-6, rtol=0)
        assert torch.allclose(gradient, found[0][1], atol=1e-12 if name == "gpt2" else 1e-5, rtol=0)


def test_alone_is_completion_logprobs() -> None:
    model = MODELS["llama"]().double().eval()
    prompts, completions = torch.tensor(PROMPTS), torch.tensor(COMPLETIONS)
    alone, _ = packed_states(model, rows(), prompts, completions, [(row,) for row in range(5)]).logprobs()
    assert torch.equal(alone, completion_logprobs(model, rows(), prompts, completions)[0])


def test_a_model_with_a_sliding_window_is_not_packed() -> None:
    config = Qwen3Config(**SMALL, **HEADS, head_dim=8, use_sliding_window=True, sliding_window=4, max_window_layers=0)
    assert not can_pack(Qwen3ForCausalLM(config))


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
def test_every_row_is_in_one_pack_of_its_own_group(
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
    torch.manual_seed(0)
    model = MODELS["llama"]().double().eval()
    ids = torch.randint(0, 19, (5, 9))
    prompts, completions = torch.tensor([4, 4, 4, 4, 4]), torch.tensor([1, 1, 1, 1, 1])
    ids[:, :4] = ids[0, :4]
    alone, _ = packed_states(model, ids, prompts, completions, [(row,) for row in range(5)]).logprobs()
    packed, _ = packed_states(model, ids, prompts, completions, packs).logprobs()
    assert torch.allclose(packed, alone, atol=1e-12, rtol=0)


def test_under_autocast_the_attention_is_in_its_type() -> None:
    torch.manual_seed(0)
    model = MODELS["llama"]().eval()
    prompts, completions = torch.tensor(PROMPTS), torch.tensor(COMPLETIONS)
    expected, _ = packed_states(model, rows(), prompts, completions, PACKS).logprobs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        packed, _ = packed_states(model, rows(), prompts, completions, PACKS).logprobs()
        packed.sum().backward()
    assert not torch.equal(packed, expected)
    assert torch.allclose(packed, expected, atol=0.05)


def test_what_fills_blocks_has_no_part_in_gradients() -> None:
    torch.manual_seed(0)
    model = MODELS["llama"]().double().eval()
    prompts, completions = torch.tensor(PROMPTS), torch.tensor(COMPLETIONS)
    weights = []
    for scale in (1.0, 1e200):
        logp, _ = packed_states(model, rows(), prompts, completions, PACKS).logprobs()
        upstream = torch.ones_like(logp).index_fill(0, torch.tensor([0]), scale)
        loss = (logp * upstream)[1:].sum()  # the first row, which fills the blocks of others, has no part in it
        weights.append(torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))]))
    assert torch.equal(*weights)


def test_attention_is_in_parts_only_where_it_is_the_same() -> None:
    model = MODELS["gpt2"]()
    assert attends_in_parts(causal_lm(model))
    assert pair_cost(model) == 0
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert not attends_in_parts(causal_lm(model))  # the backward pass would call the attention again, without parts
    with_dropout = GPT2LMHeadModel(GPT2Config(vocab_size=19, n_embd=16, n_layer=2, n_head=2, n_positions=64))
    assert not attends_in_parts(causal_lm(with_dropout))


def test_a_model_with_an_attention_of_its_own_is_masked() -> None:
    torch.manual_seed(0)
    model = MODELS["llama"]().double().eval()
    attention = model.model.layers[1].self_attn
    shared, attention.config = attention.config, LlamaConfig(**SMALL, **HEADS)
    attention.config._attn_implementation = "sdpa"  # whatever the model's configuration says
    assert shared is model.config
    prompts, completions = torch.tensor(PROMPTS), torch.tensor(COMPLETIONS)
    assert attends_in_parts(causal_lm(model))
    packed, _ = packed_states(model, rows(), prompts, completions, PACKS).logprobs()
    assert not attends_in_parts(causal_lm(model))
    alone, _ = packed_states(model, rows(), prompts, completions, [(row,) for row in range(5)]).logprobs()
    assert torch.allclose(packed, alone, atol=1e-12, rtol=0)


def test_pair_cost_is_what_the_formula_says() -> None:
    model = MODELS["llama"]()
    model.set_attn_implementation("eager")
    body = sum(p.numel() for p in model.model.parameters()) - model.model.embed_tokens.weight.numel()
    assert pair_cost(model) == pytest.approx(2 * 2 * 4 * 4 / body)  # 2 layers, 4 heads of 16/4 = 4
