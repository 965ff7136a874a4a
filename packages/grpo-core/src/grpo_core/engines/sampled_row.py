"""One completion while the native engine samples it."""

from __future__ import annotations

from dataclasses import dataclass, field

from grpo_core.engines.completion import FinishReason
from grpo_core.engines.decoding import StopMatcher
from grpo_core.engines.sampling import UNIFORM_BLOCK, UniformStream


@dataclass(slots=True)
class SampledRow:
    """Tokens so far, and what ends it: `limit` tokens, an end token or a stop string.

    Attributes:
        request: Index of the request.
        prompt_len: Tokens of the prompt.
        limit: Most tokens.
        uniforms: What tokens are drawn with; None is greedy.
        matcher: Finds stop strings; None without any.
        token_ids: Tokens so far.
        logprobs: Their log-probs.
        text: The text before a stop string, once there is one.
        finished: Why it has ended; None while it has not.
    """

    request: int
    prompt_len: int
    limit: int
    uniforms: UniformStream | None
    matcher: StopMatcher | None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str | None = None
    finished: FinishReason | None = None
    _block: list[float] = field(default_factory=list)

    def uniform(self) -> float:
        """The uniform that draws the next token."""
        return self.block()[len(self.token_ids) % UNIFORM_BLOCK]

    def block(self) -> list[float]:
        """The block of uniforms that the next token's is in; call it once per token."""
        assert self.uniforms is not None, "greedy rows draw nothing"
        if len(self.token_ids) % UNIFORM_BLOCK == 0:
            self._block = self.uniforms.take(UNIFORM_BLOCK).tolist()
        return self._block

    def push(self, token_id: int, logprob: float, eos_ids: frozenset[int]) -> None:
        """Add a token, and see whether it ends the completion."""
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        if token_id in eos_ids:
            self.finished = "stop"
            return
        if self.matcher is not None:
            self.text = self.matcher.push(token_id)
        if self.text is not None:
            self.finished = "stop"
        elif len(self.token_ids) == self.limit:
            self.finished = "length"
