"""The hidden states that predict completion tokens, and what is computed from them: log-probs, entropies, KL, values.

One forward pass serves all of them, and logits exist only a chunk of positions at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from grpo_core.algorithms.causal_lm import CausalLM, causal_lm
from grpo_core.algorithms.kl import Direction, linear_full_kl
from grpo_core.algorithms.logprobs import linear_logprob
from grpo_core.algorithms.masking import completion_mask


@dataclass(frozen=True, slots=True)
class CompletionStates:
    """States of N completion tokens of a batch [B, T], each the one that predicts its token.

    Attributes:
        parts: The model that made them.
        states: [N, D], row by row.
        tokens: [N] the tokens that they predict.
        mask: [B, T] bool, true at the N tokens.
    """

    parts: CausalLM
    states: Tensor
    tokens: Tensor
    mask: Tensor

    def logprobs(
        self, *, temperature: float = 1.0, with_entropy: bool = False, chunk: int | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probs [B, T] and, if asked for, entropies [B, T] over the whole vocabulary; 0 where masked."""
        hidden, weight, bias = self._head()
        logp, entropy = linear_logprob(
            hidden,
            weight,
            self.tokens,
            bias=bias,
            temperature=temperature,
            chunk=chunk,
            with_entropy=with_entropy,
            softcap=self.parts.softcap,
        )
        return self.unflatten(logp), None if entropy is None else self.unflatten(entropy)

    def full_kl(self, reference: CompletionStates, *, temperature: float, direction: Direction) -> Tensor:
        """KL [B, T] over the whole vocabulary against the states of a reference on the same batch; 0 where masked."""
        hidden, weight, bias = self._head()
        ref_hidden, ref_weight, ref_bias = reference._head()
        kl = linear_full_kl(
            hidden,
            weight,
            ref_hidden,
            ref_weight,
            bias=bias,
            ref_bias=ref_bias,
            temperature=temperature,
            softcap=self.parts.softcap,
            direction=direction,
        )
        return self.unflatten(kl)

    def read(self, head: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a head [N, D] -> [N] to the states: [B, T], 0 where masked."""
        return self.unflatten(head(self.states))

    def unflatten(self, values: Tensor) -> Tensor:
        """Spread [N] over [B, T], 0 where masked."""
        return torch.zeros(self.mask.shape, dtype=values.dtype, device=values.device).masked_scatter(self.mask, values)

    def _head(self) -> tuple[Tensor, Tensor, Tensor | None]:
        weight, bias = self.parts.head_weight()
        if self.parts.scale == 1.0:
            return self.states, weight, bias
        return self.states * self.parts.scale, weight, None if bias is None else bias * self.parts.scale


def completion_states(
    model: nn.Module, input_ids: Tensor, prompt_lens: Tensor, completion_lens: Tensor
) -> CompletionStates:
    """Run the body once, without a cache, and keep the states that predict completions.

    Drawn for B = 2, with p prompt, c completion and - padding; the marked states are kept, and no column behind the
    last of them is run:

        input_ids   p p p c c -      tokens   c c
                      ^ ^                             (the state before a token predicts it)
                    p c c c - -               c c c
                    ^ ^ ^

    Args:
        model: A decoder-only `transformers` model, or a PEFT model around one.
        input_ids: [B, L], right-padded, with anything: under causal attention no real token sees padding.
        prompt_lens: [B], each at least 1.
        completion_lens: [B]; 0 is allowed.
    """
    longest = int((prompt_lens + completion_lens).max()) if input_ids.shape[0] else 0
    if longest > input_ids.shape[1] or bool((prompt_lens < 1).any()):
        raise ValueError(
            f"prompt_lens and completion_lens do not fit input_ids of {input_ids.shape[1]} columns: prompts need at "
            f"least 1 token, and prompt + completion is at most {longest}."
        )
    parts = causal_lm(model)
    mask = completion_mask(completion_lens)  # [B, T]
    rows, offsets = mask.nonzero(as_tuple=True)  # [N] each
    columns = prompt_lens[rows] + offsets
    hidden = parts.hidden(_without_padding(input_ids, prompt_lens + completion_lens), use_cache=False)  # [B, L, D]
    states = hidden.flatten(0, 1).index_select(0, rows * hidden.shape[1] + columns - 1)
    return CompletionStates(parts, states, input_ids[rows, columns], mask)


def _without_padding(input_ids: Tensor, lengths: Tensor) -> Tensor:
    """Replace padding, which may be no token at all (−100), by each row's first token, and cut columns of padding.

    The last token of the longest row is cut too: it predicts nothing, and may stand beyond the model's context.
    """
    real = completion_mask(lengths, max(1, int(lengths.max()) - 1) if lengths.numel() else 0)
    return torch.where(real, input_ids[:, : real.shape[1]], input_ids[:, :1])
