import math
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor, nn
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Cache,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from grpo_core.algorithms import cpu_matmul
from grpo_core.algorithms.hidden_states import completion_logprobs
from grpo_core.engines import batching, native
from grpo_core.engines.base import Engine, Request, SampleKey, Sampling
from grpo_core.engines.completion import Completion
from grpo_core.engines.native import FLOAT32_MARGIN, NativeEngine
from grpo_core.errors import NonFiniteError, UserError

VOCABULARY, EOS, CONTEXT = 258, 256, 160
ENDS = [EOS, *range(10)]  # a random model would hardly ever draw one token of 258
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 0,
    "eos_token_id": EOS,
    "pad_token_id": EOS,
}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": CONTEXT, "bos_token_id": 0, "eos_token_id": EOS}
# SmolLM2 is a Llama with grouped queries, tied embeddings and EOS = PAD.
MODELS: dict[str, Callable[[], nn.Module]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, attention_bias=True)),
    "smollm2": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=True)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL, head_dim=8)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **GPT2, scale_attn_by_inverse_layer_idx=True)),
    "gemma3, whose window is not reached": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**SMALL, head_dim=8, sliding_window=CONTEXT)
    ),
    "granite, scaled logits": lambda: GraniteForCausalLM(GraniteConfig(**SMALL, logits_scaling=0.5)),
    "llama with an adapter": lambda: get_peft_model(
        LlamaForCausalLM(LlamaConfig(**SMALL)), LoraConfig(r=2, target_modules=["q_proj", "down_proj"])
    ),
}
# Uneven groups and prompt lengths, so that there is padding, and so that empty slots and dropped prompts occur.
GROUPS = [(3, 1), (9, 4), (4, 2), (17, 3), (9, 1)]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={character: index for index, character in enumerate(alphabet)}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|eos|>")


TOKENIZER = byte_tokenizer()
assert TOKENIZER.eos_token_id == EOS


