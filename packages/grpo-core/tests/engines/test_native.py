import math
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from small_models import ENDS, FAMILIES, TOKENIZER, VOCABULARY, sampled, small_model
from torch import Tensor, nn
from transformers import Cache

from grpo_core.algorithms import cpu_matmul
from grpo_core.algorithms.hidden_states import completion_states
from grpo_core.engines import decoding, native
from grpo_core.engines.native import FLOAT32_MARGIN, NativeEngine
from grpo_sdk.endpoints.base import Engine, Request, SampleKey, Sampling
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.errors import NonFiniteError, UserError

# Uneven groups and prompt lengths, so that there is padding, and so that empty slots and dropped prompts occur.
GROUPS = [(3, 1), (9, 4), (4, 2), (17, 3), (9, 1)]


def build(name: str = "smollm2", dtype: torch.dtype = torch.float64) -> Any:
    """A model in training mode, as a trainer's is."""
    return small_model(name, dtype).train()


@pytest.fixture
def engine() -> NativeEngine:
    return NativeEngine(build(), TOKENIZER)


def group_requests(**options: object) -> list[Request]:
    generator = random.Random(0)
    made = []
    for group, (length, count) in enumerate(GROUPS):
        prompt = tuple(generator.randrange(10, 255) for _ in range(length))
        made += [Request(prompt, SampleKey(0, 0, f"row {group}", sample), **options) for sample in range(count)]
    return made


def tokens_of(completions: Iterable[Completion]) -> list[tuple[int, ...]]:
    return [completion.token_ids for completion in completions]


def trained_logprobs(model: nn.Module, requests: list[Request], completions: list[Completion], t: float) -> Tensor:
    """[B, T] log-probs of the training forward, without dropout."""
    rows = [torch.tensor(r.prompt_ids + c.token_ids) for r, c in zip(requests, completions, strict=True)]
    lengths = torch.tensor([(len(r.prompt_ids), len(c.token_ids)) for r, c in zip(requests, completions, strict=True)])
    mode = model.training
    with torch.no_grad():
        padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        logp, _ = completion_states(model.eval(), padded, *lengths.T).logprobs(temperature=t)
    model.train(mode)
    return logp


def assert_trained(
    model: nn.Module, requests: list[Request], completions: list[Completion], t: float = 1.0, *, tolerance: float
) -> None:
    expected = trained_logprobs(model, requests, completions, t)
    for row, completion in enumerate(completions):
        assert completion.logprobs == pytest.approx(expected[row, : len(completion.logprobs)].tolist(), abs=tolerance)


SAMPLED = Sampling(max_completion_length=40)
GREEDY = Sampling(temperature=0, max_completion_length=25)


# --- right numbers


@pytest.mark.skipif(not cpu_matmul.has_onednn(), reason="this torch or processor does not use oneDNN here")
@pytest.mark.parametrize(("dtype", "tolerance"), [("auto", 1e-4), ("bfloat16", 0.5)])
@pytest.mark.parametrize("name", ["smollm2", "gpt2", "adapter"])
def test_packed_weights_sample_alike(name: str, dtype: str, tolerance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_matmul, "MIN_PRODUCTS", 1)
    monkeypatch.setattr(cpu_matmul, "has_avx512", lambda: True)  # without it, small weights are not packed
    monkeypatch.setattr(native, "multiplies_bfloat16", lambda: True)
    model, requests = build(name, torch.float32), group_requests()
    completions = sampled(NativeEngine(model, TOKENIZER, dtype=dtype), requests, SAMPLED)
    expected = trained_logprobs(model, requests, completions, 1.0)
    differences = [
        (torch.tensor(completion.logprobs) - expected[row, : len(completion.logprobs)]).abs().max()
        for row, completion in enumerate(completions)
    ]
    assert 0 < max(differences) < tolerance
    assert not any("forward" in module.__dict__ for module in model.modules())
    with torch.no_grad():  # new weights are packed anew
        for parameter in model.parameters():
            parameter.mul_(1.1)
    again = sampled(NativeEngine(model, TOKENIZER), requests, SAMPLED)
    assert_trained(model, requests, again, tolerance=1e-4)


