import tempfile
from collections import defaultdict
from itertools import groupby

import torch
from report import answer, batch, report
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from grpo_sdk.interop.trl import dataset, reward_funcs
from grpo_sdk.plugins.models import model_source

tiny = model_source("tiny").location


def rewards_of(spec, samples):
    """What GRPOTrainer makes of the samples of a task, and the columns of its table."""
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(tiny),
        processing_class=AutoTokenizer.from_pretrained(tiny),
        reward_funcs=reward_funcs(spec, workers=1, max_abstain_share=1.0),
        train_dataset=dataset(spec),
        args=GRPOConfig(output_dir=tempfile.mkdtemp(), report_to=[], use_cpu=True, bf16=False),
    )
    name = trainer.train_dataset[0]["task"]
    inputs = [{"prompt": each["prompt"], "row": each["row"], "task": name} for each in samples]
    texts = [each["completion"] for each in samples]
    trainer._pending_extra_logs = defaultdict(list)
    rewards = trainer._calculate_rewards(inputs, [each["prompt"] for each in samples], texts, [[0]] * len(texts))
    columns = {key.removeprefix(f"{name}/"): values for key, values in trainer._pending_extra_logs.items()}
    return rewards[:, 0].double().tolist(), columns


answers = []
for spec, group in groupby(batch(), key=lambda sample: sample["task"]):
    samples = list(group)
    values, columns = rewards_of(spec, samples)
    for index, value in enumerate(values):
        if torch.isnan(torch.tensor(value)):
            answers.append(answer(None, unscored="NaN: out of the baseline, advantage 0"))
        else:
            parts = {name: float(column[index] or 0) for name, column in columns.items() if name != "why"}
            answers.append(answer(value, parts))
report("trl", "GRPOTrainer._calculate_rewards", answers)