def build(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    """A model whose logits are far from uniform, in training mode, as a trainer's is."""
    torch.manual_seed(0)
    model = MODELS[name]()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    model.generation_config.eos_token_id = ENDS
    return model.to(dtype).train()


def group_requests(groups: Iterable[tuple[int, int]] = GROUPS, **options: object) -> list[Request]:
    generator = random.Random(0)
    made = []
    for group, (length, count) in enumerate(groups):
        prompt = tuple(generator.randrange(255) for _ in range(length))
        made += [Request(prompt, SampleKey(0, 0, f"row {group}", sample), **options) for sample in range(count)]
    return made


def run(engine: NativeEngine, requests: list[Request], sampling: Sampling) -> list[Completion]:
    found = dict(engine.generate(requests, sampling))
    assert sorted(found) == list(range(len(requests)))
    return [found[index] for index in range(len(requests))]


def tokens_of(completions: Iterable[Completion]) -> list[tuple[int, ...]]:
    return [completion.token_ids for completion in completions]


def trained_logprobs(model: nn.Module, requests: list[Request], completions: list[Completion], t: float) -> Tensor:
    """[B, T] log-probs of the training forward, without dropout."""
    rows = [torch.tensor(r.prompt_ids + c.token_ids) for r, c in zip(requests, completions, strict=True)]
    mode = model.training
    with torch.no_grad():
        logp, _ = completion_logprobs(
            model.eval(),
            nn.utils.rnn.pad_sequence(rows, batch_first=True),
            torch.tensor([len(request.prompt_ids) for request in requests]),
            torch.tensor([len(completion.token_ids) for completion in completions]),
            temperature=t,
        )
    model.train(mode)
    return logp


SAMPLED = Sampling(max_completion_length=40)
GREEDY = Sampling(temperature=0, max_completion_length=25)


# --- right numbers


@pytest.mark.skipif(not cpu_matmul.has_onednn(), reason="this torch or processor does not use oneDNN here")
@pytest.mark.parametrize(("dtype", "tolerance"), [("auto", 1e-4), ("bfloat16", 0.5)])
@pytest.mark.parametrize("name", MODELS)
def test_packed_weights_sample_the_trained_model(
    name: str, dtype: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_matmul, "MIN_PRODUCTS", 1)
    monkeypatch.setattr(cpu_matmul, "has_avx512", lambda: True)  # without it, small weights are not packed
    monkeypatch.setattr(native, "multiplies_bfloat16", lambda: True)
    model = build(name, torch.float32)
    requests = group_requests()
    completions = run(NativeEngine(model, TOKENIZER, dtype=dtype), requests, SAMPLED)
    expected = trained_logprobs(model, requests, completions, 1.0).float()
    differences = [
        (torch.tensor(completion.logprobs) - expected[row, : len(completion.logprobs)]).abs().max()
        for row, completion in enumerate(completions)
    ]
    assert 0 < max(differences) < tolerance
    assert not any("forward" in module.__dict__ for module in model.modules())
    with torch.no_grad():  # new weights are packed anew
        for parameter in model.parameters():
            parameter.mul_(1.1)
    again = run(NativeEngine(model, TOKENIZER), requests, SAMPLED)
    expected = trained_logprobs(model, requests, again, 1.0).float()
    assert torch.allclose(torch.tensor(again[0].logprobs), expected[0, : len(again[0].logprobs)], atol=1e-4)


def test_bfloat16_is_refused_where_the_cpu_does_not_multiply_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "multiplies_bfloat16", lambda: False)
    with pytest.raises(UserError, match="neither AVX512-BF16 nor AMX"):
        NativeEngine(build("llama"), TOKENIZER, dtype="bfloat16")


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("name", MODELS)
def test_sampler_logprobs_are_those_of_training(name: str, temperature: float) -> None:
    model = build(name)
    requests = group_requests()
    completions = run(NativeEngine(model, TOKENIZER), requests, Sampling(temperature, max_completion_length=40))
    expected = trained_logprobs(model, requests, completions, temperature)
    for row, completion in enumerate(completions):
        found = torch.tensor(completion.logprobs, dtype=torch.float64)
        assert torch.allclose(found, expected[row, : len(found)], atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_greedy_is_that_of_generate(name: str) -> None:
    model = build(name)
    requests = group_requests()
    completions = run(NativeEngine(model, TOKENIZER), requests, GREEDY)
    model.eval()
    for request, completion in zip(requests, completions, strict=True):
        ids = torch.tensor([request.prompt_ids])
        generated = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=25, pad_token_id=EOS
        )
        assert tuple(generated[0, len(request.prompt_ids) :].tolist()) == completion.token_ids


def test_filters_cut_tokens_but_not_logprobs() -> None:
    model = build("llama")
    requests = group_requests()
    sampling = Sampling(temperature=1.3, top_k=3, top_p=0.9, min_p=0.1, max_completion_length=20)
    completions = run(NativeEngine(model, TOKENIZER), requests, sampling)
    expected = trained_logprobs(model, requests, completions, 1.3)
    for row, completion in enumerate(completions):
        assert completion.logprobs == pytest.approx(expected[row, : len(completion.logprobs)].tolist(), abs=1e-10)


# --- tokens belong to the request, not to the batch


def alone(engine: NativeEngine, requests: list[Request], sampling: Sampling) -> list[Completion]:
    return [run(engine, [request], sampling)[0] for request in requests]


