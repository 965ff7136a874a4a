"""Statistics of an optimizer step, summed over its micro-batches and ranks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from grpo_core.algorithms.diagnostics import effective_sample_size, ratio_statistics
from grpo_core.policy.ranks import Ranks


@dataclass(slots=True)
class UpdateStatistics:
    """Sums over the micro-batches of one optimizer step, and its metrics.

    Metrics are over the tokens that were computed: rows without any gradient are skipped where nothing needs them.

    Attributes:
        tokens: Tokens that got a loss.
        sums: Sum of each metric: of losses, whose weights hold the denominator, and of others over the tokens.
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

    def add(
        self, mask: Tensor, log_ratio: Tensor, totals: Mapping[str, float], per_token: Mapping[str, Tensor]
    ) -> None:
        """Add a micro-batch.

        Args:
            mask: [B, T] tokens that get a loss.
            log_ratio: [B, T] log π − log π_old.
            totals: What is summed already, by the name of its metric.
            per_token: [B, T] what is summed over the tokens, by the name of its metric.
        """
        self.tokens += float(mask.sum())
        for name, total in totals.items():
            self.sums[name] += total
        for name, values in per_token.items():
            self.sums[name] += float(values.detach().where(mask, 0.0).sum())
        log_ratio = log_ratio.detach().where(mask, 0.0)
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

    def mean(self, *names: str) -> float:
        """Mean per token of the first of these metrics that was measured; NaN where none was, or nothing computed."""
        measured = [self.sums[name] for name in names if name in self.sums]
        return measured[0] / self.tokens if measured and self.tokens else float("nan")

    def metrics(self) -> dict[str, float]:
        """Every measurement by its metric's name."""
        count = max(1.0, self.tokens)
        metrics = {name: value if name.startswith("loss") else value / count for name, value in self.sums.items()}
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
