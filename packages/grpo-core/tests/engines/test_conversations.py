"""Keys and values that stay between the turns of a conversation, and requests that join others."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from small_models import small_model

from grpo_core.engines.native import NativeEngine
from grpo_core.policy.fresh import byte_tokenizer
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling
from grpo_sdk.endpoints.completion import Completion

TOKENIZER = byte_tokenizer()
GROUPS = [(3, 1), (9, 4), (4, 2)]
"""Length and completions of each prompt."""
FAMILIES = ["smollm2", "gpt2", "qwen3"]
GREEDY = Sampling(temperature=0, max_completion_length=12)
SAMPLED = Sampling(max_completion_length=12)


def made(name: str = "smollm2", dtype: torch.dtype = torch.float64, **options: Any) -> NativeEngine:
    return NativeEngine(small_model(name, dtype).train(), TOKENIZER, **options)


def tokens(generator: random.Random, length: int) -> tuple[int, ...]:
    return tuple(generator.randrange(10, 255) for _ in range(length))


def first_turn(**options: Any) -> list[Request]:
    generator = random.Random(0)
    prompts = [tokens(generator, length) for length, _ in GROUPS]
    return [
        Request(prompt, SampleKey(0, 0, f"row {row}", sample), conversation=f"{row}.{sample}", **options)
        for row, (prompt, (_, count)) in enumerate(zip(prompts, GROUPS, strict=True))
        for sample in range(count)
    ]


def next_turn(
    requests: Sequence[Request], completions: Sequence[Completion], turn: int, *, named: bool
) -> list[Request]:
    """Each request goes on with a few tokens, of which there are not the same number everywhere."""
    generator = random.Random(turn)
    return [
        Request(
            (*request.prompt_ids, *completion.token_ids, *tokens(generator, generator.randrange(1, 9))),
            request.key._replace(step=turn),
            request.stop,
            request.max_completion_length,
            request.conversation if named else None,
        )
        for request, completion in zip(requests, completions, strict=True)
    ]


def in_order(found: Iterable[tuple[int, Completion]], count: int) -> list[Completion]:
    by_index = dict(found)
    assert sorted(by_index) == list(range(count))
    return [by_index[index] for index in range(count)]


def played(
    engine: NativeEngine, sampling: Sampling, *, named: bool, turns: int = 4, **options: Any
) -> list[list[Completion]]:
    """The completions of each turn."""
    requests, found = first_turn(**options), []
    if not named:
        requests = [Request(each.prompt_ids, each.key, each.stop, each.max_completion_length) for each in requests]
    for turn in range(1, turns + 1):
        found.append(in_order(engine.generate(requests, sampling), len(requests)))
        requests = next_turn(requests, found[-1], turn, named=named)
    return found


def ids(turns: Iterable[Iterable[Completion]]) -> list[list[tuple[int, ...]]]:
    return [[completion.token_ids for completion in turn] for turn in turns]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_conversations_that_are_kept_have_the_tokens_of_those_read_again(name: str, sampling: Sampling) -> None:
    engine = made(name)
    read_again, kept = played(engine, sampling, named=False), played(engine, sampling, named=True)
    assert ids(kept) == ids(read_again)
    assert [c.logprobs for turn in kept for c in turn] == [
        pytest.approx(c.logprobs, abs=1e-10) for turn in read_again for c in turn
    ]
    assert engine.prompt_tokens.reused > engine.prompt_tokens.read > 0