@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        *((name, SAMPLED) for name in MODELS),
        ("smollm2", Sampling(0.7, top_p=0.9, max_completion_length=40)),
        ("smollm2", GREEDY),
    ],
)
def test_tokens_do_not_depend_on_the_batch(name: str, sampling: Sampling, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(name)
    requests = group_requests()
    engine = NativeEngine(model, TOKENIZER)
    together = tokens_of(run(engine, requests, sampling))
    assert len(set(map(len, together))) > 2 or sampling is GREEDY, "rows of different length, so that some leave early"
    assert tokens_of(alone(engine, requests, sampling)) == together

    order = list(range(len(requests)))
    random.Random(1).shuffle(order)
    shuffled = tokens_of(run(engine, [requests[index] for index in order], sampling))
    assert shuffled == [together[index] for index in order]

    assert tokens_of(run(NativeEngine(model, TOKENIZER, compact=False), requests, sampling)) == together
    for budget in (90, 200):  # a few rows at a time, groups split
        assert tokens_of(run(NativeEngine(model, TOKENIZER, max_batch_tokens=budget), requests, sampling)) == together
    monkeypatch.setattr(batching, "PREFILL_TOKENS", 20)  # prompts read in several parts
    monkeypatch.setattr(native, "SAMPLE_ELEMENTS", 2 * VOCABULARY)  # logits made two rows at a time
    assert tokens_of(run(engine, requests, sampling)) == together


def test_in_float32_greedy_tokens_agree_wherever_the_margin_says_so() -> None:
    model = build("smollm2", torch.float32)
    requests = group_requests()
    engine = NativeEngine(model, TOKENIZER)
    checked = 0
    pairs = zip(requests, run(engine, requests, GREEDY), alone(engine, requests, GREEDY), strict=True)
    for request, batched, single in pairs:
        ids = torch.tensor([request.prompt_ids + batched.token_ids])
        with torch.no_grad():
            best = model.eval()(ids).logits[0, len(request.prompt_ids) - 1 : -1].topk(2).values
        clear = [*(best[:, 0] - best[:, 1] > FLOAT32_MARGIN).tolist(), False]
        certain = clear.index(False)  # after one unclear token anything may follow
        assert batched.token_ids[:certain] == single.token_ids[:certain]
        checked += certain
    assert checked > 100, "most tokens of a model with real preferences are clear"


def test_samples_change_with_every_field_of_the_key_and_with_nothing_else() -> None:
    engine = NativeEngine(build("smollm2"), TOKENIZER)
    key = SampleKey(1, 2, "row", 3)
    keys = [key, key._replace(seed=9), key._replace(step=9), key._replace(prompt_id="9"), key._replace(sample=9), key]
    texts = tokens_of(run(engine, [Request((1, 2), each) for each in keys], SAMPLED))
    assert len(set(texts)) == 5 and texts[0] == texts[5]


def test_the_random_state_of_the_process_is_untouched() -> None:
    engine = NativeEngine(build("smollm2"), TOKENIZER)
    before = torch.get_rng_state()
    run(engine, group_requests(), SAMPLED)
    assert torch.equal(torch.get_rng_state(), before)


def test_first_tokens_follow_the_model() -> None:
    # 4,000 samples of one prompt; the chi-square statistic of the likeliest 9 tokens and the rest has 9 degrees of
    # freedom: its 0.999 quantile is 27.9. The keys are fixed.
    model = build("smollm2")
    n = 4000
    requests = [Request((5, 6, 7), SampleKey(0, 0, "row", sample)) for sample in range(n)]
    completions = run(NativeEngine(model, TOKENIZER), requests, Sampling(max_completion_length=1))
    with torch.no_grad():
        p = model.eval()(torch.tensor([[5, 6, 7]])).logits[0, -1].softmax(-1)
    likely = p.topk(9)
    counts = torch.tensor([ids[0] for ids in tokens_of(completions)]).bincount(minlength=VOCABULARY).double()
    observed = torch.cat((counts[likely.indices], (n - counts[likely.indices].sum())[None]))
    expected = n * torch.cat((likely.values, 1 - likely.values.sum(0, keepdim=True)))
    assert ((observed - expected).square() / expected).sum() < 27.9


# --- ends


def test_eos_ends_a_completion_is_kept_and_trained_and_has_no_text() -> None:
    engine = NativeEngine(build("smollm2"), TOKENIZER)
    assert engine.eos_ids == set(ENDS)
    completions = run(engine, group_requests(), SAMPLED)
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}
    for completion in completions:
        *before, last = completion.token_ids
        assert len(completion.logprobs) == len(completion.token_ids) <= 40
        assert not set(before) & set(ENDS)
        assert (last in ENDS) == (completion.finish_reason == "stop")
        spoken = before if last in ENDS else completion.token_ids
        assert completion.text == TOKENIZER.decode(spoken, skip_special_tokens=True)


