"""Captured decoding steps on a CUDA device; by hand: pytest -m gpu."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_core.engines.base import Request, SampleKey, Sampling
from grpo_core.engines.completion import Completion
from grpo_core.engines.cuda_graphs import Graphs
from grpo_core.engines.native import NativeEngine
from grpo_core.policy.fresh import byte_tokenizer

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

SIZES = {
    "vocab_size": 258,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
REQUESTS = [
    Request(tuple(range(20, 23 + 9 * prompt)), SampleKey(0, 1, str(prompt), sample), max_completion_length=limit)
    for prompt in range(5)
    for sample, limit in enumerate((100, 100, 60, 17, 3))
]
SAMPLED = Sampling(max_completion_length=100)


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    made = LlamaForCausalLM(LlamaConfig(**SIZES))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return made.double().cuda().eval()


@pytest.fixture(autouse=True)
def finished_kernels() -> Iterator[None]:
    torch.cuda.synchronize()
    yield
    torch.cuda.synchronize()  # an error of a replay comes up in its own test


def run(engine: NativeEngine, sampling: Sampling = SAMPLED) -> list[Completion]:
    found = dict(engine.generate(REQUESTS, sampling))
    return [found[index] for index in range(len(REQUESTS))]


def eager(model: Any, sampling: Sampling = SAMPLED) -> list[Completion]:
    return run(NativeEngine(model, byte_tokenizer(), cuda_graphs="off"), sampling)


def assert_same(found: list[Completion], expected: list[Completion], tolerance: float = 1e-9) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=tolerance)


def graphs_of(engine: NativeEngine) -> Graphs:
    assert engine._static is not None and engine._static.graphs is not None
    return engine._static.graphs


@pytest.mark.parametrize(
    "sampling",
    [
        SAMPLED,
        Sampling(temperature=0, max_completion_length=100),
        Sampling(temperature=0.7, top_k=9, top_p=0.9, max_completion_length=100),
    ],
    ids=["sampled", "greedy", "filtered"],
)
def test_graphs_decode_what_is_decoded_without(model: Any, sampling: Sampling) -> None:
    engine = NativeEngine(model, byte_tokenizer())
    assert engine.choices[0][:2] == ("engine.args.cuda_graphs", "on")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = run(engine, sampling), run(engine, sampling)
    assert_same(first, eager(model, sampling))
    assert_same(second, first)
    captures = graphs_of(engine).captures
    assert captures == len(graphs_of(engine)) > 1
    run(engine, sampling)
    assert graphs_of(engine).captures == captures, "the graphs of earlier calls are used again"


@pytest.mark.parametrize("autocast", [False, True])
def test_weights_changed_in_place_are_seen(model: Any, autocast: bool) -> None:
    model = model.float() if autocast else model
    engine = NativeEngine(model, byte_tokenizer(), dtype="bfloat16" if autocast else "auto")
    before = run(engine)
    captures = graphs_of(engine).captures
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(-0.8)
    after = run(engine)
    fresh = NativeEngine(model, byte_tokenizer(), dtype="bfloat16" if autocast else "auto")
    assert after != before
    assert_same(after, run(fresh))
    assert captures > 0


def test_moved_weights_are_captured_again(model: Any) -> None:
    engine = NativeEngine(model, byte_tokenizer())
    run(engine)
    for weight in model.parameters():
        weight.data = weight.data * 0.9
    assert_same(run(engine), eager(model))


@pytest.mark.parametrize("error", [RuntimeError("operation not permitted"), torch.OutOfMemoryError("no memory")])
def test_a_failed_capture_goes_on_without(model: Any, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Graphs, step: Callable[[], Tensor]) -> Any:
        raise error

    monkeypatch.setattr(Graphs, "_captured", fails)
    engine = NativeEngine(model, byte_tokenizer())
    with pytest.warns(UserWarning, match=r"without CUDA graphs.*capture failed") as caught:
        found = run(engine)
    assert len([each for each in caught if "CUDA graphs" in str(each.message)]) == 1
    assert_same(found, eager(model))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(run(engine), found)


def test_a_step_that_waits_for_the_device_cannot_be_captured(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is usable after a capture that CUDA itself has ended."""
    expected = eager(model)
    own = type(model.model.norm).forward
    monkeypatch.setattr(type(model.model.norm), "forward", lambda self, x: own(self, x) * bool(x.isfinite().all()))
    engine = NativeEngine(model, byte_tokenizer())
    with pytest.warns(UserWarning, match="capture failed"):
        found = run(engine)
    assert_same(found, expected)


def test_few_graphs_are_kept(model: Any) -> None:
    engine = NativeEngine(model, byte_tokenizer())
    graphs_of(engine)._most = 1
    assert_same(run(engine), eager(model))
    assert len(graphs_of(engine)) == 1 < graphs_of(engine).captures
