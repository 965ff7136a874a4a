import skyrl_gym
from report import answer, batch, report

from grpo_sdk.errors import UnscoredError
from grpo_sdk.interop.skyrl import ENVIRONMENT, register

register()


def score(sample):
    """What a step of the environment returns, as SkyRL's generator makes and steps it."""
    extras = {"reward_spec": {"method": "rule", "ground_truth": sample["row"]}, "task": sample["task"]}
    environment = skyrl_gym.make(ENVIRONMENT, env_config={}, extras=extras)
    environment.init([])
    try:
        step = environment.step(sample["completion"])
    except UnscoredError:
        return answer(None, unscored="raises: the run ends")
    assert step["done"]
    return answer(float(step["reward"]), environment.get_metrics())


report("skyrl-gym", "skyrl_gym.make, BaseTextEnv.step, get_metrics", [score(sample) for sample in batch()])
