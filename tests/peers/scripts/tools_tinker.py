import asyncio

from episodes import END, TEMPLATE, WITHOUT_TOOLS, bytes_tokenizer, episode, played, runs
from report import report
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.rl.data_processing import trajectory_to_data
from tinker_cookbook.rl.rollout_strategy import MinViableGroup
from tinker_cookbook.rl.rollouts import do_group_rollout

from grpo_sdk.interop.tinker import TaskDataset, TaskGroupBuilder

known = played()


class Says:
    """A policy that says the turns of an episode, and as the second of its group orders one thing."""

    def __init__(self, tokenizer, texts):
        self._tokenizer, self._texts, self._first = tokenizer, list(texts), None

    async def __call__(self, model_input, stop, *, max_tokens=None):
        assert stop == [self._tokenizer.eos_token_id]
        tokens = self._tokenizer.encode(self._texts.pop(0) + END)
        return TokensWithLogprobs(tokens=tokens, maybe_logprobs=[-0.5] * len(tokens))


async def play(renderer, each):
    """What a group of one holds of an episode, and the sequence that is trained."""
    builder = TaskGroupBuilder(known["spec"], each["row"], renderer, group_size=1)
    tokenizer = renderer.tokenizer
    try:
        group = await do_group_rollout(builder, Says(tokenizer, each["texts"]))
    except Exception as error:  # of the only one of its group
        assert type(error).__name__ == "UnscoredError", error
        return episode(None, why=str(error))
    (trajectory,) = group.trajectories_G
    assert '"name": "look_up"' in tokenizer.decode(trajectory.transitions[0].ob.to_ints())
    (datum,) = trajectory_to_data(trajectory, 1.0)
    targets, mask = (datum.loss_fn_inputs[name].to_torch().tolist() for name in ("target_tokens", "mask"))
    trained, (_, *told) = runs(tokenizer, targets, mask)
    parts = trajectory.transitions[-1].metrics
    return episode(group.get_total_rewards()[0], parts, told, trained=trained)


async def check_group(renderer):
    """The rest of a group is trained where the tool of one breaks."""
    broken = next(each for each in known["episodes"] if each["name"] == "raises")
    builder = TaskGroupBuilder(known["spec"], broken["row"], renderer, group_size=2)
    envs = iter(range(2))

    class Policy:
        async def __call__(self, model_input, stop, *, max_tokens=None):
            prompt = renderer.tokenizer.decode(model_input.to_ints())
            if "<tool_result>" not in prompt:
                text = (
                    broken["texts"][0]
                    if next(envs)
                    else '<tool_call>{"name": "order", "arguments": {"item": "cup"}}</tool_call>'
                )
            else:
                text = broken["texts"][1]
            tokens = renderer.tokenizer.encode(text + END)
            return TokensWithLogprobs(tokens=tokens, maybe_logprobs=[-0.5] * len(tokens))

    group = await do_group_rollout(builder, Policy(), MinViableGroup(min_successful=1, max_retries=0))
    assert len(group.trajectories_G) == 1 and "haggle" in group.rollout_errors[0].error_message


async def main():
    answers = []
    for template in (WITHOUT_TOOLS, TEMPLATE):  # the latter's answers are reported
        tokenizer = bytes_tokenizer(template)
        renderer = get_renderer("qwen3_instruct", tokenizer=tokenizer)
        TaskDataset(known["spec"], renderer, 1, 1, 1, 0)
        before, answers = answers, [await play(renderer, each) for each in known["episodes"]]
        assert not before or [each["value"] for each in before] == [each["value"] for each in answers]
    await check_group(renderer)
    report("tinker-cookbook", "do_group_rollout, MinViableGroup, trajectory_to_data", answers)


asyncio.run(main())
