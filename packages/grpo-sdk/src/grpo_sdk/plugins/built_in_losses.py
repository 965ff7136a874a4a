"""The losses that ship with grpo-core, one row each."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_sdk.plugins.variant import Variant

LOSSES: Mapping[str, Variant] = {
    "bnpo": Variant(
        "grpo_core.algorithms.losses:ppo_clip",
        summary="TRL's bnpo: the clipped surrogate, mean over tokens; of the whole step, in TRL of a local batch.",
        formula="−min(ρA, clip(ρ, 1 − ε, 1 + ε_high)·A) / ΣT",
        source="TRL's loss_type bnpo; the normalisation of arXiv 2506.02864 is the baseline of that name",
        aggregation="token_mean",
        clips="token",
        zero_without_advantage=True,
        scale_rewards="group",
        scale_why="TRL's bnpo divides by the standard deviation of the group",
    ),
    "cispo": Variant(
        "grpo_core.algorithms.losses:cispo",
        formula="−sg(clip(ρ, 1 − ε_low, ε_high))·A·log π / ΣT, without a lower bound unless epsilon_low is given",
        source="arXiv 2506.13585, section 3.1; ε_high of 2510.13786",
        aggregation="token_mean",
        zero_without_advantage=True,
        epsilon_high=5.0,
        clip_why="CISPO's bound is of the ratio itself",
        scale_rewards="group",
        scale_why="CISPO divides by the standard deviation of the group, as GRPO",
    ),
    "dapo": Variant(
        "grpo_core.algorithms.losses:ppo_clip",
        summary="DAPO: the clipped surrogate with a higher upper range, mean over all tokens of the step.",
        formula="−min(ρA, clip(ρ, 1 − ε, 1 + ε_high)·A) / ΣT, ε_high > ε",
        source="arXiv 2503.14476, sections 3.1 and 3.3",
        aggregation="token_mean",
        clips="token",
        zero_without_advantage=True,
        epsilon_high=0.28,
        clip_why="DAPO clips higher upwards, so that rare tokens can grow",
        scale_rewards="group",
        scale_why="DAPO divides by the standard deviation of the group, as GRPO",
    ),
    "dppo": Variant(
        "grpo_core.algorithms.losses:dppo",
        formula=(
            "−1[D ≤ ε or moving back]·sg(min(ρ, max_ratio))·A·log π / (B · max_completion_length), D = |π − "
            "π_old| or the binary KL(π_old‖π) of the token"
        ),
        source="arXiv 2602.04879; verl's dppo_tv and dppo_kl",
        aggregation="constant",
        zero_without_advantage=True,
        epsilon=0.15,
        clip_why="DPPO's bound is of the probability's change, not of the ratio",
    ),
    "dr_grpo": Variant(
        "grpo_core.algorithms.losses:ppo_clip",
        summary="Dr. GRPO: the clipped surrogate over a constant denominator, so that length carries no bias.",
        formula="−min(ρA, clip(ρ, 1 − ε, 1 + ε_high)·A) / (B · max_completion_length), A = r − mean(r)",
        source="arXiv 2503.20783, section 3.2",
        aggregation="constant",
        clips="token",
        zero_without_advantage=True,
        scale_why="Dr. GRPO does not divide by a standard deviation: that weighs questions by difficulty",
    ),
    "dro": Variant(
        "grpo_core.algorithms.losses:dro",
        formula="−(A·log π − β/2·(log ρ)²) / B",
        source="arXiv 2405.19107; 2501.12599, section 2.3.2; per token as in Tinker's loss dro",
        aggregation="sequence_sum",
    ),
    "gmpo": Variant(
        "grpo_core.algorithms.sequence_losses:gmpo",
        formula=(
            "−A·exp(mean_t ℓ_t), ℓ = min(log ρ, ε_high) where A > 0, max(log ρ, −ε) elsewhere; mean over completions"
        ),
        source="arXiv 2507.20673; verl's geo_mean",
        aggregation="sequence_mean",
        zero_without_advantage=True,
        epsilon=0.4,
        clip_why="GMPO's bound is of the log-ratio, and wide",
    ),
    "gpg": Variant(
        "grpo_core.algorithms.losses:reinforce",
        summary="GPG: the plain policy gradient, mean over tokens; its α is in the baseline `gpg`.",
        formula="−A·log π / ΣT, A = α·(r − mean(r))",
        source="arXiv 2504.02546; verl's gpg",
        aggregation="token_mean",
        zero_without_advantage=True,
    ),
    "grpo": Variant(
        "grpo_core.algorithms.losses:ppo_clip",
        summary="GRPO: the clipped surrogate; a long completion's tokens weigh less than a short one's.",
        formula="−min(ρA, clip(ρ, 1 − ε, 1 + ε_high)·A), mean over a completion's tokens, then over completions",
        source="arXiv 2402.03300, equation 3",
        aggregation="sequence_mean",
        clips="token",
        zero_without_advantage=True,
        scale_rewards="group",
        scale_why="GRPO divides by the standard deviation of the group",
    ),
    "gspo": Variant(
        "grpo_core.algorithms.sequence_losses:gspo",
        formula="−min(sA, clip(s, 1 − ε, 1 + ε_high)·A), s = exp(mean_t log ρ_t); mean over completions",
        source="arXiv 2507.18071, section 4.1; ε of section 5.1",
        aggregation="sequence_mean",
        clips="sequence_mean",
        zero_without_advantage=True,
        epsilon=0.0003,
        epsilon_high=0.0004,
        clip_why="the ratio of a whole completion, per token, hardly moves",
        scale_rewards="group",
        scale_why="GSPO divides by the standard deviation of the group, as GRPO",
    ),
    "gspo_token": Variant(
        "grpo_core.algorithms.sequence_losses:gspo_token",
        formula=("−min(s_t A_t, clip(s_t, 1 − ε, 1 + ε_high)·A_t), s_t = sg(s)·π_t/sg(π_t), s = exp(mean_t log ρ_t)"),
        source="arXiv 2507.18071, section 4.3",
        aggregation="sequence_mean",
        clips="sequence_mean",
        zero_without_advantage=True,
        epsilon=0.0003,
        epsilon_high=0.0004,
        clip_why="the ratio of a whole completion, per token, hardly moves",
        scale_rewards="group",
        scale_why="GSPO divides by the standard deviation of the group, as GRPO",
    ),
    "luspo": Variant(
        "grpo_core.algorithms.sequence_losses:gspo",
        summary="LUSPO: GSPO with each completion weighed by its length, which GSPO's mean had divided out of the "
        "gradient.",
        formula="−T_i·min(sA, clip(s, 1 − ε, 1 + ε_high)·A), s = exp(mean_t log ρ_t); mean over completions",
        source="arXiv 2602.05261; TRL's loss_type luspo",
        aggregation="sequence_sum",
        clips="sequence_mean",
        zero_without_advantage=True,
        epsilon=0.002,
        epsilon_high=0.0025,
        clip_why="the ratio of a whole completion, per token, hardly moves",
    ),
    "reinforce": Variant(
        "grpo_core.algorithms.losses:reinforce",
        formula="−A·log π / B, on-policy",
        source="Williams 1992, section 5",
        aggregation="sequence_sum",
        zero_without_advantage=True,
    ),
    "rloo": Variant(
        "grpo_core.algorithms.losses:ppo_clip",
        summary=(
            "RLOO over tokens: summed over a completion; `seq_ppo` clips the whole completion's ratio, as "
            "TRL's trainer."
        ),
        formula="−min(ρA, clip(ρ, 1 − ε, 1 + ε_high)·A) / B, A = G/(G−1)·(r − mean(r))",
        source="arXiv 2402.14740; TRL names the aggregation so",
        aggregation="sequence_sum",
        clips="token",
        zero_without_advantage=True,
    ),
    "sapo": Variant(
        "grpo_core.algorithms.losses:sapo",
        formula=(
            "−4/τ·σ(τ·(ρ − 1))·A, τ = τ₊ where A > 0, else τ₋; mean over a completion's tokens, then over completions"
        ),
        source="arXiv 2511.20347; TRL's and verl's sapo",
        aggregation="sequence_mean",
        zero_without_advantage=True,
        scale_rewards="group",
        scale_why="SAPO divides by the standard deviation of the group, as GRPO",
    ),
    "seq_ppo": Variant(
        "grpo_core.algorithms.sequence_losses:seq_ppo",
        formula="−min(sA, clip(s, 1 − ε, 1 + ε_high)·A), s = exp(Σ_t log ρ_t); mean over completions",
        source=("PPO's clip (arXiv 1707.06347, equation 7) of a whole completion, as TRL's RLOOTrainer (2402.14740)"),
        aggregation="sequence_mean",
        clips="sequence_product",
        zero_without_advantage=True,
    ),
    "vespo": Variant(
        "grpo_core.algorithms.sequence_losses:vespo",
        formula="−sg(φ(w))·A·log π / ΣT, φ(w) = w^k·e^{λ(1−w)}, w = exp(Σ_t log ρ_t); (k, λ) by the sign of A",
        source="arXiv 2602.10693; TRL's loss_type vespo",
        aggregation="token_mean",
        zero_without_advantage=True,
    ),
}
"""Name -> the variant."""
