"""Statistics of an update, summed over micro-batches: ratios, clipping, KL, entropy."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from grpo_core.algorithms.diagnostics import clip_fractions, effective_sample_size, ratio_statistics
from grpo_core.algorithms.kl import k1, k3
from grpo_core.algorithms.sequence_losses import sequence_log_ratio
from grpo_core.policy.ranks import Ranks
from grpo_core.training.batch import TrainBatch
from grpo_sdk.plugins.variant import Clipped


@dataclass(frozen=True, slots=True)
class ClipRange:
    """The range in which a loss does not clip a ratio.

    Attributes:
        of: The ratio that is clipped: of a token, or the product or mean over a completion.
        low: ε, below 1.
        high: ε_high, above 1.
    """

    of: Clipped
    low: float
    high: float


@dataclass(slots=True)
class MicroStatistics:
    """Detached numbers of one micro-batch; tensors are [B, T]."""

    mask: Tensor
    logp: Tensor
    old_logp: Tensor
    entropy: Tensor
    loss: float = 0.0
    policy_loss: float = 0.0
    value_loss: float | None = None
    kl: Tensor | None = None
    ref_logp: Tensor | None = None
    correction: Tensor | None = None


@dataclass(slots=True)
class UpdateStatistics:
    """Sums over the micro-batches of one optimizer step, and its metrics.

    Metrics are over the tokens that were computed: rows without any gradient are skipped where nothing needs them.
    """

    tokens: float = 0.0
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _log_ratios: list[Tensor] = field(default_factory=list)
    _row_log_ratios: list[Tensor] = field(default_factory=list)

    def reset(self) -> None:
        """Forget every micro-batch."""
        self.tokens = 0.0
        for collected in (self.sums, self._log_ratios, self._row_log_ratios):
            collected.clear()

    def add(self, measured: MicroStatistics, micro: TrainBatch, clip: ClipRange | None) -> None:
        """Add a micro-batch; `clip` says where the loss clips its ratio."""
        mask, sums = measured.mask, self.sums
        self.tokens += float(mask.sum())
        sums["loss"] += measured.loss
        sums["loss/policy"] += measured.policy_loss
        if measured.value_loss is not None:
            sums["loss/value"] += measured.value_loss
        sums["entropy"] += _sum(measured.entropy, mask)
        sums["sampler_mismatch"] += _sum((measured.old_logp - micro.sampler_logprobs.to(measured.logp)).abs(), mask)
        if measured.kl is not None:
            sums["kl"] += _sum(measured.kl, mask)
        if measured.ref_logp is not None:
            sums["kl/k1"] += _sum(k1(measured.logp, measured.ref_logp), mask)
            sums["kl/k3"] += _sum(k3(measured.logp, measured.ref_logp), mask)
        if measured.correction is not None:
            sums["rollout_weight"] += _sum(measured.correction, mask)
        if clip is not None:
            ratio_logp = measured.logp
            if clip.of != "token":
                in_mean = clip.of == "sequence_mean"
                ratio_logp = measured.old_logp + sequence_log_ratio(
                    measured.logp, measured.old_logp, mask, mean=in_mean
                )
            counts = clip_fractions(
                ratio_logp, measured.old_logp, micro.advantages, mask, epsilon=clip.low, epsilon_high=clip.high
            )
            sums["clip_ratio/low"] += float(counts.low)
            sums["clip_ratio/high"] += float(counts.high)
            sums["clip_ratio/region"] += float(counts.region)
        log_ratio = (measured.logp - measured.old_logp).where(mask, 0.0)
        self._log_ratios.append(log_ratio[mask].cpu())
        self._row_log_ratios.append(log_ratio.sum(dim=1)[mask.any(dim=1)].cpu())

    def of_all(self, ranks: Ranks) -> UpdateStatistics:
        """The same over all ranks, on each of them."""
        if ranks.size == 1:
            return self
        together = UpdateStatistics()
        # Not orjson, which writes null for NaN and infinity: the sums of a step that is skipped have them.
        for data in ranks.gather(json.dumps({"tokens": self.tokens, "sums": self.sums}).encode()):
            state = json.loads(data)
            together.tokens += state["tokens"]
            for name, value in state["sums"].items():
                together.sums[name] += value
        together._log_ratios = _gathered(self._log_ratios, ranks)
        together._row_log_ratios = _gathered(self._row_log_ratios, ranks)
        return together

    @property
    def controlled_kl(self) -> float:
        """The KL for a controller: token-mean k3, or the full KL; never negative. NaN where none was measured."""
        if not self.tokens or "kl" not in self.sums:
            return float("nan")
        return (self.sums["kl/k3"] if "kl/k3" in self.sums else self.sums["kl"]) / self.tokens

    @property
    def mean_entropy(self) -> float:
        """Mean entropy per token, NaN where nothing was computed."""
        return self.sums["entropy"] / self.tokens if self.tokens else float("nan")

    def metrics(self) -> dict[str, float]:
        """Every measurement by its metric's name."""
        totals = ("loss", "loss/policy", "loss/value")
        count = max(1.0, self.tokens)
        metrics = {name: value if name in totals else value / count for name, value in self.sums.items()}
        if self.tokens:
            log_ratios = torch.cat(self._log_ratios)
            all_tokens = torch.ones_like(log_ratios, dtype=torch.bool)
            metrics |= {
                f"ratio_{name}": float(value) for name, value in ratio_statistics(log_ratios, all_tokens).items()
            }
            metrics["ess"] = float(effective_sample_size(torch.cat(self._row_log_ratios))[1])
        return metrics


def _gathered(parts: Sequence[Tensor], ranks: Ranks) -> list[Tensor]:
    own = torch.cat(list(parts)).double() if parts else torch.zeros(0, dtype=torch.float64)
    gathered = ranks.gather(own.numpy().tobytes())
    return [torch.frombuffer(bytearray(data), dtype=torch.float64) for data in gathered if data]


def _sum(values: Tensor, mask: Tensor) -> float:
    return float(values.where(mask, 0.0).sum())
