"""Keys and values that stay between the turns of a conversation, and requests that join others."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
from small_models import FAMILIES, TOKENIZER, sampled, small_model

from grpo_core.engines import conversations
from grpo_core.engines.conversations import CALL_TOKENS, ConversationCache, PromptTokens
from grpo_core.engines.native import NativeEngine
from grpo_sdk.endpoints.base import AtOnce, Request, SampleKey, Sampling, TakesArrivals, free_memory, rest
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.errors import NonFiniteError, UserError

GROUPS = [(3, 1), (9, 4), (4, 2)]
"""Length and completions of each prompt."""
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
    following = []
    for request, completion in zip(requests, completions, strict=True):
        prompt = (*request.prompt_ids, *completion.token_ids, *tokens(generator, generator.randrange(1, 9)))
        name = request.conversation if named else None
        following.append(replace(request, prompt_ids=prompt, key=request.key._replace(step=turn), conversation=name))
    return following


def played(
    engine: NativeEngine, sampling: Sampling, *, named: bool, turns: int = 4, **options: Any
) -> list[list[Completion]]:
    """The completions of each turn."""
    requests, found = first_turn(**options), []
    if not named:
        requests = [replace(each, conversation=None) for each in requests]
    for turn in range(1, turns + 1):
        found.append(sampled(engine, requests, sampling))
        requests = next_turn(requests, found[-1], turn, named=named)
    return found


def ids(turns: Iterable[Iterable[Completion]]) -> list[list[tuple[int, ...]]]:
    return [[completion.token_ids for completion in turn] for turn in turns]


@pytest.mark.parametrize(
    ("name", "sampling"), [*((name, GREEDY) for name in FAMILIES), ("smollm2", SAMPLED), ("gpt2", SAMPLED)]
)
def test_conversations_that_are_kept_have_the_tokens_of_those_read_again(name: str, sampling: Sampling) -> None:
    engine = made(name)
    read_again = played(engine, sampling, named=False)
    assert not free_memory(engine) and engine.prompt_tokens == PromptTokens(), "without a name nothing is kept"
    kept = played(engine, sampling, named=True)
    assert ids(kept) == ids(read_again)
    assert [c.logprobs for turn in kept for c in turn] == [
        pytest.approx(c.logprobs, abs=1e-10) for turn in read_again for c in turn
    ]
    assert engine.prompt_tokens.reused > engine.prompt_tokens.read > 0


def test_in_float32_log_probs_are_those_of_prompts_read_again() -> None:
    engine = made(dtype=torch.float32)
    sampling = Sampling(temperature=0, max_completion_length=24)  # long enough for copies of the weights
    read_again = chain(*played(engine, sampling, named=False, turns=2))
    pairs = list(zip(read_again, chain(*played(engine, sampling, named=True, turns=2)), strict=True))
    same = [(again, once) for again, once in pairs if again.token_ids == once.token_ids]
    assert len(same) > len(pairs) // 2
    for again, once in same:
        assert once.logprobs == pytest.approx(again.logprobs, abs=1e-4)


def test_stop_strings_and_limits_hold_in_every_turn() -> None:
    options: dict[str, Any] = {"stop": ("a", "7", "k"), "max_completion_length": 5}
    read_again = played(made(), SAMPLED, named=False, **options)
    kept = played(made(), SAMPLED, named=True, **options)
    assert [(c.token_ids, c.text, c.finish_reason) for turn in kept for c in turn] == [
        (c.token_ids, c.text, c.finish_reason) for turn in read_again for c in turn
    ]
    assert {c.finish_reason for turn in kept for c in turn} == {"stop", "length"}


@pytest.mark.parametrize("forget", [lambda engine: engine.sync(1), free_memory, rest], ids=["sync", "free", "rest"])
def test_what_is_kept_is_given_back(forget: Callable[[NativeEngine], object]) -> None:
    engine = made()
    requests = first_turn()
    following = next_turn(requests, sampled(engine, requests, GREEDY), 1, named=True)
    assert engine._kept is not None
    cache = engine._kept.cache
    assert cache.held > 0
    forget(engine)
    assert cache.held == 0
    assert not [layer for shelf in cache._shelves.values() for layer in shelf.layers]
    assert not free_memory(engine)
    engine.prompt_tokens = PromptTokens()
    list(engine.generate(following, GREEDY))
    assert engine.prompt_tokens == PromptTokens(0, sum(len(request.prompt_ids) for request in following))


@pytest.mark.parametrize(("length", "change"), [(None, 0), (None, 5), (None, -2), (20, None), (4, None)])
def test_a_prompt_is_read_again_from_where_it_is_another(length: int | None, change: int | None) -> None:
    engine = made()
    request = replace(first_turn()[-1], prompt_ids=tuple(range(20, 40)))
    (completion,) = sampled(engine, [request], GREEDY)
    prompt = [*request.prompt_ids, *completion.token_ids, 50, 51][:length]
    if change is None:
        same = len(prompt) - 1  # the last token is read for what it predicts
    else:
        prompt[change] += 100
        same = min(change % len(prompt), len(prompt) - 3)  # the last sampled token was not read
    engine.prompt_tokens = PromptTokens()
    other = replace(request, prompt_ids=tuple(prompt))
    (kept,) = sampled(engine, [other], GREEDY)
    assert engine.prompt_tokens == PromptTokens(same, len(prompt) - same)
    assert kept == sampled(made(), [replace(other, conversation=None)], GREEDY)[0]


@pytest.mark.parametrize("kept_tokens", [0, 32, 100, 200])
def test_conversations_leave_when_the_bound_is_reached(kept_tokens: int) -> None:
    engine = made(kept_tokens=kept_tokens)
    assert ids(played(engine, GREEDY, named=True)) == ids(played(made(), GREEDY, named=False))
    if kept_tokens == 0:
        assert engine._kept is None
        return
    assert engine._kept is not None
    assert engine._kept.cache.held <= kept_tokens
    unbounded = made()
    played(unbounded, GREEDY, named=True)
    assert engine.prompt_tokens.read > unbounded.prompt_tokens.read
    assert engine.prompt_tokens.reused > 0


def test_the_least_recently_used_leaves_first() -> None:
    cache = ConversationCache(96, torch.device("cpu"))
    piece = torch.ones(1, 1, 4, 2)
    for name in ("a", "b", "c"):
        cache.add(name, [1, 2, 3, 4], [[(piece, piece)]])
    cache.keep(cache.open("a", [1, 2, 3, 4, 5], 6))  # used again
    cache.add("d", [1, 2, 3, 4], [[(piece, piece)]])
    assert [name for name in "abcd" if cache.known(name, [1, 2, 3, 4, 5])] == ["a", "c", "d"]
    cache.wanted = frozenset("acd")  # nobody leaves for one that is not asked for
    cache.add("e", [1, 2, 3, 4], [[(piece, piece)]])
    assert [name for name in "abcde" if cache.known(name, [1, 2, 3, 4, 5])] == ["a", "c", "d"]
    assert cache.held == 96


def test_rows_of_uneven_lengths_are_attended_to_in_parts_or_with_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ids(played(made(), GREEDY, named=False))
    assert CALL_TOKENS > 0
    for tokens_of_a_call in (0, 3, 10_000):
        monkeypatch.setattr(conversations, "CALL_TOKENS", tokens_of_a_call)
        assert ids(played(made(), GREEDY, named=True)) == expected


def test_logits_that_are_not_finite_leave_nothing_behind() -> None:
    engine = made()
    requests = first_turn()
    following = next_turn(requests, sampled(engine, requests, GREEDY), 1, named=True)
    head = engine._parts.model.get_input_embeddings().weight.data
    before = head.clone()
    head.fill_(float("nan"))
    with pytest.raises(NonFiniteError):
        list(engine.generate(following, GREEDY))
    assert not free_memory(engine)
    head.copy_(before)
    unnamed = [replace(each, conversation=None) for each in following]
    expected = sampled(engine, unnamed, GREEDY)
    assert sampled(engine, following, GREEDY) == expected


def test_a_bound_of_conversations_below_zero_is_refused() -> None:
    with pytest.raises(UserError, match="kept_tokens=-1 must be 0"):
        made(kept_tokens=-1)


# --- requests that arrive


class Scripted:
    """Requests that come at certain looks; those of a conversation go on once it has answered.

    Args:
        looks: Numbers that come at each look, the first turn's.
        requests: All of the first turn.
        turns: Of each conversation.
    """

    def __init__(self, looks: Sequence[Sequence[int]], requests: Sequence[Request], turns: int) -> None:
        self.looks, self.requests, self.turns = [*looks], [*requests], turns
        self.found: list[list[Completion]] = [[] for _ in requests]
        self.coming: list[tuple[int, Request]] = []
        self.waited = 0

    def take(self, *, wait: bool) -> list[tuple[int, Request]] | None:
        if all(len(found) == self.turns for found in self.found):
            return None
        self.waited += wait
        while True:
            coming, self.coming = self.coming, []
            first = self.looks.pop(0) if self.looks else []
            coming += [(number, self.requests[number]) for number in first]
            if coming or not wait:
                return coming

    def play(self, engine: NativeEngine, sampling: Sampling) -> list[list[Completion]]:
        """The completions of each turn."""
        for number, completion in engine.generate_arriving(self, sampling):
            found = self.found[number]
            found.append(completion)
            if len(found) < self.turns:
                # as `next_turn` draws them for all rows at once
                others = [self.requests[row] for row in range(number)]
                (*_, following) = next_turn(
                    [*others, self.requests[number]], [completion] * (number + 1), len(found), named=True
                )
                self.requests[number] = following
                self.coming.append((number, following))
        return [[found[turn] for found in self.found] for turn in range(self.turns)]


ORDERS = {
    "at once": [[*range(7)]],
    "one by one": [[6], [], [5], [3], [], [], [4], [0, 2], [1]],
    "late": [[2], *[[]] * 40, [0, 1], *[[]] * 5, [6, 5, 4, 3]],
}


@pytest.mark.parametrize(("order", "sampling", "options"), [
    *((order, sampling, {}) for order in ORDERS for sampling in (GREEDY, SAMPLED)),
    *(("one by one", SAMPLED, options) for options in ({"max_batch_tokens": 70}, {"kept_tokens": 64})),
    *(("late", GREEDY, options) for options in ({"max_batch_tokens": 70}, {"kept_tokens": 64})),
])  # fmt: skip
def test_requests_that_arrive_in_any_order_have_the_same_tokens(
    order: str, sampling: Sampling, options: dict[str, int]
) -> None:
    engine = made(**options)
    assert isinstance(engine, TakesArrivals)
    script = Scripted(ORDERS[order], first_turn(), 3)
    assert ids(script.play(engine, sampling)) == ids(played(made(), sampling, named=False, turns=3))
    assert script.waited >= 1


def test_requests_without_a_conversation_may_arrive() -> None:
    engine = made()
    requests = [replace(request, conversation=None) for request in first_turn()]
    found = dict(engine.generate_arriving(AtOnce(requests), SAMPLED))
    expected = sampled(made(), requests, SAMPLED)
    assert ids([[found[number] for number in range(len(requests))]]) == ids([expected])
    assert engine._kept is not None
    assert engine._kept.cache.held == 0


def test_closing_the_iterator_gives_the_rows_back_and_the_model_is_as_before() -> None:
    engine = made()
    model = engine._parts.model
    attention = model.config._attn_implementation
    arriving = engine.generate_arriving(AtOnce(first_turn()), SAMPLED)
    number, _ = next(arriving)
    assert model.training
    assert model.config._attn_implementation == attention
    arriving.close()
    assert engine._kept is not None
    (name,) = engine._kept.cache._kept
    assert name == first_turn()[number].conversation
    assert engine._kept.cache.held == 32
    assert ids(played(engine, GREEDY, named=True, turns=1)) == ids(played(made(), GREEDY, named=True, turns=1))


def test_what_arrives_and_does_not_fit_is_refused() -> None:
    request = replace(first_turn()[0], prompt_ids=(20,) * 150)
    with pytest.raises(UserError, match="does not fit"):
        list(made().generate_arriving(AtOnce([request]), SAMPLED))


def test_weights_may_not_change_while_requests_arrive() -> None:
    engine = made()
    arriving = engine.generate_arriving(AtOnce(first_turn()), SAMPLED)
    next(arriving)
    engine.sync(3)
    with pytest.raises(RuntimeError, match="sync\\(3\\) came while"):
        list(arriving)
