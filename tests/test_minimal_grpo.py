"""The one-file example and the trainer are the same algorithm: same loss, same gradient."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch

from grpo_core.config import TrainerConfig
from grpo_core.policy.fresh import fresh_model
from grpo_core.policy.policy import Policy
from grpo_core.policy.source import ModelSource
from grpo_core.rollout import Completion, Rollout, Turn
from grpo_core.task import Row, Score
from grpo_core.training.batch import collate
from grpo_core.training.update import Updater

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "minimal_grpo.py"
LENGTHS = [[4, 2, 5, 1], [3, 3, 6, 2]]  # completion tokens of two groups
REWARDS = [[1.0, 0.2, 0.0, 1.0], [0.1, 0.1, 1.0, 0.2]]
PROMPTS = [[60, 61, 62], [70, 71, 72, 73, 74]]


@pytest.fixture(scope="module")
def minimal():
    spec = importlib.util.spec_from_file_location("minimal_grpo", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def completions(group: int) -> list[list[int]]:
    return [[(7 * index + 13 * token + group) % 258 for token in range(n)] for index, n in enumerate(LENGTHS[group])]


def test_same_loss_and_gradient(minimal) -> None:
    model, tokenizer = fresh_model("tiny", seed=0)
    model = model.double().eval()
    rows, longest = 8, 6

    total = torch.zeros((), dtype=torch.float64)
    for group, prompt in enumerate(PROMPTS):
        ids = torch.full((4, len(prompt) + longest), tokenizer.eos_token_id)
        mask = torch.zeros(4, longest, dtype=torch.bool)
        for index, tokens in enumerate(completions(group)):
            ids[index, : len(prompt) + len(tokens)] = torch.tensor(prompt + tokens)
            mask[index, : len(tokens)] = True
        reward = torch.tensor(REWARDS[group], dtype=torch.float64)
        logp = minimal.token_logprobs(model, ids, mask, len(prompt))
        total = total + minimal.dr_grpo_loss(
            logp, logp.detach(), reward - reward.mean(), mask, n_rows=rows, max_tokens=longest
        )
    total.backward()
    gradient = math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))
    model.zero_grad()

    policy = Policy(model, tokenizer, ModelSource("folder", "x", "x", ""), torch.device("cpu"), None)
    rollouts = [
        Rollout(
            "t.t",
            Row(id=f"{group}/{index}"),
            group,
            "",
            (Turn(tuple(PROMPTS[group]), Completion(tuple(tokens), (0.0,) * len(tokens), "", "stop", 0)),),
            Score(REWARDS[group][index]),
            "scored",
        )
        for group in range(2)
        for index, tokens in enumerate(completions(group))
    ]
    advantages = torch.tensor(REWARDS, dtype=torch.float64)
    advantages = (advantages - advantages.mean(dim=1, keepdim=True)).flatten()
    config = TrainerConfig(
        num_generations=4, prompts_per_step=2, max_completion_length=longest, max_grad_norm=1e9, learning_rate=0.0
    )
    metrics = Updater(policy, config, total_steps=1).update(
        collate(rollouts, advantages, pad_id=tokenizer.pad_token_id, mask_truncated=False)
    )
    assert metrics["loss"] == pytest.approx(float(total.detach()), rel=1e-12)
    assert metrics["grad_norm"] == pytest.approx(gradient, rel=1e-6)  # RMSNorm sums its gradient in float32


def test_the_example_learns_from_its_own_samples(minimal) -> None:
    from grpo_core import load_task

    model, tokenizer = fresh_model("tiny", seed=0)
    task = load_task("math.arithmetic?size=2")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    generator = torch.Generator().manual_seed(0)
    reward = minimal.train_step(model, optimizer, tokenizer, task, task.rows(), generator)
    assert 0.0 <= reward <= 1.0
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)) or reward == 0.0
