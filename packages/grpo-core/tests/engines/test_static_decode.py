"""Static decoding samples what decoding with growing keys and values samples; on a CPU, without capture."""

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from small_models import FAMILIES, TOKENIZER, VOCABULARY, sampled, small_model
from torch import Tensor

from grpo_core.engines import native, static_decode
from grpo_core.engines.cuda_graphs import Graphs
from grpo_core.engines.native import NativeEngine
from grpo_core.engines.static_cache import Shape
from grpo_core.engines.static_decode import StaticDecoder, unsupported
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling, free_memory
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.errors import NonFiniteError

SAMPLINGS = {
    "plain": Sampling(max_completion_length=70, certainty=True),
    "greedy": Sampling(temperature=0, max_completion_length=40),
    "cold": Sampling(temperature=0.6, max_completion_length=40),
    "top-k": Sampling(top_k=7, temperature=0.9, max_completion_length=40, certainty=True),
    "top-p": Sampling(top_p=0.8, max_completion_length=40),
    "min-p": Sampling(min_p=0.02, temperature=1.3, max_completion_length=40),
}


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
    engine = NativeEngine(model, TOKENIZER, **options)
    if static:
        engine._static = StaticDecoder(engine._parts, None)
        engine._copies_of_weights = lambda *_: native._Copies()  # type: ignore[method-assign] # as on CUDA
    return engine


def assert_same(found: Sequence[Completion], expected: Sequence[Completion]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.token_ids, one.text, one.finish_reason) == (other.token_ids, other.text, other.finish_reason)
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-9)
        assert len(one.certainties) == len(other.certainties)
        for measured, others in zip(one.certainties, other.certainties, strict=True):
            assert measured == pytest.approx(others, abs=1e-9)


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


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_decodes_the_same(name: str, steps: list[Shape]) -> None:
    model, requests = small_model(name), requests_of(1)
    expected = sampled(engine_of(model, static=False), requests, SAMPLINGS["plain"])
    assert not steps
    assert_same(sampled(engine_of(model, static=True), requests, SAMPLINGS["plain"]), expected)
    assert steps


@pytest.mark.parametrize("name", SAMPLINGS)
def test_ragged_requests_are_sampled_the_same_by_one_engine(name: str, steps: list[Shape]) -> None:
    model = small_model()
    engine = engine_of(model, static=True)  # whose memory stays between batches, and grows
    for seed in range(4):
        requests = requests_of(seed)
        expected = sampled(engine_of(model, static=False), requests, SAMPLINGS[name])
        assert_same(sampled(engine, requests, SAMPLINGS[name]), expected)
    assert len({(shape.prompts, shape.group) for shape in steps}) > 3


def test_several_batches_and_chunks_of_rows(monkeypatch: pytest.MonkeyPatch, steps: list[Shape]) -> None:
    model, requests = small_model(), requests_of(3)
    expected = sampled(engine_of(model, static=False), requests, SAMPLINGS["plain"])
    monkeypatch.setattr(static_decode, "SAMPLE_ELEMENTS", 3 * VOCABULARY)
    engine = engine_of(model, static=True, max_batch_tokens=700)
    assert_same(sampled(engine, requests, SAMPLINGS["plain"]), expected)


def test_changed_weights_are_seen_under_autocast_too() -> None:
    model, requests = small_model(dtype=torch.float32), requests_of(2)
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


def test_a_generate_within_another_leaves_it_alone() -> None:
    model, requests = small_model(), requests_of(4)
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
    model, requests, sampling = small_model(), requests_of(3), SAMPLINGS["plain"]
    engine = engine_of(model, static=True)
    assert not free_memory(engine)
    static = engine._static
    assert static is not None
    assert any(static.busy and not free_memory(engine) for _ in engine.generate(requests, sampling))
    assert free_memory(engine) and not free_memory(engine)
    assert_same(sampled(engine, requests, sampling), sampled(engine_of(model, static=False), requests, sampling))


def test_weights_that_diverge_are_reported_and_do_not_outlive_the_batch() -> None:
    model, requests = small_model(), requests_of(2)
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
    model = small_model()
    engine = engine_of(model, static=False)
    assert unsupported(engine._parts) is None
    model.model.layers[0].register_forward_hook(lambda module, arguments, output: None)
    assert "has hooks" in str(unsupported(engine._parts))
    assert engine.choices == (), "a CPU has no graphs, and nothing is said"


# --- captured, on a CUDA device; by hand: pytest -m gpu


@pytest.fixture
def on_gpu() -> Iterator[Any]:
    torch.cuda.synchronize()
    yield small_model("llama", hidden_size=64, std=0.2).cuda()
    torch.cuda.synchronize()  # an error of a replay comes up in its own test


def captured(model: Any, **options: Any) -> tuple[NativeEngine, Graphs]:
    engine = NativeEngine(model, TOKENIZER, **options)
    assert engine._static is not None and engine._static.graphs is not None
    return engine, engine._static.graphs


def eager(model: Any, requests: list[Request], sampling: Sampling) -> list[Completion]:
    return sampled(NativeEngine(model, TOKENIZER, cuda_graphs="off"), requests, sampling)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SAMPLINGS)
def test_graphs_decode_what_is_decoded_without(on_gpu: Any, name: str) -> None:
    requests, sampling = requests_of(1), SAMPLINGS[name]
    engine, graphs = captured(on_gpu)
    assert engine.choices[0][:2] == ("engine.args.cuda_graphs", "on")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (sampled(engine, requests, sampling) for _ in range(2))
    assert_same(first, eager(on_gpu, requests, sampling))
    assert_same(second, first)
    captures = graphs.captures
    assert captures == len(graphs) > 1
    sampled(engine, requests, sampling)
    assert graphs.captures == captures, "the graphs of earlier calls are used again"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_changed_and_moved_weights_are_seen_by_graphs_of_which_few_are_kept(on_gpu: Any, dtype: Any) -> None:
    model, requests, sampling = on_gpu if dtype == "auto" else on_gpu.float(), requests_of(1), SAMPLINGS["plain"]
    engine, graphs = captured(model, dtype=dtype)
    graphs._most = 1
    found = [sampled(engine, requests, sampling)]
    for place in ("the same", "another"):
        for weight in model.parameters():
            changed = weight.data * -0.8
            weight.data = changed if place == "another" else weight.data.copy_(changed)
        found.append(sampled(engine, requests, sampling))
        assert_same(found[-1], sampled(captured(model, dtype=dtype)[0], requests, sampling))
    assert found[0] != found[1] != found[2]
    assert len(graphs) == 1 < graphs.captures


@pytest.mark.gpu
@pytest.mark.parametrize("error", [RuntimeError("operation not permitted"), torch.OutOfMemoryError("no memory")])
def test_a_failed_capture_goes_on_without(on_gpu: Any, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Graphs, step: Callable[[], Tensor]) -> Any:
        raise error

    monkeypatch.setattr(Graphs, "_captured", fails)
    requests, sampling = requests_of(1), SAMPLINGS["plain"]
    with pytest.warns(UserWarning, match=r"without CUDA graphs.*capture failed") as caught:
        found = sampled(NativeEngine(on_gpu, TOKENIZER), requests, sampling)
    assert len([each for each in caught if "CUDA graphs" in str(each.message)]) == 1
    assert_same(found, eager(on_gpu, requests, sampling))