@pytest.mark.parametrize(("name", "options"), [
    *((name, {}) for name in FAMILIES),
    ("granite", {"temperature": 0.7}),
    ("smollm2", {"temperature": 1.3, "top_k": 3, "top_p": 0.9, "min_p": 0.1}),  # which cut tokens, not log-probs
])  # fmt: skip
def test_sampler_logprobs_are_those_of_training(name: str, options: dict[str, float]) -> None:
    model, requests = build(name), group_requests()
    sampling = Sampling(max_completion_length=40, **options)  # type: ignore[arg-type] # options of it
    completions = sampled(NativeEngine(model, TOKENIZER), requests, sampling)
    assert_trained(model, requests, completions, sampling.temperature, tolerance=1e-10)


@pytest.mark.parametrize(("name", "dtype"), [*((name, torch.float64) for name in FAMILIES), ("smollm2", torch.float32)])
def test_greedy_tokens_are_the_models_best_wherever_the_margin_says_so(name: str, dtype: torch.dtype) -> None:
    model, requests = build(name, dtype), group_requests()
    completions = sampled(NativeEngine(model, TOKENIZER), requests, GREEDY)
    checked = 0
    for request, completion in zip(requests, completions, strict=True):
        ids = torch.tensor([request.prompt_ids + completion.token_ids])
        with torch.no_grad():
            best = model.eval()(ids).logits[0, len(request.prompt_ids) - 1 : -1].topk(2)
        clear = [*(best.values[:, 0] - best.values[:, 1] > FLOAT32_MARGIN).tolist(), False]
        certain = clear.index(False)  # after one unclear token anything may follow
        assert completion.token_ids[:certain] == tuple(best.indices[:certain, 0].tolist())
        checked += certain
    assert 2 * checked > sum(map(len, tokens_of(completions))), "most tokens of a model with preferences are clear"


@pytest.mark.parametrize("name", FAMILIES)
def test_what_all_prompts_begin_with_is_read_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "COMMON_FROM", 20)
    read = list[tuple[int, ...]]()
    through = native._hidden
    monkeypatch.setattr(native, "_hidden", lambda *a: read.append(tuple(a[2].shape)) or through(*a))
    model, shown = build(name), tuple(range(20, 40))
    requests = [replace(each, prompt_ids=(*shown, *each.prompt_ids)) for each in group_requests()]
    completions = sampled(NativeEngine(model, TOKENIZER), requests, SAMPLED)
    assert read[:2] == [(1, 20), (len(GROUPS), 17)]
    assert_trained(model, requests, completions, tolerance=1e-10)
    assert native.common_tokens([(1, 2), (1, 2, 3)]) == native.common_tokens([shown]) == 0


# --- tokens belong to the request, not to the batch


@pytest.mark.parametrize(("name", "sampling"), [
    *((name, SAMPLED) for name in ("llama", "gemma3", "gpt2", "adapter")),
    ("smollm2", Sampling(0.7, top_p=0.9, max_completion_length=40)),
    ("smollm2", GREEDY),
])  # fmt: skip
def test_tokens_do_not_depend_on_the_batch(name: str, sampling: Sampling, monkeypatch: pytest.MonkeyPatch) -> None:
    model, requests = build(name), group_requests()
    engine = NativeEngine(model, TOKENIZER)
    together = tokens_of(sampled(engine, requests, sampling))
    assert len(set(map(len, together))) > 2 or sampling is GREEDY, "rows of different length, so that some leave early"
    for index in (0, 1, 5, 7, 10):  # the first of each group
        assert tokens_of(sampled(engine, [requests[index]], sampling)) == [together[index]], "alone"

    order = random.Random(1).sample(range(len(requests)), len(requests))
    shuffled = tokens_of(sampled(engine, [requests[index] for index in order], sampling))
    assert shuffled == [together[index] for index in order]

    small = NativeEngine(model, TOKENIZER, max_batch_tokens=130)  # which splits a group
    assert tokens_of(sampled(small, requests, sampling)) == together
    monkeypatch.setattr(native, "PREFILL_TOKENS", 20)  # prompts read in several parts
    monkeypatch.setattr(decoding, "SAMPLE_ELEMENTS", 2 * VOCABULARY)  # logits made two rows at a time
    assert tokens_of(sampled(engine, requests, sampling)) == together


# --- ends


