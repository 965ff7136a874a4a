import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.engines.kv_cache import INITIAL_TOKENS, Layout, SharedPrefixLayer, fill, moves_that_fill

CPU = torch.device("cpu")
KV, R, D = 2, 3, 4


@given(st.integers(0, 12).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, max(0, n - 1)), max_size=n))))
def test_the_alive_come_first_and_each_moves_once_at_most(case: tuple[int, set[int]]) -> None:
    length, dead = case
    items = list(range(length))
    moves = moves_that_fill(sorted(dead), length)
    fill(items, moves, len(dead))
    assert sorted(items) == sorted(set(range(length)) - dead)
    assert len(moves) <= len(dead), "one copy for each hole, not one for each survivor"


def test_prompts_nobody_continues_are_dropped() -> None:
    layout = Layout([5, 7, 6], CPU)
    layout.start([0, 1, 1, 2])
    assert (layout.longest_prompt, layout.slots_per_prompt) == (7, 2)
    # Without rows 1 and 2, row 3 moves to 1; without prompt 1, prompt 2 takes its place.
    rows, prompts = layout.drop([1, 2])
    assert (rows, prompts) == ([(3, 1)], [(2, 1)])
    assert (layout.prompt_lens, layout.prompt_of) == ([5, 6], [0, 1])
    assert (layout.longest_prompt, layout.slots_per_prompt) == (6, 1)


def test_completions_grow_and_survive_growth_and_drops() -> None:
    layout = Layout([1, 1], CPU)
    layout.start([0, 0, 1])
    layer = SharedPrefixLayer(layout, max_tokens=100)
    layer.store_prompts(0, 0, torch.zeros(2, KV, 1, D), torch.zeros(2, KV, 1, D))
    names = [10.0, 20.0, 30.0]
    sizes = []
    for token in range(90):
        layout.decoded += 1
        new = torch.tensor(names)[:, None, None, None].expand(-1, KV, 1, D) + token / 100
        layer.store_tokens(new, -new)
        sizes.append(layer._completions[0].shape[2])
        if token == 40:
            rows, prompts = layout.drop([0])
            layer.move(rows, prompts)
            names = [30.0, 20.0]
    keys, values = layer.tokens()
    expected = torch.tensor(names)[:, None] + torch.arange(90) / 100  # [A, T]
    assert torch.equal(keys.view(2, KV, 90, D), expected[:, None, :, None].expand(2, KV, 90, D))
    assert torch.equal(values, -keys)
    assert sorted(set(sizes)) == [INITIAL_TOKENS, 2 * INITIAL_TOKENS, 100], "doubled, up to what can be needed"
