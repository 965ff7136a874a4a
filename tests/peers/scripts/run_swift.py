import importlib.util
import logging
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import torch
from report import answer, batch, report
from swift.rewards import orms
from swift.rl_core.advantage import compute_advantages
from swift.rl_core.grpo_algorithm import score_completions

Path("plugin.py").write_text(
    "from swift.rewards import orms\nfrom grpo_sdk.interop.swift import TaskORM\norms['task'] = TaskORM\n"
)
spec = importlib.util.spec_from_file_location("plugin", "plugin.py")
spec.loader.exec_module(importlib.util.module_from_spec(spec))
warnings = []
logging.getLogger("grpo_sdk.interop.swift").addHandler(
    SimpleNamespace(level=0, handle=lambda record: warnings.append(record.getMessage()))
)


class Sample:
    """ms-swift's sample, as far as rewards use it."""

    def __init__(self, each):
        self.messages = [{"role": "assistant", "content": each["completion"]}]
        self.row = {"task": each["task"], "row": each["row"]}

    def to_reward_row(self):
        return self.row


answers = []
for _, group in groupby(batch(), key=lambda each: (each["task"], each["row"])):
    members = list(group)
    reward = orms["task"](args=SimpleNamespace(num_generations=len(members)))
    warnings.clear()
    rewards = score_completions(
        [Sample(each) for each in members], reward_funcs=[reward], reward_model_plugins=[None], use_gym_env=False,
        device=torch.device("cpu"),
    )  # fmt: skip
    advantages, _ = compute_advantages(rewards, torch.ones(1), len(members), scale_rewards="none")
    for each, value, advantage in zip(members, rewards[:, 0].tolist(), advantages.tolist(), strict=True):
        if each["value"] is None:
            assert warnings and abs(advantage) < 1e-6, (advantage, warnings)
            answers.append(answer(None, unscored="its group's mean, so that its advantage is 0"))
        else:
            answers.append(answer(value))
report("ms-swift", "score_completions, compute_advantages", answers)