def test_eos_ends_a_completion_is_kept_and_trained_and_has_no_text(engine: NativeEngine) -> None:
    assert engine.eos_ids == set(ENDS)
    randomness = torch.get_rng_state()
    completions = sampled(engine, group_requests(), SAMPLED)
    assert torch.equal(torch.get_rng_state(), randomness)
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}
    for completion in completions:
        *before, last = completion.token_ids
        assert len(completion.logprobs) == len(completion.token_ids) <= 40
        assert not set(before) & set(ENDS)
        assert (last in ENDS) == (completion.finish_reason == "stop")
        spoken = before if last in ENDS else completion.token_ids
        assert completion.text == TOKENIZER.decode(spoken, skip_special_tokens=True)


def test_stop_strings_end_a_completion_and_its_text(engine: NativeEngine) -> None:
    stop = ("a", "e", "\n", "0", "1", "2", "é")
    engine.eos_ids = frozenset()
    free, stopped = (sampled(engine, group_requests(stop=each), SAMPLED) for each in ((), stop))
    assert {completion.finish_reason for completion in stopped} == {"stop", "length"}
    for without, completion in zip(free, stopped, strict=True):
        n = len(completion.token_ids)
        assert without.token_ids[:n] == completion.token_ids, "a stop string changes where, not what"
        assert without.logprobs[:n] == pytest.approx(completion.logprobs, abs=1e-10)
        before, text = (TOKENIZER.decode(completion.token_ids[:k], skip_special_tokens=True) for k in (n - 1, n))
        assert not any(each in before for each in stop), "not one token later than it had to"
        if completion.finish_reason == "stop":
            assert completion.text.endswith(stop) and text.startswith(completion.text)


def test_each_request_has_its_own_stop_strings_and_limit(engine: NativeEngine) -> None:
    own = ({}, {"max_completion_length": 2}, {"max_completion_length": 99}, {"stop": tuple(map(chr, range(33, 127)))})
    requests = [Request((1, 2, 3), SampleKey(0, 0, "row", 1), **each) for each in own]  # type: ignore[arg-type] # options
    free, short, capped, stopped = sampled(engine, requests, SAMPLED)
    assert short.token_ids == free.token_ids[:2] and short.finish_reason == "length"
    assert capped.token_ids == free.token_ids, "a request cannot ask for more than the sampling allows"
    assert stopped.finish_reason == "stop" and len(stopped.text) < len(free.text)


# --- work is not done twice


