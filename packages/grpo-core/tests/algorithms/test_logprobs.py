import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from torch import Tensor, nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from grpo_core.algorithms import logprobs
from grpo_core.algorithms.causal_lm import causal_lm, evaluating
from grpo_core.algorithms.hidden_states import completion_logprobs
from grpo_core.algorithms.logprobs import full_entropy, linear_logprob, selective_logprob
from grpo_core.errors import UserError

SMALL = {
    "vocab_size": 23,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "llama, tied": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=True)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL, head_dim=8)),
    "gpt2, tied": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=23, n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=2)
    ),
    "phi, head with a bias": lambda: PhiForCausalLM(PhiConfig(**SMALL)),
    "gemma2, capped": lambda: Gemma2ForCausalLM(Gemma2Config(**SMALL, head_dim=8, final_logit_softcapping=2.0)),
    "cohere, multiplied": lambda: CohereForCausalLM(CohereConfig(**SMALL, logit_scale=0.3)),
    "granite, divided": lambda: GraniteForCausalLM(GraniteConfig(**SMALL, logits_scaling=3.0)),
}


def build(name: str) -> nn.Module:
    """A model in float64 whose logits are far from uniform."""
    torch.manual_seed(0)
    model = MODELS[name]().double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def problem(
    n: int = 7, hidden: int = 5, vocabulary: int = 11, with_bias: bool = True
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(n, hidden, generator=generator, dtype=torch.float64, requires_grad=True)
    w = torch.randn(vocabulary, hidden, generator=generator, dtype=torch.float64, requires_grad=True)
    ids = torch.randint(vocabulary, (n,), generator=generator)
    b = torch.randn(vocabulary, generator=generator, dtype=torch.float64, requires_grad=True) if with_bias else None
    return h, w, ids, b


def naive(
    h: Tensor, w: Tensor, ids: Tensor, b: Tensor | None, temperature: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    x = F.linear(h, w, b)
    z = (x if softcap is None else softcap * torch.tanh(x / softcap)) / temperature
    logp = z.log_softmax(-1)
    return logp.gather(1, ids[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


# --- linear_logprob


@pytest.mark.parametrize("chunk", [1, 3, 7, 100, None])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("with_bias", [True, False])
def test_values_and_gradients_are_those_of_the_naive_form(
    with_bias: bool, softcap: float | None, temperature: float, chunk: int | None
) -> None:
    h, w, ids, b = problem(with_bias=with_bias)
    inputs = [h, w] + ([b] if b is not None else [])
    upstream = torch.randn(2, len(ids), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mine = linear_logprob(h, w, ids, bias=b, temperature=temperature, chunk=chunk, with_entropy=True, softcap=softcap)
    theirs = naive(h, w, ids, b, temperature, softcap)
    assert mine[1] is not None
    for a, e in zip(mine, theirs, strict=True):
        assert torch.allclose(a, e, atol=1e-13, rtol=0)
    gradients = [
        torch.autograd.grad((logp * upstream[0] + entropy * upstream[1]).sum(), inputs)
        for logp, entropy in (mine, theirs)
    ]
    for a, e in zip(*gradients, strict=True):
        assert torch.allclose(a, e, atol=1e-12, rtol=0)


def test_without_entropy_none_is_returned_and_the_gradient_is_the_same() -> None:
    h, w, ids, _ = problem(with_bias=False)
    logp, entropy = linear_logprob(h, w, ids, chunk=2)
    assert entropy is None
    expected = torch.autograd.grad(naive(h, w, ids, None, 1.0, None)[0].sum(), (h, w))
    for a, e in zip(torch.autograd.grad(logp.sum(), (h, w)), expected, strict=True):
        assert torch.allclose(a, e, atol=1e-12, rtol=0)


@pytest.mark.parametrize("softcap", [None, 1.5])
def test_gradcheck(softcap: float | None) -> None:
    h, w, ids, b = problem(n=3, hidden=2, vocabulary=4)

    def both(h: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        logp, entropy = linear_logprob(h, w, ids, bias=b, temperature=0.8, chunk=2, with_entropy=True, softcap=softcap)
        assert entropy is not None
        return logp, entropy

    assert torch.autograd.gradcheck(both, (h, w, b))


def test_only_what_needs_a_gradient_gets_one() -> None:
    h, w, ids, _ = problem(with_bias=False)
    (grad,) = torch.autograd.grad(linear_logprob(h, w.detach(), ids)[0].sum(), h)
    expected = torch.autograd.grad(naive(h, w, ids, None, 1.0, None)[0].sum(), h)[0]
    assert torch.allclose(grad, expected, atol=1e-12, rtol=0)


def test_entropy_of_a_uniform_distribution_is_log_v_and_its_gradient_zero() -> None:
    h = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(8, 3, dtype=torch.float64)
    _, entropy = linear_logprob(h, w, torch.tensor([0, 5]), with_entropy=True)
    assert entropy is not None and entropy.tolist() == pytest.approx([math.log(8)] * 2)
    assert torch.autograd.grad(entropy.sum(), h)[0].abs().max() < 1e-15


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


def test_entropy_as_a_metric_costs_the_backward_pass_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    h, w, ids, b = problem()
    assert b is not None
    with_it, entropy = linear_logprob(h, w, ids, bias=b, chunk=3, with_entropy=True)
    without, _ = linear_logprob(h, w, ids, bias=b, chunk=3)
    assert entropy is not None and entropy.requires_grad
    calls = []
    monkeypatch.setattr(logprobs, "_below", lambda *_: calls.append(1))
    upstream = torch.arange(1.0, 8.0, dtype=torch.float64)
    for a, e in zip(
        torch.autograd.grad((with_it * upstream).sum(), (h, w, b)),
        torch.autograd.grad((without * upstream).sum(), (h, w, b)),
        strict=True,
    ):
        assert torch.equal(a, e)
    assert not calls, "the pass over the logits that only an entropy gradient needs"


def test_entropy_alone_can_be_differentiated() -> None:
    h, w, ids, b = problem()
    found = torch.autograd.grad(linear_logprob(h, w, ids, bias=b, chunk=3, with_entropy=True)[1].sum(), (h, w))
    expected = torch.autograd.grad(naive(h, w, ids, b, 1.0, None)[1].sum(), (h, w))
    for a, e in zip(found, expected, strict=True):
        assert torch.allclose(a, e, atol=1e-12, rtol=0)


def test_large_logits_keep_their_digits_in_float32() -> None:
    # Logits 10,000 and 10,001: log softmax is −log(1 + e) and −log(1 + 1/e), also where float32 steps are 0.001.
    h, w = torch.ones(2, 1), torch.tensor([[10000.0], [10001.0]])
    logp, entropy = linear_logprob(h, w, torch.tensor([0, 1]), with_entropy=True)
    expected = [-math.log(1 + math.e), -math.log(1 + 1 / math.e)]
    assert logp.tolist() == pytest.approx(expected, rel=1e-6)
    assert entropy is not None
    assert entropy[0].item() == pytest.approx(-sum(math.exp(x) * x for x in expected), rel=1e-6)
    assert selective_logprob(w.T.expand(2, 2), torch.tensor([0, 1])).tolist() == pytest.approx(expected, rel=1e-6)


def test_no_more_than_a_chunk_of_logits_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    h, w, ids, _ = problem(n=10, with_bias=False)
    seen = []
    linear = F.linear

    def recording(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight.shape[0] == len(w):  # and not the gradient of the states
            seen.append(len(x))
        return linear(x, weight, bias)

    monkeypatch.setattr(F, "linear", recording)
    linear_logprob(h, w, ids, chunk=4)[0].sum().backward()
    assert seen == [4, 4, 2] * 2, "forward and backward, four positions at a time"


def test_nothing_to_score_still_has_gradients() -> None:
    # A rank without completions runs the same graph as the others, with zero gradients.
    h, w, ids, b = problem()
    logp, entropy = linear_logprob(h[:0], w, ids[:0], bias=b, with_entropy=True)
    assert entropy is not None and logp.shape == entropy.shape == (0,)
    (logp.sum() + entropy.sum()).backward()
    assert w.grad is not None and not w.grad.any()


def test_bfloat16_keeps_results_and_sums_in_float32() -> None:
    # 400 chunks of gradient 1/2 each: in bfloat16 the sum would stop at 128, where steps are 1.
    n = 400
    h = torch.ones(n, 1, dtype=torch.bfloat16)
    w = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    logp, _ = linear_logprob(h, w, torch.zeros(n, dtype=torch.long), chunk=1)
    assert logp.dtype == torch.float32 and logp[0].item() == pytest.approx(-math.log(2))
    logp.sum().backward()
    assert w.grad is not None and w.grad.tolist() == [[200.0], [-200.0]]


def test_autocast_computes_both_passes_in_half_precision() -> None:
    h, w, ids, _ = problem(with_bias=False)
    h, w = h.detach().float().requires_grad_(), w.detach().float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logp, _ = linear_logprob(h, w, ids)
    expected = naive(h.bfloat16(), w.bfloat16(), ids, None, 1.0, None)[0]
    assert torch.allclose(logp, expected.float(), atol=0.05)
    logp.sum().backward()
    assert w.grad is not None and w.grad.dtype == torch.float32


@given(st.floats(-200, 200), st.integers(0, 4))
@settings(deadline=None, max_examples=50)
def test_far_apart_logits_do_not_overflow(offset: float, token: int) -> None:
    h = torch.ones(1, 1)
    w = torch.tensor([[0.0], [1.0], [offset], [-offset], [3 * offset]])
    logp, entropy = linear_logprob(h, w, torch.tensor([token]), with_entropy=True)
    expected = w[:, 0].double().log_softmax(0)[token]
    assert entropy is not None and float(entropy) + 1e-5 >= 0 and float(entropy) <= math.log(5) + 1e-5
    assert float(logp) == pytest.approx(float(expected), rel=1e-6, abs=1e-5)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_that_divides_by_nothing_is_refused(temperature: float) -> None:
    h, w, ids, _ = problem()
    with pytest.raises(ValueError, match="must be above 0"):
        linear_logprob(h, w, ids, temperature=temperature)


def test_selective_logprob() -> None:
    logits = torch.tensor([[[0.0, math.log(3)], [5.0, 5.0]]], dtype=torch.bfloat16)
    found = selective_logprob(logits, torch.tensor([[1, 0]]))
    assert found.dtype == torch.float32
    assert found[0].tolist() == pytest.approx([math.log(3 / 4), -math.log(2)], abs=2e-3)  # bfloat16(log 3) = 1.102


def test_a_token_that_cannot_be_gets_no_gradient_from_the_others() -> None:
    z = torch.tensor([1.0, -math.inf, 0.5], dtype=torch.float64, requires_grad=True)
    chosen = selective_logprob(z, torch.tensor(0))
    p = 1 / (1 + math.exp(-0.5))
    assert chosen.item() == pytest.approx(math.log(p))
    assert torch.autograd.grad(chosen, z)[0].tolist() == pytest.approx([1 - p, 0.0, p - 1])


# --- full_entropy


def test_full_entropy_and_its_gradient() -> None:
    # p = (1/4, 3/4): H = −Σ p log p, and ∂H/∂z = −p·(log p + H).
    z = torch.tensor([[0.0, math.log(3)], [5.0, 5.0]], dtype=torch.float64, requires_grad=True)
    entropy = full_entropy(z)
    h = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert entropy.tolist() == pytest.approx([h, math.log(2)])
    (gradient,) = torch.autograd.grad(entropy.sum(), z)
    assert gradient.tolist()[0] == pytest.approx([-0.25 * (math.log(0.25) + h), -0.75 * (math.log(0.75) + h)])
    assert gradient.tolist()[1] == pytest.approx([0.0, 0.0], abs=1e-16)


@pytest.mark.parametrize("rest", [[0.0], [0.0, 0.0], [0.3, -0.2, 4.0]])
def test_tokens_that_cannot_be_leave_the_entropy_as_it_is(rest: list[float]) -> None:
    z = torch.tensor([-math.inf, *rest, -math.inf], dtype=torch.float64, requires_grad=True)
    entropy = full_entropy(z)
    assert entropy.item() == pytest.approx(full_entropy(torch.tensor(rest, dtype=torch.float64)).item(), abs=1e-15)
    (gradient,) = torch.autograd.grad(entropy, z)
    assert gradient.isfinite().all() and gradient[0] == 0 and gradient[-1] == 0


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=6))
def test_entropy_lies_between_0_and_log_v(logits: list[float]) -> None:
    for dtype in (torch.float32, torch.float64):
        entropy = full_entropy(torch.tensor(logits, dtype=dtype)).item()
        assert 0 <= entropy <= math.log(len(logits)) + 1e-5


# --- completion_logprobs

PROMPTS, COMPLETIONS = torch.tensor([3, 1, 5, 2]), torch.tensor([4, 6, 0, 1])


def batch(padding: int = 0) -> Tensor:
    ids = torch.randint(3, 23, (4, 8), generator=torch.Generator().manual_seed(0))
    beyond = torch.arange(8) >= (PROMPTS + COMPLETIONS)[:, None]
    return ids.masked_fill(beyond, padding)


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
        logp, entropy = completion_logprobs(
            model, batch(), PROMPTS, COMPLETIONS, temperature=temperature, with_entropy=True, chunk=3
        )
        expected, expected_entropy = row_by_row(model, temperature)
    assert entropy is not None and logp.shape == (4, 6)
    assert torch.allclose(logp, expected, atol=1e-10, rtol=0)
    assert torch.allclose(entropy, expected_entropy, atol=1e-10, rtol=0)
    assert not logp[2].any() and not logp[3, 1:].any(), "0 where masked"


@pytest.mark.parametrize("name", ["llama, tied", "gpt2, tied", "gemma2, capped", "cohere, multiplied"])
def test_gradients_reach_every_parameter_as_through_full_logits(name: str) -> None:
    model = build(name)
    upstream = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = []
    for logp in (completion_logprobs(model, batch(), PROMPTS, COMPLETIONS, chunk=4)[0], row_by_row(model, 1.0)[0]):
        model.zero_grad()
        (logp * upstream).sum().backward()
        found.append({key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for key, grad in found[0].items():
        # RMSNorm works in float32 whatever the weights are, so its gradient is summed there.
        assert torch.allclose(grad, found[1][key], atol=1e-12 if "gpt2" in name else 1e-5, rtol=1e-5), key


@pytest.mark.parametrize("padding", [0, 22, -100])
def test_padding_is_never_seen(padding: int) -> None:
    model = build("llama")
    with torch.no_grad():
        logp, _ = completion_logprobs(model, batch(padding), PROMPTS, COMPLETIONS)
        expected, _ = completion_logprobs(model, batch(5), PROMPTS, COMPLETIONS)
    assert torch.equal(logp, expected)


def test_columns_of_padding_cost_nothing() -> None:
    model, lengths = build("llama"), []
    model.model.register_forward_pre_hook(  # type: ignore[union-attr]  # a Llama
        lambda module, args, kwargs: lengths.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    wide = torch.cat((batch(), torch.zeros(4, 50, dtype=torch.long)), 1)
    with torch.no_grad():
        completion_logprobs(model, wide, PROMPTS, COMPLETIONS)
    assert lengths[-1] == (4, 6), "the longest row is 1 + 6 tokens, of which the last predicts nothing"


def test_a_batch_without_completions_gives_zero_gradients() -> None:
    model = build("llama")
    logp, entropy = completion_logprobs(model, batch(), PROMPTS, torch.zeros_like(PROMPTS), with_entropy=True)
    assert entropy is not None and logp.shape == entropy.shape == (4, 0)
    (logp.sum() + entropy.sum()).backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


@pytest.mark.parametrize(("prompts", "completions"), [([3, 3], [6, 2]), ([0, 3], [2, 2])])
def test_lengths_that_do_not_fit_are_refused(prompts: list[int], completions: list[int]) -> None:
    with pytest.raises(ValueError, match="input_ids of 8 columns"):
        completion_logprobs(build("llama"), batch()[:2], torch.tensor(prompts), torch.tensor(completions))


def test_an_adapter_counts_on_and_off_and_only_it_is_trained() -> None:
    base = build("llama")
    with torch.no_grad():
        without = completion_logprobs(base, batch(), PROMPTS, COMPLETIONS)[0]
    config = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = get_peft_model(base, config).double()
    logp, _ = completion_logprobs(model, batch(), PROMPTS, COMPLETIONS)
    assert not torch.allclose(logp, without)
    logp.sum().backward()
    assert {"lora" in key for key, p in model.named_parameters() if p.grad is not None} == {True}
    with torch.no_grad(), model.disable_adapter():
        assert torch.equal(completion_logprobs(model, batch(), PROMPTS, COMPLETIONS)[0], without)


def test_a_fully_trained_copy_of_the_head_is_the_head() -> None:
    config = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"])
    model = get_peft_model(build("llama"), config).double()
    trained = model.base_model.model.lm_head.modules_to_save["default"]
    nn.init.normal_(trained.weight)
    logp, _ = completion_logprobs(model, batch(), PROMPTS, COMPLETIONS)
    assert torch.allclose(logp, row_by_row(model, 1.0)[0], atol=1e-10)
    logp.sum().backward()
    assert trained.weight.grad is not None and trained.weight.grad.any()


def test_an_adapter_on_the_head_is_refused() -> None:
    model = get_peft_model(build("llama"), LoraConfig(r=2, target_modules=["lm_head"]))
    with pytest.raises(UserError, match="Leave lm_head out of target_modules"):
        completion_logprobs(model, batch(), PROMPTS, COMPLETIONS)


# --- taking models apart


class DoubledLogits(LlamaForCausalLM):
    """A model with an idea of its own about logits."""

    def forward(self, *args: object, **kwargs: object) -> object:
        out = super().forward(*args, **kwargs)
        out.logits = out.logits * 2
        return out


def test_logits_made_in_an_unknown_way_are_refused() -> None:
    with pytest.raises(UserError, match="DoubledLogits does more to its logits"):
        causal_lm(DoubledLogits(LlamaConfig(**SMALL)))


def test_an_adapter_with_virtual_tokens_is_refused() -> None:
    model = get_peft_model(build("llama"), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    with pytest.raises(UserError, match="adds virtual tokens"):
        causal_lm(model)


def test_what_is_no_causal_lm_is_refused() -> None:
    encoder_decoder = T5ForConditionalGeneration(T5Config(vocab_size=9, d_model=8, d_ff=8, num_layers=1, num_heads=2))
    with pytest.raises(UserError, match="not a decoder-only language model"):
        causal_lm(encoder_decoder)
    with pytest.raises(UserError, match="not a decoder-only language model"):
        causal_lm(LlamaForCausalLM(LlamaConfig(**SMALL)).model)
    with pytest.raises(UserError, match=r"a Linear is neither .*model\.module under DistributedDataParallel"):
        causal_lm(nn.Linear(2, 2))


def test_evaluating_restores_every_flag_on_errors_too() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout(), nn.Linear(1, 1)))
    model[1].eval()
    before = [module.training for module in model.modules()]
    with pytest.raises(KeyboardInterrupt), evaluating(model):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
        raise KeyboardInterrupt
    assert [module.training for module in model.modules()] == before
    assert torch.is_grad_enabled()
