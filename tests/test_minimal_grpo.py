"""The one-file example and the trainer are the same algorithm: same advantages, losses, gradients and weights."""

import copy
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest
import torch
from script_modules import module_of

from grpo_core.config import TrainerConfig
from grpo_core.policy.fresh import fresh_model
from grpo_core.policy.policy import Policy
from grpo_core.rollouts.rollout import Rollout, Turn
from grpo_core.training.advantages import AdvantageEstimator
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import collate
from grpo_core.training.update import Updater
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.plugins.models import ModelSource
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "minimal_grpo.py"
PROMPTS = [[60, 61, 62], [70, 71, 72, 73, 74]]
LENGTHS = [[4, 2, 5, 1], [3, 3, 6, 2]]  # completion tokens of two groups
REWARDS = [[[1.0, 0.2, 0.0, 1.0], [0.1, 0.1, 1.0, 0.2]], [[0.5, 0.5, 0.5, 0.5], [0.0, float("nan"), 1.0, 0.3]]]
"""Two steps; the second has a group without differences and a completion that could not be scored."""
SHARED = {"max_completion_length": 6, "learning_rate": 1e-3, "max_grad_norm": 0.1}
"""Settings of either, by the same names."""

VARIANTS = {
    # name: (options of the example, settings of the trainer)
    "dr_grpo": ({}, {}),
    "grpo": ({"scale_rewards": "group", "denominator": "sequence"}, {"loss_type": "grpo", "scale_rewards": "group"}),
    "token mean, clip-higher": (
        {"denominator": "token", "epsilon_high": 0.28, "num_iterations": 3},
        {"loss_type": "dapo", "scale_rewards": "none", "epsilon_high": 0.28, "num_iterations": 3},
    ),
    "all of it": (
        {"scale_rewards": "group", "denominator": "sequence", "beta": 0.5, "num_iterations": 2, "temperature": 0.7},
        {"loss_type": "grpo", "scale_rewards": "group", "beta": 0.5, "num_iterations": 2, "temperature": 0.7},
    ),
}


@pytest.fixture(scope="module")
def minimal() -> ModuleType:
    return module_of(EXAMPLE)


@pytest.fixture
def model() -> torch.nn.Module:
    """The embedded model's shape, cut to two layers, in float64 throughout."""
    model, _ = fresh_model("tiny", seed=0)
    model.model.layers = model.model.layers[:2]
    model.config.num_hidden_layers = 2
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child).__name__ == "LlamaRMSNorm":  # which sums in float32, whatever it is given
                norm = torch.nn.RMSNorm(child.weight.shape[0], eps=child.variance_epsilon)
                setattr(module, name, norm)
    return model.double().eval()


def completions(group: int) -> list[list[int]]:
    return [[(7 * index + 13 * token + group) % 258 for token in range(n)] for index, n in enumerate(LENGTHS[group])]


