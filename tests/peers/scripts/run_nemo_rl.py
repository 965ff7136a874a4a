import json
import os
import sys

from report import answer, batch, commit_of, report

source = os.environ["NEMO_RL_SOURCE"]
os.environ["PYTHONPATH"] = source  # of the actor
sys.path.insert(0, source)

import ray  # noqa: E402
from nemo_rl.environments.utils import create_env  # noqa: E402 - of the checkout
from nemo_rl.experience.rollouts import calculate_rewards  # noqa: E402

from grpo_sdk.errors import UnscoredError  # noqa: E402
from grpo_sdk.interop.nemo_rl import ENVIRONMENT, register  # noqa: E402

register()
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
environments = {"train": create_env(ENVIRONMENT, {})}


def score(sample):
    """What `calculate_rewards` gets of the environment's actor for a completion."""
    log = [{"role": "user", "content": "…"}, {"role": "assistant", "content": sample["completion"]}]
    label = json.dumps({"task": sample["task"], "row": sample["row"]})
    rows = {"message_log": [log], "task_name": ["train"], "extra_env_info": [{"ground_truth": label}]}
    try:
        returned = calculate_rewards(rows, environments)
    except UnscoredError:
        return answer(None, unscored="raises: the run ends")
    assert returned.terminateds.tolist() == [1.0]
    return answer(returned.rewards.item())


answers = [score(sample) for sample in batch()]
ray.shutdown()
report(f"NeMo-RL {commit_of(source)}", "create_env, calculate_rewards", answers)