def test_stop_strings_end_a_completion_and_its_text() -> None:
    model = build("smollm2")
    stop = ("a", "e", "\n", "0", "1", "2", "é")
    engine = NativeEngine(model, TOKENIZER)
    engine.eos_ids = frozenset()
    free = run(engine, group_requests(), SAMPLED)
    stopped = run(engine, group_requests(stop=stop), SAMPLED)
    assert {completion.finish_reason for completion in stopped} == {"stop", "length"}
    for without, completion in zip(free, stopped, strict=True):
        n = len(completion.token_ids)
        assert without.token_ids[:n] == completion.token_ids, "a stop string changes where, not what"
        assert without.logprobs[:n] == pytest.approx(completion.logprobs, abs=1e-10)
        texts = [TOKENIZER.decode(completion.token_ids[:k], skip_special_tokens=True) for k in range(n + 1)]
        assert not any(each in texts[n - 1] for each in stop), "not one token later than it had to"
        if completion.finish_reason == "stop":
            assert completion.text.endswith(stop) and texts[n].startswith(completion.text)


def test_each_request_has_its_own_stop_strings_and_limit() -> None:
    engine = NativeEngine(build("smollm2"), TOKENIZER)
    prompt, key = (1, 2, 3), SampleKey(0, 0, "row", 1)
    made = [
        Request(prompt, key),
        Request(prompt, key, max_completion_length=2),
        Request(prompt, key, max_completion_length=99),
        Request(prompt, key, stop=tuple(map(chr, range(33, 127)))),
    ]
    free, short, capped, stopped = run(engine, made, SAMPLED)
    assert short.token_ids == free.token_ids[:2] and short.finish_reason == "length"
    assert capped.token_ids == free.token_ids, "a request cannot ask for more than the sampling allows"
    assert stopped.finish_reason == "stop" and len(stopped.text) < len(free.text)


def test_completions_are_yielded_as_they_finish() -> None:
    engine = NativeEngine(build("smollm2"), TOKENIZER)
    engine.eos_ids = frozenset()
    made = [Request((1, 2), SampleKey(0, 0, "", n), max_completion_length=limit) for n, limit in enumerate([9, 1, 5])]
    assert [index for index, _ in engine.generate(made, SAMPLED)] == [1, 2, 0]


def test_nothing_asked_is_nothing_done() -> None:
    assert list(NativeEngine(build("smollm2"), TOKENIZER).generate([], SAMPLED)) == []


# --- work is not done twice


