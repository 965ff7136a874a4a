"""Contradictions between the trainer's settings: each is refused in one line that says why and what to do."""

from __future__ import annotations

import inspect

import pytest
from pydantic import ValidationError

from grpo_core.algorithms.advantages.normalised import pass_at_k
from grpo_core.config import TrainerConfig
from grpo_core.config.keys import keys
from grpo_core.config.trainer import EXCLUSIVE, PASS_AT_K


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"use_gae": True}, "trainer.use_gae=true needs trainer.value_head=true: GAE is made of the values"),
        ({"use_gae": True, "baseline": "value"}, "needs trainer.value_head=true"),
        ({"baseline": "value"}, "trainer.baseline=value needs trainer.value_head=true"),
        ({"ref_model_sync_steps": 2}, "trainer.ref_model_sync_steps=2 has no reference to move at trainer.beta=0"),
        ({"baseline": "pass_at_k", "num_generations": 4}, "sets of k=4 of the trainer.num_generations=4 completions"),
        ({"baseline": "pass_at_k", "advantage_args": {"k": 9}}, "Set trainer.num_generations=10 or more"),
        ({"value_learning_rate": 1e-3}, "trainer.value_learning_rate=0.001 has no effect: there is no value head"),
        ({"gae_bootstrap": True}, "trainer.gae_bootstrap=true is part of GAE: set use_gae=true"),
        (
            {
                "value_head": True,
                "baseline": "value",
                "use_gae": True,
                "gae_bootstrap": True,
                "soft_overlong_buffer": 8,
            },
            "trainer.soft_overlong_buffer=8 takes the largest penalty off that reward: reaching the limit would pay",
        ),
        (
            {"use_gae": True, "value_head": True},
            "trainer.use_gae=true makes advantages of the value head's values, trainer.baseline=group_mean of other",
        ),
        (
            {"value_head": True, "baseline": "value", "value_loss_coef": 0.0},
            "trainer.value_loss_coef=0: the value head would never learn",
        ),
        ({"baseline": "maxrl", "scale_rewards": "group"}, "maxrl has a normalisation of its own"),
        ({"baseline": "reinforce_pp", "scale_rewards": "batch"}, "Use scale_rewards=none"),
        ({"kl_controller": "step_rule"}, "trainer.kl_controller=step_rule has nothing to steer at trainer.beta=0"),
        ({"kl_warmup_steps": 5}, "trainer.kl_warmup_steps=5 leads up to trainer.beta=0"),
        (
            {"sharding": "full", "gradient_noise_scale": True},
            "trainer.gradient_noise_scale=true with trainer.sharding=full: it compares the gradients of micro-batches",
        ),
        (
            {"shard_size": 4},
            "trainer.shard_size=4 has no effect: trainer.sharding=none does not share weights in groups",
        ),
        ({"shard_size": 4, "sharding": "full"}, "Set trainer.sharding=hybrid, or leave it out"),
        ({"cpu_offload": True}, "trainer.cpu_offload=true needs trainer.sharding=full or hybrid"),
        (
            {"kl": "k1", "kl_placement": "loss", "beta": 0.1},
            "trainer.kl=k1 with trainer.kl_placement=loss: the expected gradient",
        ),
        (
            {"kl": "k1", "kl_placement": "reward", "beta": 0.1, "kl_args": {"straight_through": True}},
            "trainer.kl_args.straight_through=true has no effect",
        ),
        (
            {"rollout_correction": "token_mask", "rollout_correction_min": 3.0},
            "trainer.rollout_correction_min=3 must be below trainer.rollout_correction_max=2",
        ),
        ({"rollout_correction": "token_truncate", "rollout_correction_max": None}, "token_truncate has no bound"),
        ({"rollout_correction_min": 0.5}, "trainer.rollout_correction_min=0.5 has no effect"),
        ({"micro_batch_size": 8, "micro_batch_prompts": 2}, "both say how large a forward pass is. Give one"),
        # 8 prompts / 3 = 2.667; over two optimizer steps 8 / 2 = 4 prompts, 4 / 3 = 1.333.
        ({"micro_batch_prompts": 3}, "8 / 3 = 2.667. Use 1, 2, 4 or 8"),
        (
            {"micro_batch_prompts": 3, "steps_per_generation": 2},
            "8 prompts / 2 steps = 4, 4 / 3 = 1.333. Use 1, 2 or 4",
        ),
        ({"dynamic_sampling": True, "num_generations": 1, "baseline": "ema"}, "one reward never does"),
        ({"dynamic_sampling_min_std": 0.1}, "trainer.dynamic_sampling=false keeps every group"),
        ({"gns_probe_steps": 5}, "trainer.gns_probe_prompts=8 must be below the prompts of an optimizer step, 8"),
        (
            {"baseline": "value", "value_head": True, "advantage_args": {"lam": 0.9}},
            "trainer.advantage_args.lam is the setting trainer.gae_lambda: write trainer.gae_lambda=",
        ),
        ({"kl_controller": "steprule", "beta": 0.1}, "Did you mean 'step_rule'?"),
        ({"entropy_controller": "adaptiv"}, "Did you mean 'adaptive'?"),
        (
            {"entropy_controller": "decay"},
            "trainer.entropy_controller=decay has nothing to halve at trainer.entropy_coef=0",
        ),
        (
            {"beta": 0.1, "kl_controller": "ppo_rule", "kl_controller_args": {"target": -1}},
            "trainer.kl_controller_args.target=-1 must be above 0",
        ),
        (
            {"beta": 0.1, "kl_controller": "step_rule", "kl_controller_args": {"minimum": 2.0}},
            "trainer.kl_controller_args.minimum=2 and maximum=1 must satisfy",
        ),
        (
            {"beta": 0.1, "kl_controller": "proportional", "kl_controller_args": {"clip": 40.0}},
            "trainer.kl_controller_args.clip=40.0 · n_steps=1 / horizon=20.0 is 1 or more",
        ),
        (
            {"entropy_controller": "adaptive", "entropy_controller_args": {"target": 0.0}},
            "trainer.entropy_controller_args.target=0 must be above 0",
        ),
        (
            {"entropy_coef": 0.1, "entropy_controller": "decay", "entropy_controller_args": {"half_life": 0.0}},
            "trainer.entropy_controller_args.half_life=0 must be above 0",
        ),
    ],
)
def test_a_contradiction_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TrainerConfig(**values)  # type: ignore[arg-type] # values of several types
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"value_head": True, "baseline": "value", "use_gae": True},
        {"value_head": True, "baseline": "value", "use_gae": True, "gae_bootstrap": True},
        {"value_head": True, "baseline": "value", "use_gae": True, "soft_overlong_buffer": 64},
        {"value_head": True, "baseline": "value"},
        {"value_head": True, "num_generations": 1, "baseline": "value"},
        {"baseline": "maxrl", "scale_rewards": "none"},
        {"baseline": "group_mean", "scale_rewards": "batch"},
        {"kl": "full", "kl_placement": "reward", "beta": 0.1},
        {"kl": "k1", "kl_placement": "reward", "beta": 0.1},
        {"kl": "k1", "kl_placement": "ratio_loss", "beta": 0.1},
        {"kl": "k1", "kl_placement": "loss", "kl_metric": True},
        {"kl": "k1", "kl_placement": "loss", "beta": 0.1, "kl_args": {"straight_through": True}},
        {"beta": 0.02, "kl_controller": "step_rule", "kl_warmup_steps": 5},
        {"entropy_controller": "adaptive"},  # adds, so that it can start from 0
        {"entropy_controller": "decay", "entropy_coef": 0.01, "entropy_controller_args": {"half_life": 9}},
        {"rollout_correction": "token_mask", "rollout_correction_min": 0.5},
        {"micro_batch_prompts": 2, "steps_per_generation": 4},
        {"gns_probe_steps": 5, "gns_probe_prompts": 4},
        {"advantage_args": {"gamma": 0.9}, "baseline": "reinforce_pp"},
    ],
)
def test_what_is_no_contradiction_is_taken(values: dict[str, object]) -> None:
    assert TrainerConfig(**values)  # type: ignore[arg-type] # values of several types


def test_a_configuration_lists_its_variants() -> None:
    listed = {each.kind: each for each in TrainerConfig(beta=0.1, kl="k2", kl_args={"a": 1}).variants}
    assert set(listed) == {"loss", "advantage", "kl", "kl_controller", "entropy_controller", "schedule"}
    assert (listed["kl"].name, listed["kl"].arguments, listed["kl"].section) == ("k2", {"a": 1}, "trainer.kl_args")
    assert all(each.section in keys() for each in listed.values())


def test_exclusive_pairs_are_keys() -> None:
    assert all(f"trainer.{name}" in keys() for first, second, _ in EXCLUSIVE for name in (first, second))


def test_the_default_of_pass_at_k_is_that_of_the_function() -> None:
    assert inspect.signature(pass_at_k).parameters["k"].default == PASS_AT_K
