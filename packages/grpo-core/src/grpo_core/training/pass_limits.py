"""How large a forward pass may be, and what becomes of the limit when memory runs out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from grpo_core.config import TrainerConfig


@dataclass(frozen=True, slots=True)
class PassSize:
    """Size of one forward pass.

    Attributes:
        rows: Completions.
        tokens: Tokens, padding included, as `trainer.micro_batch_tokens` counts them.
        prompts: Prompts.
    """

    rows: int
    tokens: int
    prompts: int

    def __str__(self) -> str:
        return f"{self.rows} completion{'s' * (self.rows != 1)} ({self.tokens} tokens)"


@dataclass(frozen=True, slots=True)
class PassLimits:
    """Upper limit of a forward pass: by prompts if they are given, else by completions, else by tokens.

    Attributes:
        rows: Completions.
        tokens: Tokens, padding included.
        prompts: Whole prompts, as drawn.
    """

    rows: int | None
    tokens: int
    prompts: int | None

    @classmethod
    def of(cls, config: TrainerConfig) -> PassLimits:
        """The limits that a configuration sets."""
        return cls(config.rows_per_pass, config.micro_batch_tokens, config.micro_batch_prompts)

    @classmethod
    def smallest(cls, limits: Iterable[PassLimits]) -> PassLimits:
        """The limits that satisfy all of the given ones."""
        several = list(limits)
        prompts = [limit.prompts for limit in several if limit.prompts is not None]
        rows = [limit.rows for limit in several if limit.rows is not None]
        return cls(
            rows=min(rows, default=None),
            tokens=min(limit.tokens for limit in several),
            prompts=min(prompts) if len(prompts) == len(several) else None,
        )

    def halved(self, failed: PassSize) -> PassLimits:
        """Half of a pass that did not fit, which has more than one completion, in the unit of the limit."""
        if self.prompts is not None and failed.prompts > 1:
            return PassLimits(self.rows, self.tokens, min(self.prompts, failed.prompts) // 2)
        if self.prompts is not None or self.rows is not None:  # a single prompt is cut into its completions
            rows = failed.rows if self.rows is None else min(self.rows, failed.rows)
            return PassLimits(rows // 2, self.tokens, None)
        return PassLimits(None, max(1, min(self.tokens, failed.tokens) // 2), None)

    def state(self) -> dict[str, Any]:
        """The limits as JSON."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PassLimits:
        """The limits that `state` returned."""
        return cls(state["rows"], state["tokens"], state["prompts"])

    def __str__(self) -> str:
        if self.prompts is not None:
            return f"trainer.micro_batch_prompts={self.prompts}"
        if self.rows is not None:
            return f"trainer.micro_batch_size={self.rows}"
        return f"trainer.micro_batch_tokens={self.tokens}"
