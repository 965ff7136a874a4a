import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.engines.native import MAX_SLOT_SHARE, PREFILL_TOKENS, RequestGroup, plan, prefill_chunks
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling
from grpo_sdk.endpoints.completion import Completion

SAMPLING = Sampling(max_completion_length=10)


def requests(*groups: tuple[int, int]) -> list[Request]:
    """`(prompt length, completions)` for each group; group i's prompt is made of token i."""
    return [
        Request((token,) * length, SampleKey(0, 0, str(token), sample))
        for token, (length, count) in enumerate(groups)
        for sample in range(count)
    ]


def shape(batches: list[list[RequestGroup]]) -> list[list[tuple[int, int]]]:
    return [[(len(group.prompt_ids), len(group.requests)) for group in batch] for batch in batches]


@pytest.mark.parametrize(("groups", "budget", "batches"), [
    ([(5, 2), (3, 2), (4, 1)], 1000, [[(3, 2), (4, 1), (5, 2)]]),  # what fits, sorted by the prompts' lengths
    ([(5, 2), (5, 1)], 40, [[(5, 2), (5, 1)]]),  # two prompts of 5 and three completions of 10
    ([(5, 2), (5, 1)], 39, [[(5, 2)], [(5, 1)]]),
    ([(5, 5)], 25, [[(5, 2)], [(5, 2)], [(5, 1)]]),  # 5 + 2·10: pairs
    ([(5, 2)], 1, [[(5, 1)], [(5, 1)]]),  # what is too large alone goes alone
    # 64 rows of one prompt and 20 of one row each: with the 4th of these, 5 prompts of 64 slots are 320 > 4·68.
    ([(3, 64), *[(4, 1)] * 20], 10**6, [[(3, 64), *[(4, 1)] * 3], [(4, 1)] * 17]),
])  # fmt: skip
def test_a_batch_is_what_fits(groups: list[tuple[int, int]], budget: int, batches: list[list[tuple[int, int]]]) -> None:
    assert shape([*plan(requests(*groups), SAMPLING, budget)]) == batches


def test_equal_prompts_are_one_group_wherever_they_stand_and_a_lower_limit_takes_less() -> None:
    first, second = requests((3, 1), (3, 1))
    [batch] = plan([first, second, first, second, first], SAMPLING, 1000)
    assert [group.requests for group in batch] == [[0, 2, 4], [1, 3]]
    short = [Request((1,), SampleKey(0, 0, "", n), max_completion_length=2) for n in range(4)]
    assert shape([*plan(short, SAMPLING, 9)]) == [[(1, 4)]]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 20)), max_size=12), st.integers(1, 400))
def test_every_request_is_sampled_once_within_the_budget(groups: list[tuple[int, int]], budget: int) -> None:
    batches = [*plan(requests(*groups), SAMPLING, budget)]
    assert sorted(index for batch in batches for group in batch for index in group.requests) == [
        *range(sum(count for _, count in groups))
    ]
    for batch in batches:
        counts = [len(group.requests) for group in batch]
        longest = max(len(group.prompt_ids) for group in batch)
        assert len(batch) * longest + 10 * sum(counts) <= budget or sum(counts) == 1
        assert len(batch) * max(counts) <= MAX_SLOT_SHARE * sum(counts)


@given(st.lists(st.integers(1, 2 * PREFILL_TOKENS), max_size=30).map(sorted))
def test_prefill_chunks_cover_the_prompts_in_order(lengths: list[int]) -> None:
    chunks = [*prefill_chunks(lengths)]
    assert [length for chunk in chunks for length in lengths[chunk]] == lengths
    for chunk in chunks:
        padded = len(lengths[chunk]) * max(lengths[chunk])
        assert padded <= PREFILL_TOKENS or len(lengths[chunk]) == 1
    for full in ([1] * PREFILL_TOKENS, [PREFILL_TOKENS // 2] * 2):
        assert [*prefill_chunks(full)] == [slice(0, len(full))]


# --- completions


def test_a_completion_has_a_logprob_for_every_token() -> None:
    with pytest.raises(ValueError, match="2 token_ids but 1 logprobs"):
        Completion((5, 6), (-0.1,), "ab", "stop", 0)
