"""Recipes: the settings of a paper or system under one name.

A recipe ranks below the user's settings and above the recommendations of a model. Settings that a source leaves open
have our defaults, stated explicitly so that no other layer changes them. Batch sizes are part of a recipe only where
the method needs them or a reference system names them: those of a paper depend on its machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from grpo_sdk.errors import unknown_name

DEFINING = (
    "trainer.loss_type",
    "trainer.aggregation",
    "trainer.baseline",
    "trainer.scale_rewards",
    "trainer.value_head",
    "trainer.use_gae",
)
"""Settings that define every recipe and cannot be changed."""

OVERLONG_SHARE = 0.2
"""DAPO's soft_overlong_buffer as a share of the longest completion: 4096 of 20480 tokens, arXiv 2503.14476, 4.1."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A complete set of settings.

    Attributes:
        name: Name for `--recipe`.
        summary: One line of description.
        source: Source of the values.
        options: Dotted key -> value.
        also_defining: Keys that define this recipe in addition to `DEFINING`.
        note: Differences from the source, or further settings to consider; may be empty.
        has_overlong_penalty: Whether soft_overlong_buffer is `OVERLONG_SHARE` of the longest completion.
    """

    name: str
    summary: str
    source: str
    options: Mapping[str, Any]
    also_defining: tuple[str, ...] = ()
    note: str = ""
    has_overlong_penalty: bool = False

    @property
    def defining(self) -> tuple[str, ...]:
        """The keys that cannot be changed."""
        return (*DEFINING, *self.also_defining)


def recipe(name: str) -> Recipe:
    """Return a recipe by name.

    Raises:
        UnknownNameError: there is no such recipe; names the closest match.
    """
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    return RECIPES[name]


def overlong_buffer(name: str | None, max_completion_length: int) -> int | None:
    """Return the `soft_overlong_buffer` of a recipe at this length; None without a recipe or penalty."""
    if name is None or not recipe(name).has_overlong_penalty:
        return None
    return int(max_completion_length * OVERLONG_SHARE) or None


_PLAIN: Mapping[str, Any] = {
    "num_generations": 8,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "mask_truncated_completions": False,
    "dynamic_sampling": False,
    "loss_type": "grpo",
    "aggregation": "sequence_mean",
    "count_empty_rows": True,
    "epsilon": 0.2,
    "epsilon_high": None,
    "num_iterations": 1,
    "top_entropy_quantile": 1.0,
    "baseline": "group_mean",
    "scale_rewards": "group",
    "value_head": False,
    "use_gae": False,
    "beta": 0.0,
    "kl_controller": "constant",
    "kl_warmup_steps": 0,
    "entropy_coef": 0.0,
    "entropy_controller": "constant",
    "learning_rate": 1e-6,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "max_grad_norm": 1.0,
}
"""Settings of section `trainer` that every recipe states, with the values for sources that leave them open."""


def _options(*others: Mapping[str, Any], **trainer: Any) -> Mapping[str, Any]:
    """Merge `_PLAIN`, settings of section `trainer` and dotted keys of other sections."""
    plain = {key: value for key, value in _PLAIN.items() if not (key == "warmup_steps" and "warmup_ratio" in trainer)}
    options = {f"trainer.{key}": value for key, value in {**plain, **trainer}.items()}
    for other in others:
        options |= other
    return MappingProxyType(options)


_ROOKWORLD: Mapping[str, Any] = {
    "num_generations": 8,
    "prompts_per_step": 8,
    "max_completion_length": 144,
    "temperature": 0.8,
    "top_k": 50,
    "top_p": 0.95,
    "aggregation": "constant",
    "loss_type": "dr_grpo",
    "scale_rewards": "none",
    "beta": 0.02,
    "kl": "k3",
    "kl_placement": "ratio_loss",
    "kl_controller": "step_rule",
    "kl_controller_args.target": 0.01,
    "entropy_coef": 0.01,
    "learning_rate": 1e-5,
    "adam_beta2": 0.95,
}

_ALL = (
    Recipe(
        "grpo",
        "GRPO: rewards normalised in the group, mean over each completion's tokens, k3 in the loss.",
        "DeepSeekMath, arXiv 2402.03300, section 4.1 and 4.2",
        _options(num_generations=64, beta=0.04, kl="k3", kl_placement="loss"),
        note="The paper's batch is 1024 completions: trainer.prompts_per_step=16.",
    ),
    Recipe(
        "dr_grpo",
        "Dr. GRPO: no division by a deviation nor by a completion's own length.",
        "Understanding R1-Zero-Like Training, arXiv 2503.20783, section 3.2",
        _options(loss_type="dr_grpo", aggregation="constant", scale_rewards="none", adam_beta2=0.95),
        note="The paper's batch is 128 prompts, its longest completion 3000 tokens.",
    ),
    Recipe(
        "dapo",
        "DAPO: clip-higher, token mean, dynamic sampling, soft overlong penalty.",
        "DAPO, arXiv 2503.14476, section 4.1",
        _options(
            num_generations=16,
            loss_type="dapo",
            aggregation="token_mean",
            epsilon_high=0.28,
            dynamic_sampling=True,
            dynamic_sampling_attempts=10,
            warmup_steps=20,
            weight_decay=0.1,
        ),
        also_defining=("trainer.dynamic_sampling",),
        note="The paper takes 16 optimizer steps from each batch of 512 prompts: trainer.prompts_per_step=512 "
        "trainer.steps_per_generation=16.",
        has_overlong_penalty=True,
    ),
    Recipe(
        "gspo",
        "GSPO: one ratio per completion, the geometric mean of its tokens', clipped narrowly.",
        "GSPO, arXiv 2507.18071, section 5.1",
        _options(loss_type="gspo", epsilon=3e-4, epsilon_high=4e-4, steps_per_generation=4),
        note="At one optimizer step per batch the ratio is 1 and this is GRPO: keep trainer.steps_per_generation "
        "above 1.",
    ),
    Recipe(
        "cispo",
        "CISPO: the clipped ratio is a constant weight of log pi, so that no token loses its gradient.",
        "MiniMax-M1, arXiv 2506.13585, section 3.1; the bound from ScaleRL, arXiv 2510.13786",
        _options(
            num_generations=16,
            loss_type="cispo",
            aggregation="token_mean",
            epsilon_high=5.0,
            dynamic_sampling=True,
            dynamic_sampling_attempts=10,
            adam_beta2=0.95,
            adam_epsilon=1e-15,
        ),
        note="The paper takes 16 optimizer steps from each batch: trainer.steps_per_generation=16.",
        has_overlong_penalty=True,
    ),
    Recipe(
        "rloo",
        "RLOO: each reward less the mean of the others', the whole completion as one action, k1 in the reward.",
        "Back to Basics, arXiv 2402.14740, sections 2.3 and 4",
        _options(
            num_generations=4,
            loss_type="rloo",
            aggregation="sequence_sum",
            baseline="leave_one_out",
            scale_rewards="none",
            beta=0.03,
            kl="k1",
            kl_placement="reward",
            warmup_ratio=0.03,
        ),
        also_defining=("trainer.kl_placement",),
    ),
    Recipe(
        "reinforce_pp",
        "REINFORCE++: one completion per prompt, k1 off each token's reward, returns whitened over all tokens.",
        "REINFORCE++, arXiv 2501.03262; values of OpenRLHF's script train_reinforce_llama_ray.sh",
        _options(
            num_generations=1,
            prompts_per_step=128,
            aggregation="token_mean",
            baseline="reinforce_pp",
            scale_rewards="none",
            beta=0.01,
            kl="k1",
            kl_placement="reward",
            learning_rate=5e-7,
            adam_beta2=0.95,
        ),
        also_defining=("trainer.kl_placement",),
        note="OpenRLHF generates 1024 completions for 8 such optimizer steps: trainer.prompts_per_step=1024 "
        "trainer.steps_per_generation=8.",
    ),
    Recipe(
        "lite_ppo",
        "Lite PPO: mean of the group, deviation of the batch, token mean, PPO's clip.",
        "Part I: Tricks or Traps?, arXiv 2508.08221, section 5",
        _options(aggregation="token_mean", scale_rewards="batch", temperature=0.99, top_p=0.99, top_k=100),
    ),
    Recipe(
        "spiral",
        "SPIRAL: each reward less a running mean of its game and role, read before its update.",
        "SPIRAL, arXiv 2506.24119; lengths of rl_coding_games' tic-tac-toe",
        _options(
            num_generations=1,
            prompts_per_step=128,
            max_completion_length=150,
            loss_type="dr_grpo",
            aggregation="constant",
            baseline="role",
            scale_rewards="none",
            num_iterations=2,
        ),
        note="A task without roles has one: its own name.",
    ),
    Recipe(
        "rl_practice",
        "RL_Practice: Dr. GRPO on LoRA, divided by each prompt's longest completion, with curriculum and probes.",
        "RL_Practice's own configuration",
        _options(
            {
                "lora.enabled": True,
                "lora.r": 64,
                "lora.alpha": 128,
                "lora.target_modules": "all-linear",
                "curriculum.enabled": True,
                "curriculum.ema_alpha": 0.05,
                "curriculum.boundaries": (0.2, 0.8),
                "curriculum.weights": (1.0, 1.0, 1.0),
            },
            prompts_per_step=32,
            max_completion_length=200,
            temperature=0.7,
            loss_type="dr_grpo",
            aggregation="group_max",
            scale_rewards="none",
            kl="k1",
            kl_metric=True,
            dynamic_sampling=True,
            dynamic_sampling_attempts=10,
            dynamic_sampling_min_std=0.1,
            warmup_ratio=0.05,
            weight_decay=0.01,
            micro_batch_prompts=2,
            gradient_checkpointing=True,
            gradient_noise_scale=True,
        ),
        note="It starts from a fine-tuned adapter (--adapter); without one, from a new adapter of rank 64. A group is "
        "kept there from a variance of 0.01 on, here above a deviation of 0.1.",
    ),
    Recipe(
        "code_execution",
        "Code execution: TRL's GRPO of its time, two completions per prompt, on a LoRA adapter.",
        "rl_coding_games' own configuration, its profile for a 1.5B model on a V100",
        _options(
            {"lora.enabled": True, "lora.r": 16, "lora.alpha": 32, "lora.target_modules": "all-linear"},
            num_generations=2,
            prompts_per_step=4,
            max_prompt_length=256,
            max_completion_length=384,
            loss_type="bnpo",
            aggregation="token_mean",
            learning_rate=2e-5,
            micro_batch_size=4,
        ),
        note="TRL's linear decay of the rate is not among ours: it stays constant. On a GPU with bfloat16 the system "
        "takes trainer.prompts_per_step=8 trainer.micro_batch_size=8 trainer.max_prompt_length=512 "
        "trainer.max_completion_length=512.",
    ),
    Recipe(
        "rookworld",
        "RookWorld: group mean, a KL held at its target by the step rule, a small entropy bonus.",
        "RookWorld's stated defaults; the ratio is to the policy that sampled, not to the reference",
        _options(**_ROOKWORLD),
    ),
    Recipe(
        "rookworld_gae",
        "RookWorld with a trained value head: GAE over the tokens of each completion.",
        "RookWorld's stated defaults, with a value head that learns",
        _options(
            **{
                **_ROOKWORLD,
                "baseline": "value",
                "value_head": True,
                "value_loss_coef": 0.1,
                "value_clip": 0.2,
                "value_learning_rate": 1e-6,
                "use_gae": True,
                "gae_gamma": 1.0,
                "gae_lambda": 0.95,
            }
        ),
    ),
)

RECIPES: Mapping[str, Recipe] = MappingProxyType({each.name: each for each in _ALL})
"""Every recipe by name."""