def test_a_prompt_is_read_once_and_finished_rows_leave() -> None:
    model = build()
    shapes: list[tuple[int, int]] = []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    engine = NativeEngine(model, TOKENIZER)
    prompts = [(1, 2, 3), (4, 5, 6)]
    made = [Request(prompts[n // 4], SampleKey(0, 0, "", n), max_completion_length=n + 1) for n in range(8)]
    engine.eos_ids = frozenset()
    shapes.clear()
    assert [index for index, _ in engine.generate(made, SAMPLED)] == list(range(8)), "as they finish"
    # Two prompts of 3 tokens; then row n takes part in n forwards: 7 rows in the first, 6 in the second, …
    assert shapes == [(2, 3), *[(rows, 1) for rows in range(7, 0, -1)]]


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
    for count, _ in enumerate(completions):
        assert state(model) == before
        again = model(ids).logits
        assert torch.equal(again, logits) and again.requires_grad
        if count == 5:
            break
    del completions
    assert state(model) == before, "also where nobody takes the rest"


@pytest.mark.parametrize("when", [1, 2, 5])
def test_an_interruption_leaves_nothing_behind_and_the_engine_works_on(when: int) -> None:
    model = build("llama")
    engine = NativeEngine(model, TOKENIZER)
    expected = tokens_of(sampled(engine, group_requests(), SAMPLED))
    before, calls = state(model), []

    def interrupt(*_: object) -> None:
        calls.append(1)
        if len(calls) == when:
            raise KeyboardInterrupt

    handle = model.model.layers[1].register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        sampled(engine, group_requests(), SAMPLED)
    handle.remove()
    assert state(model) == before
    assert tokens_of(sampled(engine, group_requests(), SAMPLED)) == expected


def test_two_runs_may_be_interleaved_and_one_of_nothing_has_nothing(engine: NativeEngine) -> None:
    expected = sampled(engine, group_requests(), SAMPLED)
    first, second = (engine.generate(group_requests(), SAMPLED) for _ in range(2))
    one, other = map(dict, zip(*zip(first, second, strict=True), strict=True))
    assert [one[index] for index in range(len(expected))] == expected
    assert one == other
    assert list(engine.generate([], SAMPLED)) == []


# --- versions, precisions, adapters


def test_completions_carry_the_version_of_the_weights_which_are_the_trainers_own() -> None:
    model = build()
    engine = NativeEngine(model, TOKENIZER, version=3)
    assert isinstance(engine, Engine)
    before = sampled(engine, group_requests(), GREEDY)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-1.1)
    engine.sync(4)
    after = sampled(engine, group_requests(), GREEDY)
    assert (before[0].policy_version, after[0].policy_version) == (3, 4)
    assert tokens_of(before) != tokens_of(after)
    completions = engine.generate(group_requests(), SAMPLED)
    next(completions)
    engine.sync(5)
    with pytest.raises(RuntimeError, match=r"sync\(5\) came while completions of version 4"):
        list(completions)


# --- refusals


def test_logits_that_are_no_numbers_are_an_error_and_never_tokens() -> None:
    model = build()
    engine = NativeEngine(model, TOKENIZER)
    with torch.no_grad():
        model.model.norm.weight[3] = math.nan
    before = state(model)
    with pytest.raises(NonFiniteError, match="NaN, infinite or all −inf in 11 of 11 rows"):
        sampled(engine, group_requests(), SAMPLED)
    assert state(model) == before


def test_what_exceeds_the_context_or_the_vocabulary_is_refused_at_the_call(engine: NativeEngine) -> None:
    made = [Request((1,), SampleKey(0, 0, "a", 0)), Request((1,) * 150, SampleKey(0, 0, "b", 0))]
    with pytest.raises(UserError, match=r"prompt 'b'.*150 \+ max_completion_length 40 = 190 tokens, 30 more than 160"):
        engine.generate(made, SAMPLED)
    assert len(sampled(engine, made, Sampling(max_completion_length=10))) == 2, "exactly the context fits"
    with pytest.raises(UserError, match="= 161 tokens, 1 more than 160, the model's context"):
        engine.generate(made, Sampling(max_completion_length=11))
    with pytest.raises(UserError, match=r"token ids from 1 to 258, but the model's are 0 to 257"):
        engine.generate([Request((1, 258), SampleKey(0, 0, "", 0))], SAMPLED)


@pytest.mark.parametrize(("options", "said"), [({"dtype": "bfloat16"}, "AMX"), ({"max_batch_tokens": 0}, "tokens=0")])
def test_a_cpu_without_bfloat16_and_no_budget_are_refused(monkeypatch: Any, options: Any, said: str) -> None:
    monkeypatch.setattr(native, "multiplies_bfloat16", lambda: False)
    with pytest.raises(UserError, match=said):
        NativeEngine(build(), TOKENIZER, **options)


SOME_LAYERS = {"use_sliding_window": True, "max_window_layers": 1}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 2, "long_factor": [2.0] * 2,
    "original_max_position_embeddings": 40,
}  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "message"), [
    ("mistral", {"sliding_window": 30}, "13 more than 30, the model's sliding window"),
    ("qwen2", {"sliding_window": 50, **SOME_LAYERS}, "7 more than 50, the model's sliding window"),
    ("phi3", {"original_max_position_embeddings": 40, "rope_parameters": LONGROPE}, "3 more than 40.*longrope"),
    ("bloom", {}, "BloomForCausalLM: its.*Choose another model"),
    ("lfm2", {"layer_types": ["conv", "full_attention"]}, "layers of type conv, and only.*Choose another model"),
    ("gemma2", {"head_dim": 8, "sliding_window": 160}, "its attention uses 'softcap'.*Choose another model"),
])  # fmt: skip
def test_what_attention_cannot_share_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        sampled(NativeEngine(small_model(name, **changes), TOKENIZER), group_requests(), SAMPLED)


def test_a_layer_with_an_attention_of_its_own_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build()

    def keeps_keys_but_attends_by_itself(hidden_states: Tensor, **options: Any) -> tuple[Tensor, None]:
        cache: Cache | None = options.get("cache", options.get("past_key_values"))  # named by transformers' version
        if cache is not None:
            rows, length, _ = hidden_states.shape
            keys = hidden_states.new_zeros(rows, 2, length, 4)
            cache.update(keys, keys, 1)
        return hidden_states, None

    monkeypatch.setattr(model.model.layers[1].self_attn, "forward", keeps_keys_but_attends_by_itself)
    with pytest.raises(UserError, match="2 stored keys and 1 used the shared-prompt attention"):
        sampled(NativeEngine(model, TOKENIZER), group_requests(), SAMPLED)
