"""What judges have cost: requests, tokens, money."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields


@dataclass(slots=True)
class Usage:
    """Counts of this process.

    Attributes:
        verdicts: Verdicts that were given, from the cache or by the model.
        cached: Those of them that were known already.
        abstained: Questions without a verdict.
        requests: Requests that were sent, repetitions included.
        unreadable: Replies that held no verdict.
        input_tokens: Tokens of prompts.
        output_tokens: Tokens of replies.
        cost: By the prices of the models; 0 without prices.
        seconds: Time from asking a model to its reply, of all requests together, waiting included.
    """

    verdicts: int = 0
    cached: int = 0
    abstained: int = 0
    requests: int = 0
    unreadable: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    def as_json(self) -> dict[str, float]:
        """The counts by name."""
        return asdict(self)

    def minus(self, before: Usage) -> Usage:
        """What was added since `before`."""
        return Usage(**{each.name: getattr(self, each.name) - getattr(before, each.name) for each in fields(self)})

    @classmethod
    def total(cls, several: Iterable[Usage | Mapping[str, float]]) -> Usage:
        """The sum of several."""
        total = cls()
        for usage in several:
            counts = usage.as_json() if isinstance(usage, Usage) else usage
            for each in fields(cls):
                setattr(total, each.name, getattr(total, each.name) + counts[each.name])
        return total

    def text(self) -> str:
        """One line: `120 verdicts (30 from the cache), 92 requests, 41,000 + 3,900 tokens, cost 0.12`."""
        cached = f" ({self.cached} from the cache)" if self.cached else ""
        parts = [f"{self.verdicts} verdicts{cached}", f"{self.requests} requests"]
        if self.input_tokens or self.output_tokens:
            parts.append(f"{self.input_tokens:,} + {self.output_tokens:,} tokens")
        if self.cost:
            parts.append(f"cost {self.cost:.4g}")
        if self.abstained:
            parts.append(f"{self.abstained} without a verdict")
        return ", ".join(parts)
