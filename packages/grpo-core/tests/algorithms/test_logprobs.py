import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from small_models import small_model
from torch import Tensor, nn
from transformers import Cache, DynamicCache, LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

from grpo_core.algorithms.causal_lm import CausalLM
from grpo_core.algorithms.hidden_states import completion_states
from grpo_core.algorithms.logprobs import linear_logprob
from grpo_core.policy.fresh import fresh_model
from grpo_sdk.errors import UserError

MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "smollm2": {},
    "qwen3": {},
    "gpt2": {},
    "phi": {},  # whose head has a bias
    "gemma2": {"head_dim": 8, "final_logit_softcapping": 2.0},
    "cohere": {"logit_scale": 0.3},
    "granite": {"logits_scaling": 3.0},
    "adapter": {},
}


def build(name: str = "llama") -> Any:
    return small_model(name, **MODELS[name])


def problem(n: int = 7, with_bias: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Hidden states [n, 5], a head of 11 tokens, tokens and a bias."""
    generator = torch.Generator().manual_seed(0)
    h, w, b = (
        torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((n, 5), (11, 5), (11,))
    )
    return h, w, torch.randint(11, (n,), generator=generator), b if with_bias else None


def naive(
    h: Tensor, w: Tensor, ids: Tensor, b: Tensor | None, temperature: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    x = F.linear(h, w, b)
    z = (x if softcap is None else softcap * torch.tanh(x / softcap)) / temperature
    logp = z.log_softmax(-1)
    return logp.gather(1, ids[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


# --- linear_logprob


@pytest.mark.parametrize("parts", [(0, 1), (0,), (1,)], ids=["both", "log-probs", "entropies"])
@pytest.mark.parametrize(
    ("chunk", "temperature", "softcap", "with_bias"),
    [(1, 1.0, None, True), (3, 0.7, 1.5, True), (7, 1.0, 1.5, False), (100, 0.7, None, False), (None, 1.0, None, True)],
)
def test_values_and_gradients_are_those_of_the_naive_form(
    chunk: int | None, temperature: float, softcap: float | None, with_bias: bool, parts: tuple[int, ...]
) -> None:
    h, w, ids, b = problem(with_bias=with_bias)
    inputs = [h, w] + ([b] if b is not None else [])
    upstream = torch.randn(2, len(ids), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mine = linear_logprob(h, w, ids, bias=b, temperature=temperature, chunk=chunk, with_entropy=True, softcap=softcap)
    theirs = naive(h, w, ids, b, temperature, softcap)
    torch.testing.assert_close(mine, theirs, atol=1e-13, rtol=0)
    found, expected = (
        torch.autograd.grad(sum((out[part] * upstream[part]).sum() for part in parts), inputs) for out in (mine, theirs)
    )
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    assert linear_logprob(h, w, ids, bias=b)[1] is None, "without entropy"


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_an_impossible_token_leaves_entropy_and_gradients_finite(temperature: float) -> None:
    # A bias of −inf forbids token 2: what is left is a choice between logits 0 and 0, of entropy log 2.
    h = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    w = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    bias = torch.tensor([0.0, 0.0, -math.inf], dtype=torch.float64)
    logp, entropy = linear_logprob(h, w, torch.tensor([1]), bias=bias, temperature=temperature, with_entropy=True)
    assert entropy is not None
    assert (logp.item(), entropy.item()) == pytest.approx((-math.log(2), math.log(2)))
    for grad in torch.autograd.grad((logp + 3 * entropy).sum(), (h, w)):
        assert torch.isfinite(grad).all()


def test_no_more_than_a_chunk_of_logits_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    h, w, ids, _ = problem(n=10, with_bias=False)
    seen, linear = [], F.linear

    def recording(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight.shape[0] == len(w):  # and not the gradient of the states
            seen.append(len(x))
        return linear(x, weight, bias)

    monkeypatch.setattr(F, "linear", recording)
    linear_logprob(h, w, ids, chunk=4)[0].sum().backward()
    assert seen == [4, 4, 2] * 2, "forward and backward, four positions at a time"


def test_nothing_to_score_still_has_gradients_and_a_temperature_that_divides_by_nothing_is_refused() -> None:
    # A rank without completions runs the same graph as the others, with zero gradients.
    h, w, ids, b = problem()
    for temperature in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="must be above 0"):
            linear_logprob(h, w, ids, temperature=temperature)
    logp, entropy = linear_logprob(h[:0], w, ids[:0], bias=b, with_entropy=True)
    assert entropy is not None and logp.shape == entropy.shape == (0,)
    (logp.sum() + entropy.sum()).backward()
    assert w.grad is not None and not w.grad.any()


def test_half_precision_and_autocast_give_float32_and_sum_in_it() -> None:
    # 400 chunks of gradient 1/2 each: in bfloat16 the sum would stop at 128, where steps are 1.
    w = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    logp, _ = linear_logprob(torch.ones(400, 1).bfloat16(), w, torch.zeros(400, dtype=torch.long), chunk=1)
    assert logp.dtype == torch.float32 and logp[0].item() == pytest.approx(-math.log(2))
    logp.sum().backward()
    assert w.grad is not None and w.grad.tolist() == [[200.0], [-200.0]]
    h, w, ids, _ = problem(with_bias=False)
    h, w = h.detach().float().requires_grad_(), w.detach().float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logp, _ = linear_logprob(h, w, ids)
    assert torch.allclose(logp, naive(h.bfloat16(), w.bfloat16(), ids, None, 1.0, None)[0].float(), atol=0.05)
    logp.sum().backward()
    assert w.grad is not None and w.grad.dtype == torch.float32


@given(st.floats(-200, 200), st.integers(0, 4))
def test_far_apart_logits_do_not_overflow(offset: float, token: int) -> None:
    h = torch.ones(1, 1)
    w = torch.tensor([[0.0], [1.0], [offset], [-offset], [3 * offset]])
    logp, entropy = linear_logprob(h, w, torch.tensor([token]), with_entropy=True)
    expected = w[:, 0].double().log_softmax(0)[token]
    assert entropy is not None and float(entropy) + 1e-5 >= 0 and float(entropy) <= math.log(5) + 1e-5
    assert float(logp) == pytest.approx(float(expected), rel=1e-6, abs=1e-5)
    far, near = (linear_logprob(h, torch.tensor([[c], [c + 1]]), torch.tensor([0]))[0] for c in (1e4, 0.0))
    assert float(far) == pytest.approx(float(near), rel=1e-6), "only differences count"


# --- completion_states

PROMPTS, COMPLETIONS = torch.tensor([3, 1, 5, 2]), torch.tensor([4, 6, 0, 1])


def batch(padding: int = 0) -> Tensor:
    ids = torch.randint(3, 23, (4, 8), generator=torch.Generator().manual_seed(0))
    beyond = torch.arange(8) >= (PROMPTS + COMPLETIONS)[:, None]
    return ids.masked_fill(beyond, padding)


def scored(model: nn.Module, **options: Any) -> tuple[Tensor, Tensor | None]:
    return completion_states(model, batch(), PROMPTS, COMPLETIONS).logprobs(**options)


def row_by_row(model: nn.Module, temperature: float) -> tuple[Tensor, Tensor]:
    """Every row alone, without padding, through the model's own logits."""
    logp, entropy = torch.zeros(4, 6, dtype=torch.float64), torch.zeros(4, 6, dtype=torch.float64)
    for row, (p, c) in enumerate(zip(PROMPTS.tolist(), COMPLETIONS.tolist(), strict=True)):
        ids = batch()[row : row + 1, : p + c]
        all_logp = (model(input_ids=ids).logits[0] / temperature).log_softmax(-1)[p - 1 : p + c - 1]
        logp[row, :c] = all_logp.gather(1, ids[0, p:, None])[:, 0]
        entropy[row, :c] = -(all_logp.exp() * all_logp).sum(-1)
    return logp, entropy


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("name", MODELS)
def test_completion_logprobs_are_those_of_each_row_alone(name: str, temperature: float) -> None:
    model = build(name)
    with torch.no_grad():
        found = scored(model, temperature=temperature, with_entropy=True, chunk=3)
        torch.testing.assert_close(found, row_by_row(model, temperature), atol=1e-10, rtol=0)
    assert not found[0][2].any() and not found[0][3, 1:].any(), "0 where masked"


@pytest.mark.parametrize("name", ["smollm2", "gpt2", "gemma2", "cohere", "adapter"])
def test_gradients_reach_every_parameter_as_through_full_logits(name: str) -> None:
    model = build(name)
    upstream = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = []
    for logp in (scored(model, chunk=4)[0], row_by_row(model, 1.0)[0]):
        model.zero_grad()
        (logp * upstream).sum().backward()
        found.append({key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None})
    # RMSNorm works in float32 whatever the weights are, so its gradient is summed there.
    torch.testing.assert_close(*found, atol=1e-12 if name == "gpt2" else 1e-5, rtol=1e-5)


@pytest.mark.parametrize("padding", [0, 22, -100])
def test_padding_is_never_seen_and_lengths_that_do_not_fit_are_refused(padding: int) -> None:
    model = build()
    with torch.no_grad():
        logp, _ = completion_states(model, batch(padding), PROMPTS, COMPLETIONS).logprobs()
        expected, _ = completion_states(model, batch(5), PROMPTS, COMPLETIONS).logprobs()
    assert torch.equal(logp, expected)
    for prompts, completions in (([3, 3], [6, 2]), ([0, 3], [2, 2])):
        with pytest.raises(ValueError, match="input_ids of 8 columns"):
            completion_states(model, batch()[:2], torch.tensor(prompts), torch.tensor(completions))


def test_columns_of_padding_cost_nothing() -> None:
    model, lengths = build(), []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: lengths.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    wide = torch.cat((batch(), torch.zeros(4, 50, dtype=torch.long)), 1)
    completion_states(model, wide, PROMPTS, COMPLETIONS)
    assert lengths[-1] == (4, 6), "the longest row is 1 + 6 tokens, of which the last predicts nothing"
    logp, _ = completion_states(model, batch(), PROMPTS, torch.zeros_like(PROMPTS)).logprobs()
    logp.sum().backward()
    assert logp.shape == (4, 0) and all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_a_fully_trained_copy_of_the_head_is_the_head() -> None:
    config = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"])
    model = get_peft_model(build(), config).double()
    trained = model.base_model.model.lm_head.modules_to_save["default"]
    nn.init.normal_(trained.weight)
    logp, _ = scored(model)
    assert torch.allclose(logp, row_by_row(model, 1.0)[0], atol=1e-10)
    logp.sum().backward()
    assert trained.weight.grad is not None and trained.weight.grad.any()


# --- taking models apart


class DoubledLogits(LlamaForCausalLM):
    """A model with an idea of its own about logits."""

    def forward(self, *args: object, **kwargs: object) -> object:
        out = super().forward(*args, **kwargs)
        out.logits = out.logits * 2
        return out


@pytest.mark.parametrize(("make", "message"), [
    (lambda: DoubledLogits(LlamaConfig(vocab_size=9, hidden_size=8, num_attention_heads=2)), "DoubledLogits does more"),
    (lambda: get_peft_model(build(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)),
     "adds virtual tokens"),
    (lambda: get_peft_model(build(), LoraConfig(r=2, target_modules=["lm_head"])), "Leave lm_head out of"),
    (lambda: T5ForConditionalGeneration(T5Config(vocab_size=9, d_model=8, d_ff=8, num_layers=1, num_heads=2)),
     "not a decoder-only language model"),
    (lambda: build().model, "not a decoder-only language model"),
    (lambda: nn.Linear(2, 2), r"a Linear is neither .*model\.module under DistributedDataParallel"),
])  # fmt: skip
def test_models_whose_logits_are_made_in_an_unknown_way_are_refused(make: Any, message: str) -> None:
    model = make()
    with pytest.raises(UserError, match=message):
        scored(model)


# --- the parts of a model, in the versions of transformers that are allowed


class _Newer(nn.Module):
    def forward(self, input_ids: Tensor, *, cache: Cache | None = None, use_cache: bool = False) -> tuple[Any, ...]:
        return cache, use_cache


class _Older(nn.Module):
    def forward(self, input_ids: Tensor, past_key_values: Cache | None = None, **options: Any) -> tuple[Any, ...]:
        return past_key_values, options["use_cache"]


@pytest.mark.parametrize("body", [_Newer(), _Older()], ids=["cache", "past_key_values"])
def test_the_cache_is_given_by_the_name_that_the_version_knows(body: nn.Module) -> None:
    cache: Any = DynamicCache()
    parts = CausalLM(model=fresh_model("tiny", 0)[0], body=body, head=nn.Identity())
    assert parts.hidden(torch.zeros(1, 2, dtype=torch.long), cache=cache) is cache
