"""`trainer.micro_batch_size=auto`: as many completions in a forward pass as fit, found by trying the real model."""

from __future__ import annotations

import hashlib
import json
import platform
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from grpo_core.algorithms.causal_lm import causal_lm
from grpo_core.algorithms.packing import pair_cost
from grpo_core.config import TrainerConfig
from grpo_core.config.trainer import divisors
from grpo_core.engines.compatibility import max_context
from grpo_core.policy.memory import OutOfMemoryError, is_out_of_memory, release
from grpo_core.policy.memory_meter import MemoryMeter, memory_meter
from grpo_core.policy.pass_budget import PassLimits
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.training.algorithm import Algorithm, KlPlacement
from grpo_core.training.batch import Snapshot, TokenBatch, TrainBatch, micro_batches
from grpo_core.training.forward import ForwardPasses
from grpo_core.training.objective import Objective, PenaltyCoefficients
from grpo_core.training.statistics import UpdateStatistics
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.files import read_regular, replace_file
from grpo_sdk.plugins.folders import cache_folder

FORMAT = 1

MAX_FILE_BYTES, MAX_ENTRIES = 1 << 20, 256

MAX_PEAK = 2**60
"""Bytes beyond any machine's memory: a larger number is damage, and may be too large to divide."""

GIB = 2**30

MOMENTS = 2
"""Numbers that AdamW keeps for each trained one, from the first optimizer step on."""


@dataclass(frozen=True, slots=True)
class TriedSize:
    """The largest number of completions that fits.

    Attributes:
        rows: Completions in a forward pass.
        peak: Peak memory with it, in bytes, AdamW's moments included.
        is_remembered: Whether an earlier run found it.
    """

    rows: int
    peak: int
    is_remembered: bool = False


def choose_micro_batch(
    policy: Policy, config: TrainerConfig, ranks: Ranks, meter: MemoryMeter | None = None
) -> tuple[int, ResolvedDefault]:
    """Find how many completions fit `trainer.micro_batch_memory`; every rank takes part, and all take the smallest.

    Args:
        policy: The model; its weights and the random state stay as they are.
        config: Lengths, share of the memory, and completions of an optimizer step, which the result divides.
        ranks: The processes of the run.
        meter: Measures the memory, by default that of the policy's device.

    Raises:
        OutOfMemoryError: not even one completion fits.
    """
    sizes, meter = divisors(config.rows_per_step // ranks.size), meter or memory_meter(policy.device)
    cache = SizeCache(cache_folder() / "micro_batch.json")
    key = _key(policy, config, sizes, meter)
    tried = cache.recall(key, sizes)
    if tried is None:
        algorithm = Algorithm.of(config)
        objective = Objective(algorithm, ForwardPasses(policy, algorithm, ranks), max_turns=1)
        tried = _try(objective, config, sizes, meter)
        if tried is not None:
            cache.remember(key, tried)
    found = [int(rows) for rows in ranks.gather(str(tried.rows if tried else 0).encode())]
    if tried is None or 0 in found:
        prompt, completion = _lengths(policy, config)
        raise OutOfMemoryError(
            f"trainer.micro_batch_size=auto: not even one completion fits: a forward and backward pass of {prompt} + "
            f"{completion} tokens ran out of memory. Use trainer.gradient_checkpointing=true, a shorter "
            "trainer.max_completion_length, lora.enabled=true, or a smaller model."
        )
    rows = min(found)
    what = "remembered from an earlier run" if tried.is_remembered else "tried on the model"
    why = (
        f"auto, {what}: {tried.rows} of {sizes[-1]} completions need {tried.peak / GIB:.2f} GiB of "
        f"{meter.limit() / GIB:.2f}, of which trainer.micro_batch_memory={config.micro_batch_memory:g} may be used"
    )
    if rows < tried.rows:
        why += "; another rank has room for fewer"
    return rows, ResolvedDefault("trainer.micro_batch_size", str(rows), why)


def largest_that_fits(
    sizes: Sequence[int], measure: Callable[[int], int | None], *, fixed: int, most: int, limit: int
) -> TriedSize | None:
    """The largest size whose peak memory is at most `most`, by doubling, and then halving the interval.

    A size is not tried if the peak, which grows in proportion, must be expected to exceed all there is: on a CPU the
    system would end the process.

    Args:
        sizes: Sizes in ascending order, each dividing the last one.
        measure: Returns a size's peak in bytes, None where memory runs out.
        fixed: Bytes in use before.
        most: Bytes that may be used.
        limit: Bytes that there are.

    Returns:
        The size; the smallest one also where it needs more than `most`; None where even that runs out of memory.
    """
    peaks: dict[int, int | None] = {}
    low, high, index = 0, len(sizes), 0  # sizes[:low] fit, and sizes[high:] do not
    while low < high:
        size = sizes[index]
        largest = sizes[low - 1] if low else 0
        above = peaks[largest] if low else fixed
        assert above is not None, "it fits"
        expected = above + (above - fixed) / max(1, largest) * (size - largest)
        peaks[size] = peak = None if expected > limit and index else measure(size)
        if peak is not None and peak <= most:
            low = index + 1
        else:
            high = index
        index = bisect_left(sizes, 2 * size) if high == len(sizes) else (low + high) // 2
    rows = sizes[max(0, low - 1)]
    peak = peaks[rows]
    return None if peak is None else TriedSize(rows, peak)


def _try(objective: Objective, config: TrainerConfig, sizes: Sequence[int], meter: MemoryMeter) -> TriedSize | None:
    policy = objective.forward.policy
    parameters = _trained(policy)
    moments = MOMENTS * sum(parameter.nbytes for parameter in parameters)

    def measure(rows: int) -> int | None:
        try:
            release()  # what an earlier size needed is not in use
            meter.reset()
            _pass(objective, config, rows)
            return meter.peak() + moments
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        release()  # here, where the exception is gone, whose frames held the tensors
        return None

    with _as_in_training(policy, parameters):
        meter.reset()
        limit = meter.limit()
        most = int(config.micro_batch_memory * limit)
        return largest_that_fits(sizes, measure, fixed=meter.peak() + moments, most=most, limit=limit)


@contextmanager
def _as_in_training(policy: Policy, parameters: Sequence[torch.nn.Parameter]) -> Iterator[None]:
    """Within the block every parameter has a gradient, as from the second micro-batch of a step on; nothing stays."""
    was_training = policy.model.training
    policy.model.train()  # gradients are checkpointed only there
    devices = [policy.device] if policy.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices):
            for parameter in parameters:
                parameter.grad = torch.empty_like(parameter).fill_(0)  # zeros_like takes no memory before it is used
            yield
    finally:
        for parameter in parameters:
            parameter.grad = None
        policy.model.train(was_training)
        release()


