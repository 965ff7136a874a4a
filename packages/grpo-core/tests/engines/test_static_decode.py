"""Static decoding samples what decoding with growing keys and values samples; on a CPU, without capture."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from grpo_core.engines import native, static_decode
from grpo_core.engines.base import Request, SampleKey, Sampling, free_memory
from grpo_core.engines.completion import Completion
from grpo_core.engines.native import NativeEngine
from grpo_core.engines.static_cache import Shape, bucket
from grpo_core.engines.static_decode import StaticDecoder, unsupported
from grpo_core.errors import NonFiniteError
from grpo_core.policy.fresh import byte_tokenizer

SIZES = {
    "vocab_size": 258,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 160,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
MODELS: dict[str, Any] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8)),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**SIZES)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, head_dim=8, sliding_window=160)),
    "granite": lambda: GraniteForCausalLM(GraniteConfig(**SIZES, logits_scaling=0.5)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=258, n_embd=16, n_layer=2, n_head=2, n_positions=160, bos_token_id=0, eos_token_id=256)
    ),
    "adapter": lambda: get_peft_model(
        LlamaForCausalLM(LlamaConfig(**SIZES)), LoraConfig(r=2, target_modules=["q_proj", "down_proj"])
    ),
}
SAMPLINGS = {
    "plain": Sampling(max_completion_length=70),
    "greedy": Sampling(temperature=0, max_completion_length=70),
    "cold": Sampling(temperature=0.6, max_completion_length=40),
    "top-k": Sampling(top_k=7, max_completion_length=40),
    "top-p": Sampling(top_p=0.8, max_completion_length=40),
    "min-p": Sampling(min_p=0.02, temperature=1.3, max_completion_length=40),
}


def build(name: str = "llama", dtype: torch.dtype = torch.float64) -> Any:
    """A model whose logits are far from uniform, and of whose tokens one in 40 ends a completion."""
    torch.manual_seed(0)
    model = MODELS[name]()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    model.generation_config.eos_token_id = [256, *range(6)]
    return model.to(dtype).eval()


def requests_of(seed: int) -> list[Request]:
    """Ragged prompts in groups of several sizes, with stop strings and limits."""
    generator = random.Random(seed)
    made = []
    for group in range(generator.randint(1, 7)):
        prompt = tuple(generator.randrange(10, 255) for _ in range(generator.choice((1, 5, 17, 40, 60))))
        stop = generator.choice(((), (), ("a", "zz")))
        for sample in range(generator.choice((1, 2, 5, 8))):
            limit = generator.choice((None, None, 1, 2, 33, 65))
            made.append(Request(prompt, SampleKey(seed, 0, str(group), sample), stop=stop, max_completion_length=limit))
    return made


def engine_of(model: Any, *, static: bool, **options: Any) -> NativeEngine:
    engine = NativeEngine(model, byte_tokenizer(), **options)
    if static:
        engine._static = StaticDecoder(engine._parts, None)
        engine._copies_of_weights = lambda *_: native._Copies()  # type: ignore[method-assign] # as on CUDA
    return engine


def sampled(engine: NativeEngine, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
    found = dict(engine.generate(requests, sampling))
    return [found[index] for index in range(len(requests))]


def assert_same(found: Sequence[Completion], expected: Sequence[Completion], tolerance: float = 1e-9) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.token_ids, one.text, one.finish_reason) == (other.token_ids, other.text, other.finish_reason)
        assert one.logprobs == pytest.approx(other.logprobs, abs=tolerance)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Shape]:
    """Shapes of the steps that were decoded statically."""
    seen: list[Shape] = []
    own = StaticDecoder.step

    def step(self: StaticDecoder, blocks: Any) -> Any:
        seen.append(self._cache.shape)
        return own(self, blocks)

    monkeypatch.setattr(StaticDecoder, "step", step)
    return seen


@pytest.mark.parametrize("name", MODELS)
def test_every_family_decodes_the_same(name: str, steps: list[Shape]) -> None:
    model, requests = build(name), requests_of(1)
    expected = sampled(engine_of(model, static=False), requests, SAMPLINGS["plain"])
    assert not steps
    assert_same(sampled(engine_of(model, static=True), requests, SAMPLINGS["plain"]), expected)
    assert steps


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_ragged_requests_are_sampled_the_same_by_one_engine(name: str, compact: bool, steps: list[Shape]) -> None:
    model = build()
    engine = engine_of(model, static=True, compact=compact)  # whose memory stays between batches, and grows
    for seed in range(8):
        requests = requests_of(seed)
        expected = sampled(engine_of(model, static=False), requests, SAMPLINGS[name])
        assert_same(sampled(engine, requests, SAMPLINGS[name]), expected)
    shapes = len({(shape.prompts, shape.group) for shape in steps})
    assert shapes > 8 or not compact


def test_several_batches_and_chunks_of_rows(monkeypatch: pytest.MonkeyPatch, steps: list[Shape]) -> None:
    model, requests = build(), requests_of(3)
    expected = sampled(engine_of(model, static=False), requests, SAMPLINGS["plain"])
    monkeypatch.setattr(static_decode, "SAMPLE_ELEMENTS", 3 * 258)
    engine = engine_of(model, static=True, max_batch_tokens=700)
    assert_same(sampled(engine, requests, SAMPLINGS["plain"]), expected)


def test_greedy_in_float32_is_the_same(steps: list[Shape]) -> None:
    model, requests = build(dtype=torch.float32), requests_of(2)
    expected = sampled(engine_of(model, static=False), requests, SAMPLINGS["greedy"])
    assert_same(sampled(engine_of(model, static=True), requests, SAMPLINGS["greedy"]), expected, 1e-4)
    assert steps


def test_changed_weights_are_seen_under_autocast_too() -> None:
    model, requests = build(dtype=torch.float32), requests_of(2)
    engine = engine_of(model, static=True)
    sampling = Sampling(temperature=0, max_completion_length=20)

    def run(of: NativeEngine) -> list[Completion]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return sampled(of, requests, sampling)

    before = run(engine)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(-0.7)
    after = run(engine)
    assert after == run(engine_of(model, static=True)) != before


def test_the_whole_step_is_without_the_casts_that_autocast_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    model, requests = build(dtype=torch.float32), requests_of(2)
    engine = engine_of(model, static=True)
    kept: list[bool] = []
    own = StaticDecoder._choose

    def choose(self: StaticDecoder, hidden: torch.Tensor) -> None:
        kept.append(torch.is_autocast_cache_enabled())
        own(self, hidden)

    monkeypatch.setattr(StaticDecoder, "_choose", choose)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sampled(engine, requests, SAMPLINGS["plain"])
    assert kept and not any(kept)


def test_the_next_log_probs_in_bfloat16_are_those_of_today() -> None:
    model = build(dtype=torch.float32)
    requests = [Request(tuple(range(20, 50)), SampleKey(0, 0, "a", index)) for index in range(40)]
    sampling = Sampling(max_completion_length=16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = sampled(engine_of(model, static=True), requests, sampling)
        expected = sampled(engine_of(model, static=False), requests, sampling)
    pairs = [
        (one.logprobs[1], other.logprobs[1])
        for one, other in zip(found, expected, strict=True)
        if one.token_ids[:2] == other.token_ids[:2] and len(one.token_ids) > 1
    ]
    assert len(pairs) > 20
    assert all(one == pytest.approx(other, abs=0.3) for one, other in pairs)


def test_a_generate_within_another_leaves_it_alone() -> None:
    model, requests = build(), requests_of(4)
    engine = engine_of(model, static=True)
    expected = sampled(engine, requests, SAMPLINGS["plain"])
    found: dict[int, Completion] = {}
    for index, completion in engine.generate(requests, SAMPLINGS["plain"]):
        found[index] = completion
        if len(found) < 4:
            assert_same(sampled(engine, requests, SAMPLINGS["plain"]), expected)
    assert_same([found[index] for index in range(len(requests))], expected)
    assert engine._static is not None and not engine._static.busy


def test_memory_is_given_back_between_batches_alone() -> None:
    model, requests, sampling = build(), requests_of(3), SAMPLINGS["plain"]
    engine = engine_of(model, static=True)
    assert not free_memory(engine)
    static = engine._static
    assert static is not None
    assert any(static.busy and not free_memory(engine) for _ in engine.generate(requests, sampling))
    assert free_memory(engine) and not free_memory(engine)
    assert_same(sampled(engine, requests, sampling), sampled(engine_of(model, static=False), requests, sampling))


def test_weights_that_diverge_are_reported_and_do_not_outlive_the_batch() -> None:
    model, requests = build(), requests_of(2)
    engine = engine_of(model, static=True)
    expected = sampled(engine, requests, SAMPLINGS["plain"])
    generating = engine.generate(requests, SAMPLINGS["plain"])
    next(generating)
    weight = model.get_input_embeddings().weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(torch.nan)
    with pytest.raises(NonFiniteError, match="NaN"):
        list(generating)
    with torch.no_grad():
        weight.copy_(kept)
    assert_same(sampled(engine, requests, SAMPLINGS["plain"]), expected)


def test_what_cannot_be_captured_says_why() -> None:
    model = build()
    engine = engine_of(model, static=False)
    assert unsupported(engine._parts) is None
    model.model.layers[0].register_forward_hook(lambda module, arguments, output: None)
    assert "has hooks" in str(unsupported(engine._parts))
    assert engine.choices == (), "a CPU has no graphs, and nothing is said"


@pytest.mark.parametrize(("n", "expected"), [(1, 1), (3, 3), (5, 6), (7, 8), (9, 12), (13, 16), (33, 48), (49, 64)])
def test_buckets(n: int, expected: int) -> None:
    assert bucket(n) == expected
