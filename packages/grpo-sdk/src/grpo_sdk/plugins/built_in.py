"""The algorithm variants that ship with grpo-core, one row each."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_sdk.plugins.built_in_losses import LOSSES
from grpo_sdk.plugins.variant import Variant

_KL = "grpo_core.algorithms.kl"

_CONTROLLERS = {
    "constant": Variant("grpo_core.algorithms.controllers:constant", formula="c", source="no control"),
    "decay": Variant(
        "grpo_core.algorithms.controllers:decay",
        formula="c ← max(minimum, c · 2^(−1 / half_life))",
        source="annealed regularization, as of the entropy in arXiv 1811.11214",
    ),
}
"""Of a KL penalty and of an entropy bonus alike."""

BUILT_IN: Mapping[str, Mapping[str, Variant]] = {
    "advantage": {
        "adaptive": Variant(
            "grpo_core.algorithms.advantages.baselines:adaptive",
            formula="A = r − b, b = lower median of the group if std(r) > threshold, else its mean",
            source="RookWorld's adaptive baseline",
        ),
        "adaptive_shrink": Variant(
            "grpo_core.algorithms.advantages.baselines:adaptive_shrink",
            formula="A = r − (w·mean(r of the group) + (1 − w)·b[task]), w = n/(n + kappa), b as for ema",
            source="Shrinkage of a small group's mean (James & Stein 1961) towards the task's running mean",
            needs_group=False,
        ),
        "batch_mean": Variant(
            "grpo_core.algorithms.advantages.baselines:batch_mean",
            formula="A = r − mean(r of the batch)",
            source="REINFORCE with the batch mean as baseline",
            needs_group=False,
        ),
        "bnpo": Variant(
            "grpo_core.algorithms.advantages.normalised:bnpo",
            formula=(
                "A = (r − p) / f(p; α, β), p = mean(r) of the group, f the Beta density with α = 1 + a/3, β = 1 "
                "+ b/3 and (a, b) fitted to the batch's p by moments"
            ),
            source="BNPO, arXiv 2506.02864, and its authors' code",
            scales_itself=True,
            takes_penalties=False,
            penalties_why="fits mean rewards within minimum and maximum, which a penalty would leave",
        ),
        "ema": Variant(
            "grpo_core.algorithms.advantages.baselines:ema",
            formula="A = r − b[task], then b ← (1 − alpha)·b + alpha·mean(r of the task in the batch)",
            source="REINFORCE with a moving-average baseline (Williams 1992)",
            needs_group=False,
        ),
        "gdpo": Variant(
            "grpo_core.algorithms.advantages.normalised:gdpo",
            formula=(
                "A = z(Σ w_k·z_k), z_k = (r_k − mean) / (std + epsilon) over the group, z = … / (std + epsilon) "
                "over the batch"
            ),
            source="GDPO, arXiv 2601.05242; TRL's normalize_then_sum",
            scales_itself=True,
            takes_penalties=False,
            penalties_why="sees only what each reward function gave",
        ),
        "gpg": Variant(
            "grpo_core.algorithms.advantages.baselines:gpg",
            formula="A = alpha·(r − mean(r of the group)) / f_norm, alpha = completions / those in groups that differ",
            source="GPG, arXiv 2504.02546; verl's alpha = completions / completions with a reward",
            scales_itself=True,
        ),
        "group_mean": Variant(
            "grpo_core.algorithms.advantages.baselines:group_mean",
            formula="A = r − mean(r of the group)",
            source="Dr. GRPO, arXiv 2503.20783; GRPO, arXiv 2402.03300",
        ),
        "group_median": Variant(
            "grpo_core.algorithms.advantages.baselines:group_median",
            formula="A = r − median(r of the group), of an even number the mean of the middle two",
            source="The group's mean with an estimate that outliers move less",
        ),
        "leave_one_out": Variant(
            "grpo_core.algorithms.advantages.baselines:leave_one_out",
            formula="A = r − mean(r of the others in the group) = G/(G−1)·(r − mean(r))",
            source="RLOO, arXiv 2402.14740",
        ),
        "maxrl": Variant(
            "grpo_core.algorithms.advantages.normalised:maxrl",
            formula="A = (r − mean(r)) / (mean(r) + epsilon) over the group",
            source="MaxRL, arXiv 2602.02710",
            scales_itself=True,
            takes_penalties=False,
            penalties_why="divides by the mean reward of a group, which a penalty could take to 0 or below",
        ),
        "none": Variant(
            "grpo_core.algorithms.advantages.baselines:none",
            formula="A = r",
            source="REINFORCE (Williams 1992) without a baseline",
            needs_group=False,
        ),
        "opo": Variant(
            "grpo_core.algorithms.advantages.baselines:opo",
            formula="A = r − Σ l·r / Σ l over the group, l the tokens of a completion",
            source="OPO, arXiv 2505.23585",
        ),
        "pass_at_k": Variant(
            "grpo_core.algorithms.advantages.normalised:pass_at_k",
            formula=(
                "A = (R − p) / (√(p(1 − p)) + epsilon), p = pass@k of the group = 1 − C(N−,k)/C(N,k); R = 1 "
                "where solved, else 1 − C(N−−1,k−1)/C(N−1,k−1)"
            ),
            source="Pass@k training, analytical form, arXiv 2508.10751",
            scales_itself=True,
            takes_penalties=False,
            penalties_why="sees only whether a completion is solved",
        ),
        "pass_at_k_best": Variant(
            "grpo_core.algorithms.advantages.normalised:pass_at_k_best",
            formula=(
                "A = max(r) − second(r) for the best of the group, 0 for the others; may be divided by std(r) + epsilon"
            ),
            source="Pass@k policy optimisation, arXiv 2503.19595, as in verl's grpo_passk",
            scales_itself=True,
        ),
        "reinforce_pp": Variant(
            "grpo_core.algorithms.advantages.per_token:reinforce_pp",
            formula="A = whitened over all tokens of Σ_{u≥t} γ^(u−t)·(r_u − β·KL_u)",
            source="REINFORCE++, arXiv 2501.03262",
            needs_group=False,
            per_token=True,
            scales_itself=True,
        ),
        "reinforce_pp_baseline": Variant(
            "grpo_core.algorithms.advantages.per_token:reinforce_pp_baseline",
            formula=(
                "A = whitened over all tokens of Σ_{u≥t} γ^(u−t)·(r_u − β·KL_u), the score less its group's mean first"
            ),
            source="REINFORCE++-baseline, arXiv 2501.03262",
            per_token=True,
            scales_itself=True,
        ),
        "remax": Variant(
            "grpo_core.algorithms.advantages.baselines:remax",
            formula="A = r − r(greedy completion of the prompt)",
            source="ReMax, arXiv 2310.10505",
            needs_group=False,
        ),
        "role": Variant(
            "grpo_core.algorithms.advantages.baselines:role",
            formula="A = R − b[role], then b ← alpha·b + (1 − alpha)·R, b₀ = 0, one episode after the other",
            source="Role-conditioned advantage estimation, SPIRAL, arXiv 2506.24119",
            needs_group=False,
        ),
        "value": Variant(
            "grpo_core.algorithms.advantages.per_token:value",
            formula=(
                "A = GAE over the tokens of one rollout: A_t = δ_t + γλ·A_t+1, δ_t = r_t + γ·V_t+1 − V_t; whitened"
            ),
            source="GAE, arXiv 1506.02438; PPO, arXiv 1707.06347",
            needs_group=False,
            per_token=True,
            scales_itself=True,
        ),
    },
    "entropy_controller": {
        "adaptive": Variant(
            "grpo_core.algorithms.controllers:adaptive_entropy",
            formula="c ← clip(c + delta if H < target, else c − delta); applied while H < target",
            source="arXiv 2505.22312, section 3.2.5, and its code",
        ),
        **_CONTROLLERS,
    },
    "kl": {
        "abs": Variant(f"{_KL}:abs", formula="|d|", source="verl, kl_penalty `abs`"),
        "fkl": Variant(f"{_KL}:fkl", formula="r·log r", source="importance-weighted k1 of KL(π_ref‖π)"),
        "fkl_k3": Variant(f"{_KL}:fkl_k3", formula="r·log r − r + 1", source="importance-weighted k3 of KL(π_ref‖π)"),
        "full": Variant(
            f"{_KL}:linear_full_kl",
            formula="Σ_v π log(π / π_ref), or the other direction",
            source="exact, without sampling noise",
        ),
        "jeffreys": Variant(f"{_KL}:jeffreys", formula="(r − 1)·log r / 2", source="Jeffreys 1946, halved"),
        "k1": Variant(f"{_KL}:k1", formula="d", source="Schulman 2020, joschu.net/blog/kl-approx.html"),
        "k2": Variant(f"{_KL}:k2", formula="d² / 2", source="Schulman 2020, joschu.net/blog/kl-approx.html"),
        "k3": Variant(f"{_KL}:k3", formula="exp(−d) − 1 + d", source="Schulman 2020, joschu.net/blog/kl-approx.html"),
    },
    "kl_controller": {
        **_CONTROLLERS,
        "ppo_rule": Variant(
            "grpo_core.algorithms.controllers:ppo_rule",
            formula="β ← 2β if KL > 1.5·target; β/2 if KL < target / 1.5",
            source="arXiv 1707.06347, section 4",
        ),
        "proportional": Variant(
            "grpo_core.algorithms.controllers:proportional",
            formula="β ← β·(1 + clip(KL / target − 1, ±clip)·n_steps / horizon)",
            source="arXiv 1909.08593, section 2.2",
        ),
        "step_rule": Variant(
            "grpo_core.algorithms.controllers:step_rule",
            formula="K = mean of the last 100 KLs; β ← clip(1.5β if K > 2·target; 0.8β if K < target / 2)",
            source="RookWorld's adaptive KL",
        ),
    },
    "loss": LOSSES,
    "engine": {
        "native": Variant(
            "grpo_core.engines.native:NativeEngine", summary="Samples from the weights in training, in this process."
        ),
        "vllm": Variant(
            "grpo_core.engines.servers.vllm:open_vllm",
            summary="vLLM, in a server beside the trainer or at engine.url; weights are sent after every update.",
            has_own_numerics=True,
        ),
    },
    "judge": {
        "classifier": Variant(
            "grpo_sdk.judges.process:open_classifier",
            summary="A sequence classifier or reward model of transformers, in a process of its own.",
        ),
        "endpoint": Variant("grpo_sdk.judges.backend:EndpointBackend", summary="An OpenAI-compatible endpoint."),
        "local": Variant(
            "grpo_sdk.judges.process:open_local", summary="A model of this machine, in a process of its own."
        ),
    },
    "metric": {},
    "schedule": {
        "constant": Variant(
            "grpo_core.algorithms.schedules:constant", formula="1, after linear warm-up", source="no decay"
        ),
        "cosine": Variant(
            "grpo_core.algorithms.schedules:cosine",
            formula="0.1 + 0.9·(1 + cos(π·progress)) / 2, after linear warm-up",
            source="arXiv 1608.03983",
        ),
        "none": Variant("grpo_core.algorithms.schedules:none", formula="1", source="no schedule"),
    },
    "tracker": {
        "aim": Variant("grpo_core.tracking.accelerate:Aim"),
        "clearml": Variant("grpo_core.tracking.accelerate:ClearML"),
        "comet_ml": Variant("grpo_core.tracking.accelerate:Comet"),
        "mlflow": Variant("grpo_core.tracking.accelerate:MLflow"),
        "swanlab": Variant("grpo_core.tracking.accelerate:SwanLab"),
        "tensorboard": Variant("grpo_core.tracking.tensorboard:TensorBoard"),
        "trackio": Variant("grpo_core.tracking.trackio:Trackio"),
        "wandb": Variant("grpo_core.tracking.wandb:WandB"),
    },
}
"""Kind -> name -> the variant."""


def as_variant(given: Variant | str) -> Variant:
    """A variant, of which a plain "module:function" states nothing else."""
    return given if isinstance(given, Variant) else Variant(given)