def test_a_prompt_is_read_once_and_finished_rows_leave() -> None:
    model = build("smollm2")
    shapes: list[tuple[int, int]] = []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    engine = NativeEngine(model, TOKENIZER)
    prompts = [(1, 2, 3), (4, 5, 6)]
    made = [Request(prompts[n // 4], SampleKey(0, 0, "", n), max_completion_length=n + 1) for n in range(8)]
    engine.eos_ids = frozenset()
    shapes.clear()
    run(engine, made, SAMPLED)
    # Two prompts of 3 tokens; then row n takes part in n forwards: 7 rows in the first, 6 in the second, …
    assert shapes == [(2, 3), *[(rows, 1) for rows in range(7, 0, -1)]]


def test_logits_are_made_for_the_drawn_tokens_only() -> None:
    model = build("smollm2")
    made: list[int] = []
    engine = NativeEngine(model, TOKENIZER)
    model.lm_head.register_forward_hook(lambda module, args, out: made.append(out.shape[:-1].numel()))
    completions = run(engine, group_requests(), SAMPLED)
    assert sum(made) == sum(map(len, tokens_of(completions)))


# --- the model is left as it was


def state(model: nn.Module) -> tuple[object, ...]:
    config = getattr(model, "config", None)
    return config._attn_implementation, [module.training for module in model.modules()], torch.is_grad_enabled()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_model_is_as_it_was_between_completions_and_after(attention: str) -> None:
    model = build("llama")
    model.set_attn_implementation(attention)
    model.model.layers[0].eval()  # flags need not be equal
    model.gradient_checkpointing_enable()
    before, ids = state(model), torch.tensor([[1, 2, 3]])
    logits = model(ids).logits
    completions = NativeEngine(model, TOKENIZER).generate(group_requests(), SAMPLED)
    for _, completion in completions:
        assert state(model) == before
        again = model(ids).logits
        assert torch.equal(again, logits) and again.requires_grad
        assert completion.token_ids
    assert state(model) == before


def test_an_abandoned_generator_leaves_nothing_behind() -> None:
    model = build("llama")
    before = state(model)
    completions = NativeEngine(model, TOKENIZER).generate(group_requests(), SAMPLED)
    next(completions)
    del completions
    assert state(model) == before


@pytest.mark.parametrize("when", [1, 2, 5])
def test_an_interruption_leaves_nothing_behind_and_the_engine_works_on(when: int) -> None:
    model = build("llama")
    engine = NativeEngine(model, TOKENIZER)
    expected = tokens_of(run(engine, group_requests(), SAMPLED))
    before, calls = state(model), []

    def interrupt(*_: object) -> None:
        calls.append(1)
        if len(calls) == when:
            raise KeyboardInterrupt

    handle = model.model.layers[1].register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(engine, group_requests(), SAMPLED)
    handle.remove()
    assert state(model) == before
    assert tokens_of(run(engine, group_requests(), SAMPLED)) == expected


def test_two_runs_may_be_interleaved() -> None:
    engine = NativeEngine(build("smollm2"), TOKENIZER)
    expected = run(engine, group_requests(), SAMPLED)
    first, second = (engine.generate(group_requests(), SAMPLED) for _ in range(2))
    both = [dict(pair) for pair in zip(*zip(first, second, strict=True), strict=True)]
    assert [both[0][index] for index in range(len(expected))] == expected
    assert both[0] == both[1]


# --- versions, precisions, adapters


def test_completions_carry_the_version_of_the_weights() -> None:
    engine = NativeEngine(build("smollm2"), TOKENIZER, version=3)
    assert isinstance(engine, Engine)
    assert run(engine, group_requests(), SAMPLED)[0].policy_version == 3
    engine.sync(4)
    assert run(engine, group_requests(), SAMPLED)[0].policy_version == 4


def test_new_weights_in_the_middle_are_refused() -> None:
    engine = NativeEngine(build("smollm2"), TOKENIZER)
    completions = engine.generate(group_requests(), SAMPLED)
    next(completions)
    engine.sync(1)
    with pytest.raises(RuntimeError, match=r"sync\(1\) came while completions of version 0"):
        list(completions)


def test_weights_are_the_trainers_own() -> None:
    model = build("smollm2")
    engine = NativeEngine(model, TOKENIZER)
    before = tokens_of(run(engine, group_requests(), GREEDY))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-1.1)
    assert tokens_of(run(engine, group_requests(), GREEDY)) != before


def test_an_adapter_is_sampled_with_or_without() -> None:
    base = build("llama")
    without = tokens_of(run(NativeEngine(base, TOKENIZER), group_requests(), GREEDY))
    model = get_peft_model(
        base, LoraConfig(r=4, target_modules=["q_proj", "up_proj"], init_lora_weights=False)
    ).double()
    engine = NativeEngine(model, TOKENIZER)
    assert tokens_of(run(engine, group_requests(), GREEDY)) != without
    with model.disable_adapter():
        assert tokens_of(run(engine, group_requests(), GREEDY)) == without


@pytest.mark.parametrize(
    ("dtype", "autocast", "tolerance"),
    [(torch.float32, None, 1e-4), (torch.bfloat16, None, 0.3), (torch.float32, torch.bfloat16, 0.3)],
)
def test_other_precisions(dtype: torch.dtype, autocast: torch.dtype | None, tolerance: float) -> None:
    # bfloat16 rounds logits of up to 30 by up to 0.06 each; the sampler and training round at other places.
    model = build("smollm2", dtype)
    requests = group_requests()
    with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
        completions = run(NativeEngine(model, TOKENIZER), requests, SAMPLED)
        expected = trained_logprobs(model, requests, completions, 1.0)
    for row, completion in enumerate(completions):
        assert completion.logprobs == pytest.approx(expected[row, : len(completion.logprobs)].tolist(), abs=tolerance)


# --- refusals


def test_logits_that_are_no_numbers_are_an_error_and_never_tokens() -> None:
    model = build("smollm2")
    engine = NativeEngine(model, TOKENIZER)
    with torch.no_grad():
        model.model.norm.weight[3] = math.nan
    before = state(model)
    with pytest.raises(NonFiniteError, match="NaN, infinite or all −inf in 11 of 11 rows"):
        run(engine, group_requests(), SAMPLED)
    assert state(model) == before


def test_what_exceeds_the_context_is_refused_at_the_call_with_the_arithmetic() -> None:
    engine = NativeEngine(build("smollm2"), TOKENIZER)
    made = [Request((1,), SampleKey(0, 0, "a", 0)), Request((1,) * 150, SampleKey(0, 0, "b", 0))]
    message = r"request 1 \(prompt 'b'\).*prompt 150 \+ max_completion_length 40 = 190 tokens, 30 more than 160"
    with pytest.raises(UserError, match=message):
        engine.generate(made, SAMPLED)
    assert len(run(engine, made, Sampling(max_completion_length=10))) == 2, "exactly the context fits"
    with pytest.raises(UserError, match="= 161 tokens, 1 more than 160, the model's context"):
        engine.generate(made, Sampling(max_completion_length=11))


def test_token_ids_of_another_vocabulary_are_refused() -> None:
    engine = NativeEngine(build("smollm2"), TOKENIZER)
    with pytest.raises(UserError, match=r"token ids from 1 to 258, but the model's are 0 to 257"):
        engine.generate([Request((1, 258), SampleKey(0, 0, "", 0))], SAMPLED)


def test_no_budget_is_refused() -> None:
    with pytest.raises(UserError, match="max_batch_tokens=0"):
        NativeEngine(build("smollm2"), TOKENIZER, max_batch_tokens=0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=30)),
            "= 43 tokens, 13 more than 30, the model's sliding window",
        ),
        (
            lambda: Qwen2ForCausalLM(
                Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=50, max_window_layers=1)
            ),
            "7 more than 50, the model's sliding window",
        ),
        (
            lambda: Phi3ForCausalLM(
                Phi3Config(
                    **SMALL,
                    original_max_position_embeddings=40,
                    rope_parameters={
                        "rope_type": "longrope",
                        "rope_theta": 1e4,
                        "short_factor": [1.0] * 2,
                        "long_factor": [2.0] * 2,
                        "original_max_position_embeddings": 40,
                    },
                )
            ),
            "3 more than 40, up to where longrope",
        ),
    ],
    ids=["mistral", "qwen2", "phi3"],
)
def test_a_sequence_beyond_what_attention_can_share_is_refused(model: Callable[[], nn.Module], message: str) -> None:
    engine = NativeEngine(model(), TOKENIZER)
    with pytest.raises(UserError, match=message):
        engine.generate(group_requests(), SAMPLED)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            lambda: BloomForCausalLM(BloomConfig(vocab_size=9, hidden_size=8, n_layer=1, n_head=2)),
            "BloomForCausalLM: its",
        ),
        (
            lambda: Lfm2ForCausalLM(Lfm2Config(**SMALL, layer_types=["conv", "full_attention"])),
            "layers of type conv, and only",
        ),
        (
            lambda: Gemma2ForCausalLM(Gemma2Config(**SMALL, head_dim=8, sliding_window=CONTEXT)),
            "its attention uses 'softcap'",
        ),
    ],
    ids=["bloom", "lfm2", "gemma2"],
)
def test_models_whose_attention_is_another_are_refused(model: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(UserError, match=f"{message}.*Choose another model"):
        run(NativeEngine(model(), TOKENIZER), group_requests(), SAMPLED)


def test_a_layer_with_an_attention_of_its_own_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("smollm2")

    def keeps_keys_but_attends_by_itself(hidden_states: Tensor, **options: Any) -> tuple[Tensor, None]:
        cache: Cache | None = options.get("cache", options.get("past_key_values"))  # named by transformers' version
        if cache is not None:
            rows, length, _ = hidden_states.shape
            keys = hidden_states.new_zeros(rows, 2, length, 4)
            cache.update(keys, keys, 1)
        return hidden_states, None

    monkeypatch.setattr(model.model.layers[1].self_attn, "forward", keeps_keys_but_attends_by_itself)
    with pytest.raises(UserError, match="2 stored keys and 1 used the shared-prompt attention"):
        run(NativeEngine(model, TOKENIZER), group_requests(), SAMPLED)
