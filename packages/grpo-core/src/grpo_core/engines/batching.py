"""Splits requests into batches that fit the memory. Completions never depend on it (see `engines.sampling`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from grpo_core.engines.base import Request, Sampling

MAX_SLOT_SHARE = 4
"""Query slots per row, at most (slots are prompts × the largest group), so that groups of uneven sizes waste little."""

PREFILL_TOKENS = 8192
"""Prompt tokens read in one forward: enough to fill the hardware, and it bounds the activations (an MLP of SmolLM2 on
8,192 tokens takes 50 MiB in float32)."""


@dataclass(slots=True)
class RequestGroup:
    """Requests that share a prompt.

    Attributes:
        prompt_ids: The prompt.
        requests: Indices of the requests.
    """

    prompt_ids: tuple[int, ...]
    requests: list[int] = field(default_factory=list)


def plan(requests: Sequence[Request], sampling: Sampling, max_batch_tokens: int) -> Iterator[list[RequestGroup]]:
    """Yield sub-batches, from short prompts to long ones, each with at most `max_batch_tokens` of keys and values.

    A sub-batch holds P·longest prompt + Σ completion limits tokens. A single request that is larger goes alone.
    """
    batch: list[RequestGroup] = []
    completions = rows = largest = 0
    for group in _by_prompt(requests):
        length = len(group.prompt_ids)  # sorted, so it is the longest so far
        for index in group.requests:
            opens = not batch or batch[-1].prompt_ids != group.prompt_ids
            members = 1 if opens else len(batch[-1].requests) + 1
            limit = requests[index].limit(sampling)
            prompts = len(batch) + opens
            too_many = prompts * length + completions + limit > max_batch_tokens
            too_uneven = prompts * max(largest, members) > MAX_SLOT_SHARE * (rows + 1)
            if batch and (too_many or too_uneven):
                yield batch
                batch, completions, rows, largest, members, opens = [], 0, 0, 0, 1, True
            if opens:
                batch.append(RequestGroup(group.prompt_ids))
            batch[-1].requests.append(index)
            completions, rows, largest = completions + limit, rows + 1, max(largest, members)
    if batch:
        yield batch


def prefill_chunks(lengths: Sequence[int]) -> Iterator[slice]:
    """Yield slices of prompts, sorted by length, that are read together: right-padded to at most `PREFILL_TOKENS`."""
    start = 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or (end + 1 - start) * lengths[end] > PREFILL_TOKENS:
            yield slice(start, end)
            start = end


def _by_prompt(requests: Sequence[Request]) -> list[RequestGroup]:
    groups: dict[tuple[int, ...], RequestGroup] = {}
    for index, request in enumerate(requests):
        groups.setdefault(request.prompt_ids, RequestGroup(request.prompt_ids)).requests.append(index)
    return sorted(groups.values(), key=lambda group: len(group.prompt_ids))
