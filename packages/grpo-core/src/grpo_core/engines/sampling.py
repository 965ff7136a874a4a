"""Random numbers that belong to a token, not to a batch, and the kernel that turns one into a token.

A completion's uniforms are a pure function of (seed, step, prompt id, sample, token index), and a token is drawn by
inverting the CDF at its uniform. So what is sampled does not depend on who else is in the batch, on compaction, rank,
overlap or resume: exactly in float64, and in float32 up to the rounding of the logits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from grpo_core.algorithms.logprobs import entropy_of, wide
from grpo_sdk.endpoints.base import SampleKey, Sampling
from grpo_sdk.errors import NonFiniteError

STREAM_VERSION = 1
"""Part of every key; raised when the mapping from key to numbers changes, so that old runs are not silently mixed."""

BLOCK = 256
"""Tokens per block of the two-level CDF: near the square root of common vocabularies (49,152 = 192 blocks of 256)."""

SAMPLE_ELEMENTS = 2**25
"""Logits made at once, 128 MiB in float32, so that many rows with a large vocabulary do not dominate memory."""

UNIFORM_BLOCK = 64
"""Uniforms drawn ahead per row: amortises the call, and a short completion wastes few."""


def hashed_key(key: SampleKey, n_bytes: int) -> int:
    """A key as a number of `n_bytes` bytes, BLAKE2b of its canonical text."""
    # JSON is an unambiguous text of the four fields, and escapes lone surrogates, which UTF-8 cannot carry.
    canonical = json.dumps([STREAM_VERSION, int(key.seed), int(key.step), key.prompt_id, int(key.sample)])
    return int.from_bytes(hashlib.blake2b(canonical.encode("ascii"), digest_size=n_bytes).digest(), "little")


class UniformStream:
    """The uniforms of one completion, in token order, in [0, 1).

    Philox4x64-10 keyed by the BLAKE2b-128 of the canonical key; the token's index is the counter. `random_raw` has
    NumPy's promise of a stable stream, which `Generator` methods do not have.
    """

    __slots__ = ("_bits",)

    def __init__(self, key: SampleKey) -> None:
        self._bits = np.random.Philox(key=hashed_key(key, 16))

    def take(self, n: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the next n numbers: multiples of 2^-53, as `numpy.random.Generator.random` makes them."""
        raw = np.asarray(self._bits.random_raw(n), dtype=np.uint64)
        return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample(logits: Tensor, u: Tensor | None, sampling: Sampling, *, checks: bool = True) -> tuple[Tensor, Tensor]:
    """Choose one token a row as `sampling` says, by inverting the CDF at u: the least token with CDF(token) > u.

    Args:
        logits: [N, V], any floating dtype; half precisions are widened to float32. −inf is impossible, and an
            impossible token is never drawn, at u = 0 or next to 1 included.
        u: [N] float64 in [0, 1); may be None when greedy.
        sampling: Temperature and filters.
        checks: Whether to raise, which waits for the device. Without, the log-prob of a row that is not finite is NaN.

    Returns:
        token [N] int64 and log-prob [N] float64 under softmax(logits / temperature), before any filter.

    Raises:
        NonFiniteError: a row has NaN or +inf, or nothing but −inf.
    """
    if sampling.greedy:
        probabilities = _softmax(logits, 1.0)
        token = logits.argmax(-1)
        if checks:
            _require_finite(probabilities.gather(1, token[:, None]))
        return token, _log_at(probabilities, token)
    assert u is not None, "only greedy sampling needs no uniforms"
    probabilities = _softmax(logits, sampling.temperature)
    kept = filter_probabilities(probabilities, sampling) if sampling.filtered else probabilities
    token = _draw(kept, u, checks)
    return token, _log_at(probabilities, token)


def certainty(logits: Tensor, token: Tensor) -> Tensor:
    """Surprisal −log π of tokens [N] and entropy −Σ π log π of logits [N, V] at temperature 1, in nats: [N, 2]."""
    logp = logits.to(wide(logits)).log_softmax(-1)
    return torch.stack((-logp.gather(1, token[:, None])[:, 0], entropy_of(logp)), -1)


