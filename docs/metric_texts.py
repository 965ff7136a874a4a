"""What the page of metrics says beside the catalogue of a step's metrics: headings, evaluations, names of others."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_core.training.catalogue import Metric

SECTIONS = {
    "Rewards and completions": "N completions in P groups of G; rates are over completions that were scored.",
    "Each task": "For each task NAME, by the name it has in the mixture, and each of its reward functions.",
    "The update": (
        "Means over the optimizer steps of the batch. A row without any gradient is not computed, so the numbers of "
        "tokens, here and below, are over the rows that have one."
    ),
    "How far from the policy that sampled": (
        "ρ = π/π_old of a token: the policy that is trained over the one that sampled. With one optimizer step per "
        "batch both are the same, every ratio is exactly 1 and nothing is clipped."
    ),
    "KL and entropy": (
        "In nats per token. The KL is against the starting policy, and needs `trainer.beta` above 0 or "
        "`trainer.kl_metric`."
    ),
    "Dynamic sampling": "With `trainer.dynamic_sampling`.",
    "Probes": (
        "They leave the weights bit-identical. |G|² is the squared norm of the true gradient, tr Σ the variance of "
        "one prompt's gradient; a single estimate of either is very noisy and may be negative."
    ),
    "Judges": (
        "With a task that has a judge. Of all judges and processes together, since the step before; with `total_` "
        "since the run was started or resumed. Not deterministic: a verdict that is in the cache costs nothing."
    ),
    "Time and memory": "Not deterministic: two equal runs differ here, and in what judges cost, and nowhere else.",
}
"""Heading -> what is common to its metrics, in the order of the page."""

EVALUATION_SECTION = (
    "Evaluations",
    "For each evaluated task NAME, in a line of `logs/evaluations.jsonl` and in trackers; rates and means are over "
    "rows. An estimate X has its 95% interval as `X_ci_low` and `X_ci_high`; that of `solved_rate`, and those inside "
    "`parts`, `surprisal`, `entropy` and `by_difficulty`, are called `ci_low` and `ci_high`. Read them first: 2 of 5 "
    "rows are anything from 0.12 to 0.77. Beside these, a task's own metrics are logged as `eval/NAME/METRIC`, and "
    "what it reports under the names that it gives.",
)

_OF_EVALUATIONS = (
    (
        "solved_rate",
        "mean over rows of the share of a row's completions that are solved",
        "rises over its value at step 0, by more than the intervals are wide",
    ),
    ("ci_low", "lower end of [its interval](../how-to/evaluate.md#intervals)", "rises"),
    ("ci_high", "upper end", "near `ci_low`; four times the rows halve the distance"),
    ("n", "rows with a scored completion", "all that were asked for"),
    ("abstained", "completions that could not be scored", "0; they leave every rate"),
    (
        "pass@K",
        "mean over rows of 1 − C(n−c, K) / C(n, K), c of n completions solved; from two completions a row on",
        "rises at K = 1; falling at large K means that diversity is lost",
    ),
    ("pass@K_n", "rows with K scored completions, over which it is", "as `n`; those left out may be harder"),
    ("mean_reward", "mean of the task's value", "rises; with a flat `solved_rate` the reward is hacked"),
    ("parts/FUNCTION/mean", "mean raw value of a reward function", "all of them rise"),
    ("valid_rate", "share in which the validator found an answer", "near 1"),
    ("mean_length", "tokens, end-of-sequence included", "stable"),
    ("std_length", "their standard deviation", "above 0 unless every answer is as long"),
    ("min_length", "of the shortest", "above 1"),
    ("max_length", "of the longest", "below `eval.max_completion_length`"),
    ("truncated_frac", "share that the length limit ended", "below 0.1"),
    ("think_rate", "share with `</think>`, where any completion has it", "near 1"),
    ("think_length", "mean tokens before `</think>`, of completions that have it", "stable"),
    (
        "surprisal/mean",
        "−log π of each token at temperature 1, teacher-forced, in nats; mean of each completion, then over them",
        "falls slowly",
    ),
    ("surprisal/std", "mean of the standard deviations within a completion", "as at the start"),
    ("surprisal/max", "of the most surprising token of all", "below 20"),
    ("surprisal/p95", "mean of the 95th percentiles within a completion", "falls slowly"),
    (
        "entropy/mean",
        "−Σ π log π of each position over the whole vocabulary, likewise",
        "falls slowly; near 0 means that exploration has ended",
    ),
    ("entropy/std", "mean of the standard deviations within a completion", "as at the start"),
    ("entropy/max", "of the most open position of all", "above `entropy/mean`"),
    ("entropy/p95", "mean of the 95th percentiles within a completion", "falls slowly"),
    (
        "by_difficulty/LEVEL/solved_rate",
        "of the rows of one difficulty, or of a quartile of them",
        "rises, the easy levels first",
    ),
    ("by_difficulty/LEVEL/n", "rows of that difficulty", "30, for an interval that says something"),
    ("by_difficulty/LEVEL/mean_reward", "mean value of that difficulty", "rises"),
    (
        "delta",
        "mean over rows of the solved share less that of the starting model, paired; not at the start",
        "its interval lies above 0: the training has worked",
    ),
    ("delta_n", "rows that both have", "as `n`"),
    ("reward_delta", "likewise for the reward", "its interval lies above 0"),
    ("seconds", "of the whole evaluation, on the slowest rank", ""),
    ("samples_per_s", "completions / seconds", ""),
    ("tokens_per_s", "completion tokens / seconds", ""),
    ("peak_memory_mib", "most memory so far: of the accelerator, else of the process; of any rank", ""),
)
"""Name, formula, what is healthy."""

EVALUATIONS: tuple[Metric, ...] = tuple(
    Metric(f"eval/NAME/{name}", formula, healthy, EVALUATION_SECTION[0]) for name, formula, healthy in _OF_EVALUATIONS
)
"""Metrics of an evaluation, in the order of the page."""

NOT_KEPT: Mapping[str, str] = {
    "entropy_loss": "it weighs each token by its probability; `entropy` is exact",
    "gns_consistency_ratio": "it is 1 by construction; compare `gns/b_simple` with `gns_probe/b_simple`",
    "gns_ess": "it is of the loss's weights; `ess` is of the importance weights",
    "gns_mu": "its unit is a micro-batch; `gns/b_simple` counts prompts",
    "kl_reverse": "one estimator is logged as `kl`: `trainer.kl=fkl_k3` for KL(π_ref‖π)",
    "kl_symmetric": "as `kl_reverse`: `trainer.kl=jeffreys`",
    "logr_std": "`ratio_std`, `ratio_p90` and `ratio_p99` say how far the ratios spread",
    "think_len": "logs/rollouts.jsonl has `think_tokens` of each completion, evaluations `think_length`",
}
"""Names of other systems without a counterpart here -> the reason, and which metric to use instead."""
