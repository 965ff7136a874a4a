"""Names of our metrics in the reference systems.

A name is listed only if it denotes the same quantity, or its correct form; `note` says where the number differs. Names
that are equal in both (`ratio_mean`, `kl_coef`, `grad_norm`, …) are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetricAlias:
    """Name of a metric in another system.

    Attributes:
        alias: Name in the other system.
        name: Our name, as in docs/reference/metrics.md.
        system: The other system.
        note: How its number differs; empty where it does not.
    """

    alias: str
    name: str
    system: str
    note: str = ""


_ROOKWORLD, _PRACTICE, _GAMES, _TRL = "RookWorld", "RL_Practice", "rl_coding_games", "TRL"

ALIASES: tuple[MetricAlias, ...] = (
    MetricAlias("total_loss", "loss", _ROOKWORLD),
    MetricAlias("pg_loss", "loss/policy", _ROOKWORLD),
    MetricAlias("value_loss", "loss/value", _ROOKWORLD),
    MetricAlias("kl_div", "kl", _ROOKWORLD, "theirs weighs each token by its probability, which estimates no KL"),
    MetricAlias("kl_forward", "kl/k3", _ROOKWORLD, "KL(π‖π_ref) both; theirs as `kl_div`"),
    MetricAlias(
        "clipped_frac", "clip_ratio/region", _ROOKWORLD, "theirs counts ratios to the reference outside [½, 2]"
    ),
    MetricAlias("mean_reward", "reward", _ROOKWORLD),
    MetricAlias("std_reward", "reward_std", _ROOKWORLD),
    MetricAlias("min_reward", "reward_min", _ROOKWORLD),
    MetricAlias("max_reward", "reward_max", _ROOKWORLD),
    MetricAlias("format_valid_rate", "valid_rate", _ROOKWORLD),
    MetricAlias("r_mean", "reward", _PRACTICE),
    MetricAlias("tag_correct", "valid_rate", _PRACTICE, "share with an answer where the task wants it: in its tags"),
    MetricAlias("ratio_clip_frac", "ratio_clamped", _PRACTICE, "theirs is above |log ρ| = 8, ours above 20"),
    MetricAlias("gns_G2", "gns/g2", _PRACTICE, "theirs is biased upwards"),
    MetricAlias("gns_tr_sigma", "gns/trace", _PRACTICE, "theirs is 0 whenever gradients are accumulated"),
    MetricAlias("Bsimple_from_mu", "gns/b_simple", _PRACTICE, "theirs as `gns_tr_sigma`"),
    MetricAlias("gns_y_small", "gns_probe/small_squared_norm", _PRACTICE),
    MetricAlias("gns_y_large", "gns_probe/big_squared_norm", _PRACTICE),
    MetricAlias("gns_B_small", "gns_probe/b_small", _PRACTICE),
    MetricAlias("gns_B_large", "gns_probe/b_big", _PRACTICE),
    MetricAlias("gns_a_hat", "gns_probe/g2", _PRACTICE),
    MetricAlias("gns_c_hat", "gns_probe/trace", _PRACTICE),
    MetricAlias("gns_B_simple", "gns_probe/b_simple", _PRACTICE),
    MetricAlias("reward/avg_batch_reward", "reward", _GAMES),
    MetricAlias("games_won_player_0", "games/won_player_0", _GAMES),
    MetricAlias("games_won_player_1", "games/won_player_1", _GAMES),
    MetricAlias("games_drawn", "games/drawn", _GAMES),
    MetricAlias("invalid_moves", "games/invalid_moves", _GAMES),
    MetricAlias("avg_game_length", "games/avg_length", _GAMES),
    MetricAlias("execution/avg_batch_reward", "reward", _GAMES),
    MetricAlias("execution/success_rate", "solved_rate", _GAMES),
    MetricAlias("train/loss", "loss", _TRL),
    MetricAlias("train/grad_norm", "grad_norm", _TRL),
    MetricAlias("train/learning_rate", "learning_rate", _TRL),
    MetricAlias("train/reward", "reward", _TRL),
    MetricAlias("train/reward_std", "reward_std", _TRL),
    MetricAlias("train/frac_reward_zero_std", "frac_reward_zero_std", _TRL),
    MetricAlias("train/kl", "kl", _TRL),
    MetricAlias("train/entropy", "entropy", _TRL),
    MetricAlias("train/completions/mean_length", "completions/mean_length", _TRL),
    MetricAlias("train/completions/clipped_ratio", "completions/truncated_frac", _TRL),
    MetricAlias("train/clip_ratio/region_mean", "clip_ratio/region", _TRL),
    MetricAlias("train/sampling/sampling_logp_difference/mean", "sampler_mismatch", _TRL),
)
"""Every alias, by system."""


def with_reference_names(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics, repeated under their other names, except names that a task logs itself."""
    return {**{each.alias: metrics[each.name] for each in ALIASES if each.name in metrics}, **metrics}


def aliases_of(name: str) -> tuple[str, ...]:
    """Return the other names of one of our metrics."""
    return tuple(each.alias for each in ALIASES if each.name == name)
