import asyncio
import math
import os
import subprocess
import sys
from types import SimpleNamespace

from report import answer, batch, report
from stubs import stub

source = os.environ["SLIME_SOURCE"]
sys.path.insert(0, source)
stub("ray", "sglang", "sglang_router", "slime.backends", "slime.observability", "slime.utils.health_monitor",
     "slime.utils.http_utils", "slime.utils.dp_schedule")  # fmt: skip

from slime.ray.rollout import RolloutManager  # noqa: E402
from slime.rollout.rm_hub import async_rm  # noqa: E402
from slime.utils.misc import load_function  # noqa: E402
from slime.utils.types import Sample  # noqa: E402

samples = batch()
prompts = list(dict.fromkeys((each["task"], each["row"]) for each in samples))
args = SimpleNamespace(
    custom_rm_path="grpo_sdk.interop.slime.custom_rm",
    custom_reward_post_process_path="grpo_sdk.interop.slime.post_process_rewards",
    group_rm=False, reward_key=None, advantage_estimator="grpo", rewards_normalization=True,
    grpo_std_normalization=False,
)  # fmt: skip
rollouts = [
    Sample(
        group_index=prompts.index((each["task"], each["row"])), prompt=str(each["prompt"]), tokens=[0, 0],
        response=each["completion"], response_length=1, label=each["row"], metadata={"task": each["task"]},
    )
    for each in samples
]  # fmt: skip


async def score():
    return await asyncio.gather(*(async_rm(args, rollout) for rollout in rollouts))


for rollout, reward in zip(rollouts, asyncio.run(score()), strict=True):
    rollout.reward = reward
manager = SimpleNamespace(
    args=args, custom_convert_samples_to_train_data_func=None,
    custom_reward_post_process_func=load_function(args.custom_reward_post_process_path),
)  # fmt: skip
manager._post_process_rewards = lambda them: RolloutManager._post_process_rewards(manager, them)
data = RolloutManager._convert_samples_to_train_data(manager, rollouts)
answers = []
for rollout, trained, mask in zip(rollouts, data["rewards"], data["loss_masks"], strict=True):
    group = [
        each.reward for each in rollouts if each.group_index == rollout.group_index and not math.isnan(each.reward)
    ]
    if math.isnan(rollout.reward):
        left_out = mask == [0] and trained == 0.0
        answers.append(answer(None, unscored="loss mask 0, out of the group's mean" if left_out else "trained"))
    else:
        assert math.isclose(trained, rollout.reward - sum(group) / len(group), abs_tol=1e-9) and mask == [1]
        parts = {name: value for name, value in rollout.metadata.items() if name != "task"}
        answers.append(answer(rollout.reward, parts))
commit = os.environ.get("SLIME_COMMIT") or subprocess.check_output(
    ("git", "-C", source, "rev-parse", "--short=12", "HEAD"), text=True
).strip()  # fmt: skip
report(f"slime {commit}", "rm_hub.async_rm, RolloutManager._convert_samples_to_train_data", answers)
