"""Contradictions between the trainer's settings: each is refused in one line that says why and what to do."""

import inspect
from typing import Any

import pytest
from pydantic import ValidationError

from grpo_core.algorithms.advantages.normalised import pass_at_k
from grpo_core.config import CurriculumConfig, TrainerConfig
from grpo_core.config.keys import keys
from grpo_core.config.trainer import EXCLUSIVE, PASS_AT_K

VALUES = {"value_head": True, "baseline": "value"}
GAE = {**VALUES, "use_gae": True}
K1 = {"kl": "k1", "beta": 0.1}
MASK = {"rollout_correction": "token_mask"}


def steered(by: str, **arguments: float) -> dict[str, Any]:
    return {"beta": 0.1, "kl_controller": by, "kl_controller_args": arguments}


def entropy(by: str, coefficient: float = 0.0, **arguments: float) -> dict[str, Any]:
    return {"entropy_coef": coefficient, "entropy_controller": by, "entropy_controller_args": arguments}


@pytest.mark.parametrize(("values", "words"), [
    ({"num_generations": "8"}, "valid integer"),
    ({"learning_rate": float("inf")}, "finite number"),
    ({"min_p": 1.0}, "less than 1"),
    ({"loss_type": "drgrpo"}, "Did you mean 'dr_grpo'"),
    ({"num_generations": 1}, "or a baseline that needs none: adaptive_shrink, batch_mean, ema, none, reinforce_pp"),
    ({"num_generations": 1, "baseline": "ema", "scale_rewards": "group"}, "standard deviation of one reward"),
    ({"epsilon_high": 0.1}, "trainer.epsilon_high=0.1 is below trainer.epsilon=0.2"),
    ({"max_steps": 3, "num_train_epochs": 1.0}, "both say when to stop"),
    ({"warmup_steps": 3, "warmup_ratio": 0.1}, "Give one"),
    ({"soft_overlong_buffer": 300}, "256 - 300 = -44"),
    ({"loss_args": {"epsilon": 0.3}}, "write trainer.epsilon="),
    # 8 prompts / 3 steps = 2.667; 8 x 8 = 64 rows, over 2 steps 32 / 12 = 2.667.
    ({"steps_per_generation": 3}, "8 / 3 = 2.667"),
    ({"micro_batch_size": 12, "steps_per_generation": 2}, "8 generations / 2 steps = 32 completions, 32 / 12 = 2.667"),
    # Over two optimizer steps 8 / 2 = 4 prompts, 4 / 3 = 1.333.
    ({"micro_batch_prompts": 3, "steps_per_generation": 2}, "/ 2 steps = 4, 4 / 3 = 1.333. Use 1, 2 or 4"),
    ({"micro_batch_size": 8, "micro_batch_prompts": 2}, "both say how large a forward pass is. Give one"),
    ({"use_gae": True}, "trainer.use_gae=true needs trainer.value_head=true"),
    ({"use_gae": True, "value_head": True}, "makes advantages of the value head's values, trainer.baseline="),
    ({**VALUES, "value_loss_coef": 0.0}, "the value head would never learn"),
    ({**VALUES, "advantage_args": {"lam": 0.9}}, "lam is the setting trainer.gae_lambda"),
    ({"value_learning_rate": 1e-3}, "trainer.value_learning_rate=0.001 has no effect"),
    ({"gae_bootstrap": True}, "is part of GAE: set use_gae=true"),
    ({**GAE, "gae_bootstrap": True, "soft_overlong_buffer": 8}, "takes the largest penalty off that reward"),
    ({"ref_model_sync_steps": 2}, "has no reference to move at trainer.beta=0"),
    ({"baseline": "pass_at_k", "num_generations": 4}, "sets of k=4 of the trainer.num_generations=4"),
    ({"baseline": "pass_at_k", "advantage_args": {"k": 9}}, "Set trainer.num_generations=10 or more"),
    ({"baseline": "maxrl", "scale_rewards": "group"}, "maxrl has a normalisation of its own"),
    ({"baseline": "reinforce_pp", "scale_rewards": "batch"}, "Use scale_rewards=none"),
    ({"kl_controller": "step_rule"}, "has nothing to steer at trainer.beta=0"),
    ({"kl_warmup_steps": 5}, "trainer.kl_warmup_steps=5 leads up to trainer.beta=0"),
    ({**K1, "kl_placement": "loss"}, "the expected gradient"),
    ({**K1, "kl_placement": "reward", "kl_args": {"straight_through": True}}, "straight_through=true has no"),
    (steered("ppo_rule", target=-1), "target=-1 must be above 0"),
    (entropy("decay"), "has nothing to halve at trainer.entropy_coef=0"),
    (entropy("adaptive", target=0.0), "target=0 must be above 0"),
    ({"sharding": "full", "gradient_noise_scale": True}, "it compares the gradients of micro-batches"),
    ({"shard_size": 4}, "trainer.sharding=none does not share weights in groups"),
    ({"shard_size": 4, "sharding": "full"}, "Set trainer.sharding=hybrid, or leave it out"),
    ({"cpu_offload": True}, "trainer.cpu_offload=true needs trainer.sharding=full or hybrid"),
    ({**MASK, "rollout_correction_min": 3.0}, "min=3 must be below trainer.rollout_correction_max=2"),
    ({"rollout_correction": "token_truncate", "rollout_correction_max": None}, "token_truncate has no bound"),
    ({"rollout_correction_min": 0.5}, "trainer.rollout_correction_min=0.5 has no effect"),
    ({"dynamic_sampling": True, "num_generations": 1, "baseline": "ema"}, "one reward never does"),
    ({"dynamic_sampling_min_std": 0.1}, "trainer.dynamic_sampling=false keeps every group"),
    ({"gns_probe_steps": 5}, "gns_probe_prompts=8 must be below the prompts of an optimizer step, 8"),
])  # fmt: skip
def test_a_contradiction_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TrainerConfig(**values)
    assert words in str(caught.value) and next(iter(values)) in str(caught.value)


