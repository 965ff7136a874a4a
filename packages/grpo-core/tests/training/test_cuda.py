"""What a run does on a CUDA device; by hand: pytest -m gpu."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import resumed_runs
import torch
from heard import Heard
from safetensors.torch import load_file
from small_policies import frozen, settings

from grpo_core import resume, train
from grpo_core.config import RunConfig
from grpo_core.engines.native import NativeEngine
from grpo_core.policy.load import load_policy
from grpo_core.policy.memory import release
from grpo_core.policy.policy import Policy
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import TokenBatch, collate
from grpo_core.training.optimizer import PolicyOptimizer
from grpo_core.training.update import Updater
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

DEVICE = "cuda"

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # libraries warn there of what they do not here


def config(folder: Path, out: Path, variant: str = "plain", **trainer: Any) -> RunConfig:
    made: RunConfig = resumed_runs.config(folder, out, variant, **trainer)
    return made.model_copy(update={"device": DEVICE})


# --- Whole runs


def test_a_run_learns_in_mixed_precision(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fused: set[Any] = set()
    step = PolicyOptimizer.step

    def watched(optimizer: PolicyOptimizer, **options: Any) -> tuple[float, bool]:
        fused.update(group["fused"] for group in optimizer.adam.param_groups)
        return step(optimizer, **options)

    monkeypatch.setattr(PolicyOptimizer, "step", watched)
    sizes: dict[str, Any] = {"max_steps": 24, "prompts_per_step": 4, "num_generations": 8, "learning_rate": 3e-3}
    run = train(
        f"{folder / 'tasks.py'}:letters", model=str(folder / "model"), output_dir=str(tmp_path), progress=False,
        lr_scheduler_type="constant", micro_batch_size="auto", callbacks=[heard := Heard()], **sizes,
    )  # fmt: skip
    chosen = {name: heard.choices[name].value for name in ("device", "precision", "trainer.micro_batch_size")}
    name = torch.cuda.get_device_name()
    assert chosen == {"device": f"cuda ({name})", "precision": "bfloat16", "trainer.micro_batch_size": "32"}
    assert heard.choices["precision"].why.endswith("mixed precision, weights in float32")
    assert not heard.choices["platform"].value.endswith("cpu"), "a profile of a GPU"
    assert fused == {True}
    steps = run.metrics
    rewards = [sum(each["reward"] for each in part) / 5 for part in (steps[:5], steps[-5:])]
    assert rewards[1] > rewards[0] + 0.1
    assert all(each["sampler_mismatch"] < 0.05 and each["memory/update_mib"] > 0 for each in steps)
    weights = load_file(run.run_dir / "training_state" / "step_final" / "model" / "model.safetensors")
    assert all(tensor.dtype == torch.float32 and tensor.isfinite().all() for tensor in weights.values())


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch's sums come in the same order each time."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("variant", ["plain", "LoRA with dropout", "float16", "sampled ahead"])
def test_a_stopped_run_ends_as_it_would_have(folder: Path, tmp_path: Path, variant: str) -> None:
    straight = train(config(folder, tmp_path / "straight", variant))
    stopped = train(config(folder, tmp_path / "stopped", variant, stop_after=2))
    assert stopped.interrupted and not resume(stopped.run_dir).interrupted
    resumed_runs.assert_same(straight.run_dir, stopped.run_dir)


# --- The sampler and the passes of an update

PROMPTS = ("the quick brown fox", "jumps")


def sampled(policy: Policy) -> list[Completion]:
    """Eight completions of each prompt, of 1 to 24 tokens."""
    requests = [
        Request(tuple(policy.tokenizer(prompt).input_ids), SampleKey(0, 0, prompt, index), max_completion_length=limit)
        for prompt in PROMPTS
        for index, limit in enumerate((1, 24, 7, 16, 24, 3, 12, 20))
    ]
    with policy.precision():
        done = dict(NativeEngine(policy.model, policy.tokenizer).generate(requests, Sampling(max_completion_length=24)))
    return [done[index] for index in range(len(requests))]


def rows_of(policy: Policy, completions: list[Completion]) -> TokenBatch:
    rollouts = []
    for index, completion in enumerate(completions):
        group = index * len(PROMPTS) // len(completions)
        turn = Turn(tuple(policy.tokenizer(PROMPTS[group]).input_ids), completion)
        rollouts.append(Rollout("t.t", Row(id=str(group)), group, "", (turn,), Score(0.0)))
    return collate(rollouts, pad_id=policy.tokenizer.pad_token_id, mask_truncated=False)


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-9), ("float32", 1e-4), ("bfloat16", 0.1)])
def test_the_sampler_and_packed_and_padded_passes_agree(folder: Path, precision: str, tolerance: float) -> None:
    policy = load_policy(str(folder / "model"), device=DEVICE, precision=precision)
    batch = rows_of(policy, sampled(policy)).to(policy.device)
    packs = [tuple(range(8)), tuple(range(8, 16))]
    results = []
    for each in ([(row,) for row in range(16)], packs):
        with policy.precision():
            states = policy.states(batch.input_ids, batch.prompt_lens, batch.completion_lens, each)
            logp, entropy = states.logprobs(with_entropy=True)
        assert entropy is not None
        policy.model.zero_grad()
        (logp.sum() + entropy.sum()).backward()
        gradients = [parameter.grad for parameter in policy.parameters() if parameter.grad is not None]
        results.append((logp.detach().double(), float(torch.nn.utils.get_total_norm(gradients))))
    (padded, norm), (packed, packed_norm) = results
    assert torch.allclose(packed, padded, atol=tolerance, rtol=0)
    assert torch.allclose(batch.sampler_logprobs.double(), padded, atol=max(tolerance, 1e-6), rtol=0)  # kept in float32
    assert packed_norm == pytest.approx(norm, rel=max(tolerance, 1e-5))


# --- Memory


def long_rows(policy: Policy) -> TokenBatch:
    """256 completions of 400 tokens: about a gigabyte of activations."""
    ids = torch.randint(0, 256, (256, 400), generator=torch.Generator().manual_seed(0)).tolist()
    return rows_of(policy, [Completion(tuple(each), (-5.5,) * 400, "", "length", 0) for each in ids])


def test_a_step_that_runs_out_of_memory_is_taken_in_halves(folder: Path) -> None:
    found = []
    warnings: list[str] = []
    limit = 1.0
    try:
        for _ in range(2):
            policy = load_policy(str(folder / "model"), device=DEVICE, precision="float32")
            sizes = settings(prompts_per_step=2, num_generations=128, max_completion_length=400, micro_batch_size=256)
            updater = Updater(policy, Algorithm.of(sizes), 4, warn=warnings.append)
            rows = long_rows(policy)
            release()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            torch.cuda.set_per_process_memory_fraction(limit)
            found.append(
                updater.update(frozen(updater, rows, advantages=torch.linspace(-1, 1, 256, dtype=torch.float64)))
            )
            assert updater.forward.budget.limits.rows == (256 if limit == 1 else 128)
            needed = torch.cuda.max_memory_allocated() - before
            limit = (before + 0.75 * needed) / torch.cuda.mem_get_info()[1]
            del policy, updater
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    (warning,) = warnings
    assert "out of memory" in warning and "trainer.micro_batch_size=128" in warning
    for name in ("loss", "entropy", "grad_norm"):
        assert found[1][name] == pytest.approx(found[0][name], rel=1e-3, abs=1e-6)