def filter_probabilities(probabilities: Tensor, sampling: Sampling) -> Tensor:
    """Zero what top-k, then top-p, then min-p cut; each sees what the one before left, as in `transformers`.

    Args:
        probabilities: [N, V].
        sampling: The filters; those that are off cost nothing.

    Returns:
        [N, V], not renormalised; the likeliest token is always left.
    """
    kept = probabilities
    if 0 < sampling.top_k < kept.shape[-1]:
        least = kept.topk(sampling.top_k, dim=-1).values[:, -1:]
        kept = kept.where(kept >= least, 0.0)
    if sampling.top_p < 1:
        ordered, order = kept.sort(dim=-1, descending=True, stable=True)
        cumulative = ordered.double().cumsum(-1)
        before = cumulative - ordered
        inside = before < sampling.top_p * cumulative[:, -1:]
        kept = kept.where(torch.zeros_like(inside).scatter_(1, order, inside), 0.0)
    if sampling.min_p > 0:
        kept = kept.where(kept >= sampling.min_p * kept.amax(-1, keepdim=True), 0.0)
    return kept


def _softmax(logits: Tensor, temperature: float) -> Tensor:
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    # One fused kernel. Against it, exp(logits - max) with a separate sum takes 1.6 times as long on a CPU.
    return torch.softmax(logits, -1)


def _log_at(probabilities: Tensor, token: Tensor) -> Tensor:
    # A probability keeps its relative precision, so its log is as exact as the softmax: no log-softmax pass is needed.
    return probabilities.gather(1, token[:, None])[:, 0].double().log()


def _draw(weights: Tensor, u: Tensor, checks: bool) -> Tensor:
    """Invert the CDF of non-negative weights [N, V] at u [N]: first the block, then the token inside it.

    Only block sums [N, V / BLOCK] and the chosen block [N, BLOCK] are accumulated, in float64, so the cost is one
    pass over the weights, and float32 loses nothing over a long vocabulary.
    """
    vocabulary = weights.shape[1]
    whole = vocabulary // BLOCK
    if whole <= 1:
        return _first_above(weights.cumsum(-1, dtype=torch.float64), u, checks)[0][:, 0]
    sums = weights[:, : whole * BLOCK].view(len(weights), whole, BLOCK).sum(-1)  # [N, whole]
    if vocabulary % BLOCK:
        sums = torch.cat((sums, weights[:, whole * BLOCK :].sum(-1, keepdim=True)), -1)
    block, share = _invert(sums.double(), u, checks)
    index = block[:, None] * BLOCK + torch.arange(BLOCK, device=weights.device)  # [N, BLOCK]
    inside = weights.gather(1, index.clamp(max=vocabulary - 1)).double().where(index < vocabulary, 0.0)
    return block * BLOCK + _invert(inside, share, checks)[0]


def _invert(weights: Tensor, u: Tensor, checks: bool) -> tuple[Tensor, Tensor]:
    """Return the least index [N] with CDF(index) > u, and how far into that index's mass u points, from 0 to 1.

    The share is what makes two levels one CDF although the float32 sum of a block and its float64 sum differ.
    """
    cumulative = weights.cumsum(-1)  # [N, n]
    index, target = _first_above(cumulative, u, checks)
    mass = weights.gather(1, index)
    share = (target - (cumulative.gather(1, index) - mass)) / mass
    return index[:, 0], share[:, 0]


def _first_above(cumulative: Tensor, u: Tensor, checks: bool) -> tuple[Tensor, Tensor]:
    """The least index [N, 1] whose cumulative weight [N, n] is above u [N] of the total, and that bound [N, 1]."""
    total = cumulative[:, -1:].contiguous()
    if checks:
        _require_finite(total)
    target = u[:, None] * total
    # Where rounding leaves nothing above the target, the last index that has mass: never one that is impossible.
    above, last = torch.searchsorted(cumulative, target, right=True), torch.searchsorted(cumulative, total)
    index = torch.minimum(above, last)
    # What is not finite may be searched past the end, where an index on a GPU would end the process.
    return index if checks else index.clamp(max=cumulative.shape[1] - 1), target


def _require_finite(mass: Tensor) -> None:
    finite = torch.isfinite(mass)[:, 0]
    if not bool(finite.all()):
        raise non_finite((~finite).nonzero()[:, 0].tolist(), len(finite))


def non_finite(bad: Sequence[int], rows: int) -> NonFiniteError:
    """The error of a batch of some rows, of which those in `bad` have logits that no token can be drawn from."""
    return NonFiniteError(
        f"the model's logits are NaN, infinite or all −inf in {len(bad)} of {rows} rows (first: row "
        f"{bad[0]}), so no token can be drawn. The weights have diverged or the precision is too low: lower the "
        "learning rate, clip gradients, or sample in bfloat16 or float32 instead of float16."
    )
