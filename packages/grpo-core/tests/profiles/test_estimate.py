"""The estimated memory: its parts by arithmetic, the whole against a run's peak."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_core.algorithms import logprobs
from grpo_core.config import RunConfig, TrainerConfig
from grpo_core.config.hardware import memory_plan, needs
from grpo_core.engines import sampling
from grpo_core.profiles import estimate as estimates
from grpo_core.profiles.accelerator import GIB, Accelerator, Backend
from grpo_core.profiles.estimate import MemoryPlan, estimate, largest_pass, tokens_in_pass
from grpo_core.profiles.model_shape import KNOWN, ModelShape, shape_of

PROGRAMS = Path(__file__).parent / "programs"


def known(name: str) -> ModelShape:
    shape = shape_of(KNOWN[name], "")
    assert shape is not None
    return shape


QWEN = known("Qwen/Qwen2.5-0.5B-Instruct")


def plan(**given: object) -> MemoryPlan:
    values = {
        "shape": QWEN, "weight_bytes": 4, "compute_bytes": 4, "trained": QWEN.parameters, "has_reference": False,
        "prompt_tokens": 100, "completion_tokens": 200, "generations": 8, "prompts": 8, "pass_tokens": 8192,
        "checkpointing": False, "cached_tokens": 65536, "on_accelerator": True, **given,
    }  # fmt: skip
    return MemoryPlan(**values)  # type: ignore[arg-type] # each test gives what it is about


def test_the_constants_are_those_of_the_code_that_allocates() -> None:
    constants = (estimates.CHUNK_ELEMENTS, estimates.CHUNK_ELEMENTS_GPU, estimates.SAMPLED_ELEMENTS)
    assert constants == (logprobs.CHUNK_ELEMENTS, logprobs.CHUNK_ELEMENTS_GPU, sampling.SAMPLE_ELEMENTS)


def test_weights_gradients_and_moments_are_exact_and_shards_share_them() -> None:
    need = estimate(plan(has_reference=True))
    parts = (need.weights, need.gradients, need.optimizer, need.reference)
    assert parts == tuple(times * QWEN.parameters for times in (4, 4, 8, 4))
    assert need.total == pytest.approx(sum(need.parts.values()))
    whole, shard = estimate(plan()), estimate(plan(shards=4))
    assert (shard.fixed, shard.activations) == (whole.fixed / 4, whole.activations)


def test_a_server_of_the_runs_own_holds_the_model_again() -> None:
    cached = 65536 * QWEN.kv_values_per_token * 4
    alone = estimate(plan(server_share=1.0))
    assert alone.sampling == 4 * QWEN.parameters + cached and not alone.overlaps
    half = estimate(plan(server_share=0.5, overlaps=True))
    assert half.sampling == alone.sampling / 2 and half.weights == alone.weights
    assert half.total == pytest.approx(half.fixed + half.gradients + half.activations + half.sampling)
    assert estimate(plan(server_share=0.0)).sampling == 0


@pytest.mark.parametrize(("engine", "backend", "share", "stays"), [
    ({"name": "native"}, "cuda", None, False),
    ({"name": "vllm"}, "cuda", 1.0, False),
    ({"name": "vllm", "args": {"tensor_parallel_size": 2}}, "cuda", 0.5, False),
    ({"name": "vllm", "args": {"sleep": False}}, "cuda", 1.0, True),
    ({"name": "vllm"}, "cpu", 1.0, True),
    ({"name": "vllm", "url": "http://localhost:8000"}, "cuda", 0.0, False),
])  # fmt: skip
def test_the_engine_says_where_samples_are_drawn(
    engine: Any, backend: Backend, share: float | None, *, stays: bool
) -> None:
    config = RunConfig.model_validate({"engine": engine})
    made = memory_plan(config, QWEN, Accelerator(backend, "a card", 80 * GIB), 100)
    assert (made.server_share, made.overlaps) == (share, stays)


def test_overlap_needs_a_copy_of_what_is_trained_and_both_phases_at_once() -> None:
    in_turn, ahead = estimate(plan()), estimate(plan(overlaps=True))
    assert ahead.weights == in_turn.weights + 4 * QWEN.parameters
    assert ahead.total == pytest.approx(ahead.fixed + ahead.gradients + ahead.activations + ahead.sampling)
    assert ahead.total == pytest.approx(sum(ahead.parts.values()))


def test_an_adapter_leaves_gradients_and_moments_of_its_own_and_autocast_holds_a_copy() -> None:
    trained = QWEN.lora_parameters(16)
    need, mixed = estimate(plan(trained=trained)), estimate(plan(compute_bytes=2))
    assert (need.gradients, need.optimizer) == (4 * trained, 8 * trained)
    assert mixed.weights == need.weights * 1.5 and mixed.activations < 0.75 * estimate(plan()).activations
    four_bits = estimate(plan(weight_bytes=estimates.NF4_BYTES, compute_bytes=2, trained=1))
    embeddings = QWEN.parameters - QWEN.linear_parameters  # which stay as they are
    assert four_bits.weights == pytest.approx(4 * embeddings + QWEN.linear_parameters * estimates.NF4_BYTES)


def test_a_pass_has_no_more_tokens_than_its_step_and_no_fewer_than_one_row() -> None:
    assert tokens_in_pass(plan()) == 8192
    assert tokens_in_pass(plan(prompts=1)) == 100 + 8 * 199
    assert tokens_in_pass(plan(pass_tokens=16)) == 300


def test_what_is_chosen_fits_and_more_memory_never_gives_a_smaller_pass() -> None:
    sizes = []
    for memory in range(8, 81, 4):
        if fitting := largest_pass(plan(), memory * GIB, 65536):
            tokens, checkpointing = fitting
            assert estimate(plan(pass_tokens=tokens, checkpointing=checkpointing)).total <= memory * GIB
            sizes.append((not checkpointing, tokens))
    assert sizes == sorted(sizes) and len(sizes) > 10
    assert largest_pass(plan(), GIB, 65536) is None


def test_an_estimate_in_words_adds_up_and_says_where_it_is_too_much() -> None:
    config = RunConfig(trainer=TrainerConfig(micro_batch_tokens=2048))
    small, large = Accelerator("cpu", "CPU", 4 * GIB), Accelerator("cpu", "CPU", 64 * GIB)
    need = estimate(memory_plan(config, QWEN, large, 50))
    assert needs(need, large).startswith(
        f"needs about {need.total / GIB:.1f} GiB of 64.0: weights 1.8, optimizer 3.7, "
    )
    assert needs(need, small).endswith("; that is more than there is")


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes",
    [(768, 12, 12, 4, 2048, 4096), (512, 8, 8, 8, 1408, 49152), (576, 30, 9, 3, 1536, 49152)],
    ids=["79M", "51M with a large vocabulary", "135M, SmolLM2's shape"],
)
def test_the_estimate_is_within_a_fifth_of_a_run_s_peak(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    shape = json.dumps(dict(zip((*names, "vocab_size"), sizes, strict=True)))
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "peak_memory.py"), str(tmp_path), shape],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    measured = json.loads(done.stdout.splitlines()[-1])
    assert measured["estimate"] / measured["peak"] == pytest.approx(1, abs=0.2), measured
