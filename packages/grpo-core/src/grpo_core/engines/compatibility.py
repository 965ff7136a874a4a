"""Checks that the native engine can sample from a model, and that requests fit its context."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from transformers import PretrainedConfig, PreTrainedModel

from grpo_sdk.endpoints.base import Engine, Request, Sampling
from grpo_sdk.errors import UserError

INSTEAD = "Choose another model, or train this one through TRL (grpo_sdk.interop.trl)."
"""What to do about a model that the native engine refuses."""


class LengthLimit(NamedTuple):
    """How many tokens a prompt and its completion may have together, and why."""

    tokens: int
    why: str


def check_model(model: PreTrainedModel) -> None:
    """Refuse a model whose attention cannot be replaced by the shared-prompt attention.

    Accepted: decoder-only models whose class supports `transformers`' attention interface (Llama, Mistral, Qwen2 and 3,
    SmolLM, Gemma 1 and 3, GPT-2, GPT-NeoX, Phi, OLMo, …) with full attention, or with a sliding or chunked window, for
    sequences that fit the window. Refused: older classes with attention of their own (Bloom, Falcon, GPT-J, MPT),
    recurrent and hybrid ones (Mamba, Jamba), attention with soft-capping or sinks (Gemma 2, GPT-OSS; found as it runs).

    Raises:
        UserError: naming what is missing.
    """
    name = type(model).__name__
    if not model._supports_attention_backend:
        raise UserError(
            f"the native engine cannot sample from {name}: its class does not go through transformers' attention "
            f"interface, as those of Llama, Qwen, SmolLM or GPT-2 do. {INSTEAD}"
        )
    config = model.config.get_text_config(decoder=True)
    known = {"full_attention", "sliding_attention", "chunked_attention"}
    other = sorted(set(getattr(config, "layer_types", None) or ()) - known)
    if other:
        raise UserError(
            f"the native engine cannot sample from {name}: it has layers of type {', '.join(other)}, and only "
            f"{', '.join(sorted(known))} keep keys and values that completions can share. {INSTEAD}"
        )


def check_requests(requests: Iterable[Request], sampling: Sampling, config: PretrainedConfig) -> None:
    """Refuse requests that the model cannot read or that cannot fit, before anything is computed.

    Raises:
        UserError: with the arithmetic.
    """
    check_fits(requests, sampling, config.vocab_size, min(_limits(config), default=LengthLimit(sys.maxsize, "")))


def check_fits(requests: Iterable[Request], sampling: Sampling, vocab_size: int, limit: LengthLimit) -> None:
    """Refuse requests that are not of a vocabulary, or do not fit a limit; see `check_requests`."""
    most, why = limit
    for index, request in enumerate(requests):
        if min(request.prompt_ids) < 0 or max(request.prompt_ids) >= vocab_size:
            raise UserError(
                f"request {index} (prompt {request.key.prompt_id!r}) has token ids from {min(request.prompt_ids)} to "
                f"{max(request.prompt_ids)}, but the model's are 0 to {vocab_size - 1}: does the tokenizer "
                "belong to another model?"
            )
        prompt, completion = len(request.prompt_ids), request.limit(sampling)
        if prompt + completion > most:
            excess = prompt + completion - most
            raise UserError(
                f"request {index} (prompt {request.key.prompt_id!r}) does not fit: prompt {prompt} + "
                f"max_completion_length {completion} = {prompt + completion} tokens, {excess} more than {most}, {why}. "
                f"Lower max_completion_length by {excess}, or shorten the prompt."
            )


def max_context(model: PreTrainedModel) -> int | None:
    """Tokens that a prompt and its completion may have together, if the model bounds them."""
    limits = _limits(model.config.get_text_config(decoder=True))
    return min((limit.tokens for limit in limits), default=None)


def context_of(engine: Engine, model: PreTrainedModel) -> int | None:
    """Tokens that a prompt and its completion may have together, if the model or the engine bounds them."""
    bounds = [max_context(model), getattr(engine, "max_context", None)]
    return min((bound for bound in bounds if bound is not None), default=None)


def _limits(config: PretrainedConfig) -> Iterator[LengthLimit]:
    """Every limit on prompt + completion that the model sets."""
    context = getattr(config, "max_position_embeddings", None)
    if context:
        yield LengthLimit(context, "the model's context (max_position_embeddings)")
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if window and (kinds is None or "sliding_attention" in kinds):
        yield LengthLimit(
            window, "the model's sliding window: the native engine keeps every key, which is right up to there"
        )
    chunk = getattr(config, "attention_chunk_size", None)
    if chunk and kinds is not None and "chunked_attention" in kinds:
        yield LengthLimit(
            chunk, "the model's attention chunk: the native engine keeps every key, which is right up to there"
        )
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in (rope, *rope.values()):  # flat, or one dict per layer type
        if isinstance(parameters, dict) and parameters.get("rope_type") == "longrope":
            short = parameters.get("original_max_position_embeddings") or config.original_max_position_embeddings
            yield LengthLimit(
                short,
                "up to where longrope uses its short factors: beyond, one long sequence would change its neighbours",
            )
