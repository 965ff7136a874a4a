import torch

from grpo_core.engines.kv_cache import INITIAL_TOKENS, Layout, SharedPrefixLayer

CPU = torch.device("cpu")
KV, D = 2, 4


def test_prompts_nobody_continues_are_dropped() -> None:
    layout = Layout([5, 7, 6], CPU)
    layout.start([0, 1, 1, 2])
    assert (layout.longest_prompt, layout.slots_per_prompt) == (7, 2)
    # Without rows 1 and 2, row 3 moves to 1; without prompt 1, prompt 2 takes its place.
    rows, prompts = layout.drop([1, 2])
    assert (rows, prompts) == ([(3, 1)], [(2, 1)])
    assert (layout.prompt_lens, layout.prompt_of) == ([5, 6], [0, 1])
    assert (layout.longest_prompt, layout.slots_per_prompt) == (6, 1)


def test_room_for_completions_doubles_up_to_what_can_be_needed() -> None:
    layout = Layout([1, 1], CPU)
    layout.start([0, 0, 1])
    layer = SharedPrefixLayer(layout, max_tokens=100)
    layer.store_prompts(0, 0, torch.zeros(2, KV, 1, D), torch.zeros(2, KV, 1, D))
    new, sizes = torch.zeros(3, KV, 1, D), set()
    for _ in range(90):
        layout.decoded += 1
        layer.store_tokens(new, new)
        sizes.add(layer._completions[0].shape[2])
    assert sizes == {INITIAL_TOKENS, 2 * INITIAL_TOKENS, 100}
