import asyncio

from report import answer, batch, report
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.rl.rollout_strategy import MinViableGroup
from tinker_cookbook.rl.rollouts import do_group_rollout

from grpo_sdk.interop.tinker import TaskGroupBuilder


class Characters:
    """A tokenizer whose tokens are characters, so that every text of the batch can be sampled."""

    bos_token = bos_token_id = eos_token = eos_token_id = None
    name_or_path = "characters"

    def encode(self, text, **options):
        return [ord(character) for character in text]

    def decode(self, tokens, **options):
        return "".join(map(chr, tokens))


class Says:
    """A policy that samples a text, and then the empty one."""

    def __init__(self, text):
        self._texts = [text]

    async def __call__(self, model_input, stop, *, max_tokens=None):
        tokens = [ord(character) for character in (self._texts.pop() if self._texts else "")]
        return TokensWithLogprobs(tokens=tokens, maybe_logprobs=[0.0] * len(tokens))


renderer = get_renderer("role_colon", tokenizer=Characters())


async def score(sample):
    """What a rollout of a group of two holds of the completion; the other one is empty, and always scored."""
    builder = TaskGroupBuilder(sample["task"], sample["row"], renderer, group_size=2)
    strategy = MinViableGroup(min_successful=1, max_retries=0)
    group = await do_group_rollout(builder, Says(sample["completion"]), strategy)
    if group.rollout_errors:
        assert len(group.trajectories_G) == 1 and group.rollout_errors[0].error_type == "UnscoredError"
        return answer(None, unscored="raises: the rest of the group goes on")
    lengths = [len(trajectory.transitions[-1].ac.tokens) for trajectory in group.trajectories_G]  # in any order
    index = lengths.index(len(sample["completion"]))
    return answer(group.get_total_rewards()[index], group.trajectories_G[index].transitions[-1].metrics)


async def main():
    return [await score(sample) for sample in batch()]


report("tinker-cookbook", "do_group_rollout, MinViableGroup, get_total_rewards", asyncio.run(main()))