@pytest.mark.parametrize("values", [
    GAE,
    {**VALUES, "num_generations": 1},
    {"learning_rate": 1},  # a whole number is a number
    {"steps_per_generation": 4, "micro_batch_size": 16},
    {"baseline": "group_mean", "beta": 0.1, "kl_placement": "reward", "soft_overlong_buffer": 64},
    {"kl": "full", "kl_placement": "reward", "beta": 0.1},
    {**K1, "kl_placement": "reward"},
    {**K1, "kl_placement": "loss", "kl_args": {"straight_through": True}},
    entropy("adaptive"),  # adds, so that it can start from 0
    entropy("decay", 0.01, half_life=9),
    {**MASK, "rollout_correction_min": 0.5},
    {"micro_batch_prompts": 2, "steps_per_generation": 4},
])  # fmt: skip
def test_what_is_no_contradiction_is_taken(values: dict[str, Any]) -> None:
    assert TrainerConfig(**values)


@pytest.mark.parametrize(("baseline", "why"), [
    ("bnpo", "fits mean rewards within minimum and maximum"),
    ("gdpo", "sees only what each reward function gave"),
    ("maxrl", "divides by the mean reward of a group"),
    ("pass_at_k", "sees only whether a completion is solved"),
])  # fmt: skip
def test_penalties_that_a_baseline_cannot_use_are_refused(baseline: str, why: str) -> None:
    said = rf"off the reward, and the baseline {baseline} {why}.*"
    with pytest.raises(ValidationError, match=f"takes the KL {said}Use kl_placement=ratio_loss"):
        TrainerConfig(baseline=baseline, beta=0.1, kl_placement="reward")
    with pytest.raises(ValidationError, match=rf"soft_overlong_buffer=64 takes a penalty {said}Leave it out \(null\)"):
        TrainerConfig(baseline=baseline, soft_overlong_buffer=64)
    assert TrainerConfig(baseline=baseline, beta=0.1).kl_placement == "ratio_loss"
    assert TrainerConfig(baseline=baseline, kl_placement="reward").beta == 0


def test_the_curriculum_is_checked() -> None:
    assert CurriculumConfig(boundaries=[0.1, 0.9]).boundaries == (0.1, 0.9)  # type: ignore[arg-type] # YAML has lists
    for boundaries in ((0.8, 0.2), (0.5, 0.5), (-0.1, 0.5), (0.5, 1.1)):
        with pytest.raises(ValidationError, match="0 <= first < second <= 1"):
            CurriculumConfig(boundaries=boundaries)
    for weights in ((0.0, 0.0, 0.0), (1.0, -1.0, 1.0)):
        with pytest.raises(ValidationError, match="none below 0"):
            CurriculumConfig(weights=weights)


def test_a_configuration_lists_its_variants() -> None:
    listed = {each.kind: each for each in TrainerConfig(beta=0.1, kl="k2", kl_args={"a": 1}).variants}
    assert set(listed) == {"loss", "advantage", "kl", "kl_controller", "entropy_controller", "schedule"}
    assert (listed["kl"].name, listed["kl"].arguments, listed["kl"].section) == ("k2", {"a": 1}, "trainer.kl_args")
    assert all(each.section in keys() for each in listed.values())
    assert all(f"trainer.{name}" in keys() for first, second, _ in EXCLUSIVE for name in (first, second))
    assert inspect.signature(pass_at_k).parameters["k"].default == PASS_AT_K