def _pass(objective: Objective, config: TrainerConfig, rows: int) -> None:
    """A forward and backward pass of completions that have the greatest length, as in training."""
    policy = objective.forward.policy
    prompt, completion = _lengths(policy, config)
    groups = torch.arange(rows) // config.num_generations
    tokens = TokenBatch(
        input_ids=torch.zeros(rows, prompt + completion, dtype=torch.int64),
        prompt_lens=torch.full((rows,), prompt),
        completion_lens=torch.full((rows,), completion),
        groups=groups,
        mask=torch.ones(rows, completion, dtype=torch.bool),
        sampler_logprobs=torch.zeros(rows, completion),
        is_cut=torch.zeros(rows, dtype=torch.bool),
        rollouts=torch.arange(rows),
        prompts=groups,
    )
    zeros = torch.zeros(rows, completion, dtype=torch.float64)
    snapshot = Snapshot(ref_logprobs=zeros, old_values=zeros)
    batch = TrainBatch.of(tokens, snapshot, advantages=zeros, weights=zeros, returns=zeros)
    (micro,) = micro_batches(batch, PassLimits(rows, 0, None), pair_cost(policy.model))
    coefficients = PenaltyCoefficients(config.beta, config.entropy_coef)
    loss = objective.loss(batch.rows(micro.rows).to(policy.device), micro.packs, coefficients, UpdateStatistics())
    loss.backward()


def _lengths(policy: Policy, config: TrainerConfig) -> tuple[int, int]:
    """Tokens of the longest prompt and completion."""
    context = max_context(policy.model)
    completion = config.max_completion_length
    longest = config.max_prompt_length if context is None else min(config.max_prompt_length, context - completion)
    return max(1, longest), completion


def _trained(policy: Policy) -> list[torch.nn.Parameter]:
    return [*policy.parameters(), *(() if policy.value_head is None else policy.value_head.parameters())]


# --- What earlier runs found


class SizeCache:
    """Sizes that were found, in a file of the cache folder: bounded, checked when read, replaced in one piece.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def recall(self, key: str, sizes: Sequence[int]) -> TriedSize | None:
        """The size under a key; None where there is none, or none of those that may be."""
        match self._read().get(key):
            # a bool is an int for match, and 1 in sizes is True for it
            case {"rows": int(rows), "peak": int(peak)} if type(rows) is int and rows in sizes and 0 < peak <= MAX_PEAK:
                return TriedSize(rows, peak, is_remembered=True)
        return None

    def remember(self, key: str, tried: TriedSize) -> None:
        """Store a size; where the folder cannot be written, the next run tries again."""
        entries = {name: entry for name, entry in self._read().items() if name != key}
        entries[key] = {"rows": tried.rows, "peak": tried.peak}
        content = {"format": FORMAT, "sizes": dict(list(entries.items())[-MAX_ENTRIES:])}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, json.dumps(content).encode())
        except OSError:
            return

    def _read(self) -> Mapping[str, Any]:
        try:
            data = json.loads(read_regular(self._path, MAX_FILE_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        match data:
            case {"format": 1, "sizes": dict(sizes)}:
                return sizes
        return {}


def _key(policy: Policy, config: TrainerConfig, sizes: Sequence[int], meter: MemoryMeter) -> str:
    """A hash of everything that the memory of a pass depends on."""
    model = causal_lm(policy.model).model
    architecture = json.loads(model.config.to_json_string(use_diff=False))
    architecture.pop("_name_or_path", None)
    is_cuda, placement = policy.device.type == "cuda", KlPlacement.of(config)
    facts = {
        "model": architecture,
        "attention": model.config._attn_implementation,
        "precision": [policy.precision_name, str(policy.model.dtype), policy.quantization is not None],
        "trained": [[list(parameter.shape), str(parameter.dtype)] for parameter in _trained(policy)],
        "reference": policy.anchor is not None,
        "reference states": placement.in_loss and placement.is_full,
        "checkpointing": config.gradient_checkpointing,
        "entropy": bool(config.entropy_coef),
        "lengths": _lengths(policy, config),
        "generations": config.num_generations,
        "sizes": list(sizes),
        "device": torch.cuda.get_device_name(policy.device)
        if is_cuda
        else f"{policy.device.type} {platform.machine()}",
        "memory": meter.limit(),
        "share": config.micro_batch_memory,
        "torch": torch.__version__,
    }
    return hashlib.blake2b(json.dumps(facts, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()
