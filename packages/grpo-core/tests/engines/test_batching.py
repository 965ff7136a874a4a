import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.engines.base import Request, SampleKey, Sampling
from grpo_core.engines.batching import MAX_SLOT_SHARE, PREFILL_TOKENS, RequestGroup, plan, prefill_chunks

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


def test_what_fits_is_one_batch_sorted_by_prompt_length() -> None:
    assert shape([*plan(requests((5, 2), (3, 2), (4, 1)), SAMPLING, 1000)]) == [[(3, 2), (4, 1), (5, 2)]]


def test_equal_prompts_are_one_group_wherever_they_stand() -> None:
    first, second = requests((3, 1), (3, 1))
    [batch] = plan([first, second, first, second, first], SAMPLING, 1000)
    assert [group.requests for group in batch] == [[0, 2, 4], [1, 3]]


def test_a_batch_is_closed_when_the_next_request_would_not_fit() -> None:
    # Two prompts of 5 and three completions of 10 are 2·5 + 3·10 = 40 tokens.
    assert shape([*plan(requests((5, 2), (5, 1)), SAMPLING, 40)]) == [[(5, 2), (5, 1)]]
    assert shape([*plan(requests((5, 2), (5, 1)), SAMPLING, 39)]) == [[(5, 2)], [(5, 1)]]


def test_a_group_may_be_split() -> None:
    # 5 + 2·10 = 25 tokens: pairs.
    assert shape([*plan(requests((5, 5)), SAMPLING, 25)]) == [[(5, 2)], [(5, 2)], [(5, 1)]]


def test_what_is_too_large_alone_goes_alone() -> None:
    assert shape([*plan(requests((5, 2)), SAMPLING, 1)]) == [[(5, 1)], [(5, 1)]]


def test_a_request_with_a_lower_limit_takes_less() -> None:
    short = [Request((1,), SampleKey(0, 0, "", n), max_completion_length=2) for n in range(4)]
    assert shape([*plan(short, SAMPLING, 9)]) == [[(1, 4)]]


def test_uneven_groups_are_kept_apart() -> None:
    # 64 rows of one prompt and 20 of one row each: with the 4th of these, 5 prompts of 64 slots are 320 > 4·68.
    batches = shape([*plan(requests((3, 64), *[(4, 1)] * 20), SAMPLING, 10**6)])
    assert batches == [[(3, 64), *[(4, 1)] * 3], [(4, 1)] * 17]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 20)), max_size=12),
    st.integers(1, 400),
)
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


@pytest.mark.parametrize("lengths", [[1] * PREFILL_TOKENS, [PREFILL_TOKENS // 2] * 2])
def test_prefill_chunks_are_full(lengths: list[int]) -> None:
    assert [*prefill_chunks(lengths)] == [slice(0, len(lengths))]