def example_batch(eos: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The rollouts as the example has them: ids [8, 11], mask [8, 10]."""
    rows = [(prompt, tokens) for group, prompt in enumerate(PROMPTS) for tokens in completions(group)]
    width = max(len(prompt) + len(tokens) for prompt, tokens in rows)
    ids, mask = torch.full((len(rows), width), eos), torch.zeros(len(rows), width - 1, dtype=torch.bool)
    for index, (prompt, tokens) in enumerate(rows):
        ids[index, : len(prompt) + len(tokens)] = torch.tensor(prompt + tokens)
        mask[index, len(prompt) - 1 : len(prompt) + len(tokens) - 1] = True
    return ids, mask


def rollouts(rewards: list[list[float]]) -> list[Rollout]:
    """The same as the trainer has them."""
    made = []
    for group, prompt in enumerate(PROMPTS):
        for tokens, reward in zip(completions(group), rewards[group], strict=True):
            value = None if reward != reward else reward
            completion = Completion(tuple(tokens), (0.0,) * len(tokens), "", "stop", 0)
            score = Score(value, why="lost" if value is None else "")
            made.append(Rollout("t.t", Row(id="r"), group, "", (Turn(tuple(prompt), completion),), score))
    return made


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_losses_gradients_and_weights_as_the_trainer(
    name: str, minimal: ModuleType, model: torch.nn.Module
) -> None:
    options, settings = VARIANTS[name]
    options = minimal.Options(micro_batch_size=3, **SHARED, **options)
    config = TrainerConfig(num_generations=4, prompts_per_step=2, **SHARED, **{"scale_rewards": "none", **settings})
    _, tokenizer = fresh_model("tiny", seed=0)
    trained = copy.deepcopy(model)
    policy = Policy(trained, tokenizer, ModelSource("folder", "x", "x", ""), torch.device("cpu"), None)
    if config.beta:
        policy.freeze_reference()
    algorithm = Algorithm.of(config)
    updater, estimator = Updater(policy, algorithm, total_steps=len(REWARDS)), AdvantageEstimator(algorithm, {})
    reference = copy.deepcopy(model) if options.beta else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.0)

    for rewards in REWARDS:
        advantages = minimal.group_advantages(torch.tensor(rewards, dtype=torch.float64), options).flatten()
        taken = minimal.update(model, reference, optimizer, *example_batch(tokenizer.eos_token_id), advantages, options)

        made = rollouts(rewards)
        tokens = collate(made, pad_id=tokenizer.pad_token_id, mask_truncated=False)
        snapshot, flat = updater.forward.snapshot(tokens), torch.tensor(rewards, dtype=torch.float64).flatten()
        found, _ = estimator(tokens, snapshot, made, flat, ["t"] * len(made), beta=0.0)
        metrics = updater.update(updater.batch(tokens, snapshot, found))

        assert found.tolist() == pytest.approx(advantages.tolist(), rel=1e-9, abs=1e-12)
        # The trainer logs means over its optimizer steps.
        losses, norms = zip(*taken, strict=True)
        assert metrics["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-9, abs=1e-12)
        assert metrics["grad_norm"] == pytest.approx(sum(norms) / len(norms), rel=1e-9)
        difference = max(
            float((a - b).detach().abs().max()) for a, b in zip(model.parameters(), trained.parameters(), strict=True)
        )
        assert difference < 1e-9
    assert updater.optimizer.updates == len(REWARDS) * options.num_iterations


def test_samples_end_at_their_end(minimal: ModuleType) -> None:
    class Counts(torch.nn.Module):
        """Predicts the token after the last one, and never anything else."""

        def forward(self, ids: torch.Tensor):
            return type("Output", (), {"logits": torch.nn.functional.one_hot((ids + 1) % 10, 10) * 100.0})()

    options = minimal.Options(max_completion_length=3)
    generator = torch.Generator().manual_seed(0)
    for each in (None, generator):
        # With 9 as the end: 8 -> 9 is one token, 1 -> 2 3 4 is cut off at three.
        ids, mask = minimal.sample(Counts(), [[7, 8], [1]], 9, options, each)
        assert ids.tolist() == [[7, 8, 9, 9], [1, 2, 3, 4]]
        assert mask.tolist() == [[False, True, False], [True, True, True]]


def test_it_runs_as_documented(minimal: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^    python examples/minimal_grpo.py(.*)$", minimal.__doc__, re.MULTILINE)
    assert commands
    for command in commands:
        small = ["--steps", "1", "--prompts-per-step", "2", "--eval-rows", "8"]
        minimal.main([*shlex.split(command), *small])
        before, step, after = capsys.readouterr().out.splitlines()
        assert re.fullmatch(r"held-out solved 0\.\d{3} before training", before)
        assert re.fullmatch(r"step 1/1  reward 0\.\d{3}  grad norm \d+\.\d{3}", step)
        assert re.fullmatch(r"held-out solved 0\.\d{3} after 1 steps?", after)
