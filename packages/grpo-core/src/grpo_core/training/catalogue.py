"""Every metric that is logged, once: docs/reference/metrics.md is written from here, and a test holds runs to it."""

from __future__ import annotations

from dataclasses import dataclass

JUDGES, TIME = "Judges", "Time and memory"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a line of `logs/train_log.jsonl` or `logs/evaluations.jsonl`.

    Attributes:
        name: With `NAME` for a task's label, `FUNCTION` for a reward function, `K` for a number of completions and
            `LEVEL` for a difficulty.
        formula: What it is, and which setting has it logged where it is not always.
        healthy: The range or direction to look for; empty where it depends on the machine.
        section: Heading of the page.
    """

    name: str
    formula: str
    healthy: str
    section: str

    @property
    def deterministic(self) -> bool:
        """Whether two equal runs log the same."""
        return self.section not in (JUDGES, TIME)


def _section(section: str, *metrics: tuple[str, str] | tuple[str, str, str]) -> tuple[Metric, ...]:
    """The metrics of one heading: name, formula and, where there is such a thing, what is healthy."""
    return tuple(Metric(name, formula, "".join(healthy), section) for name, formula, *healthy in metrics)


OF_JUDGES = (
    ("verdicts", "verdicts given, by a model or from the cache"),
    ("cached", "those of them that were known already"),
    ("abstained", "questions without a verdict, which should be 0: their completions leave the batch"),
    ("requests", "requests sent, repetitions included"),
    ("unreadable", "replies that held no verdict, and were asked again; many mean that the model is too weak to judge"),
    ("input_tokens", "tokens of prompts, as the endpoint counts them, else estimated"),
    ("output_tokens", "tokens of replies, likewise"),
    ("cost", "by the prices in the task; 0 without prices"),
)
"""Name and formula of each count, logged as `judge/NAME` of a step and `judge/total_NAME` of the run."""

CATALOGUE: tuple[Metric, ...] = (
    *_section(
        "Rewards and completions",
        ("reward", "mean value of the scored completions, with the soft overlong penalty where configured", "rises"),
        ("reward_min", "the lowest", "stays where the task's scale begins"),
        ("reward_max", "the highest", "reaches the task's maximum sometimes, or there is nothing to learn from"),
        ("reward_std", "their standard deviation", "not 0: without differences nothing is learnt"),
        ("solved_rate", "share solved", "rises; the number to believe, since rewards can be hacked"),
        (
            "valid_rate",
            "share in which the validator found an answer",
            "near 1 soon; if it stays low, the prompt does not say what is wanted",
        ),
        (
            "abstained",
            "completions that could not be scored",
            "0; anything else is a bug of the task or the machine, and a warning names it",
        ),
        (
            "frac_reward_zero_std",
            "share of groups whose rewards are all equal: they have no gradient",
            "0.1 to 0.5; near 1 means too easy, too hard, or too few generations",
        ),
        ("advantage_mean", "mean of the advantages", "near 0 with a baseline of the batch itself"),
        ("advantage_std", "standard deviation of the advantages", "not 0"),
        (
            "baseline/roles_mse",
            "mean of (R − b)², b the running mean of the seat; with `trainer.baseline=role`, in games",
            "below `baseline/pooled_mse`, by the square of half of what the seats' returns differ by",
        ),
        ("baseline/pooled_mse", "the same with one running mean for all seats, kept beside it to compare", "as above"),
        (
            "completions/mean_length",
            "tokens, end-of-sequence included",
            "stable; steady growth with constant reward is padding",
        ),
        ("completions/min_length", "tokens of the shortest", "above 1: a lone end-of-sequence answers nothing"),
        ("completions/max_length", "tokens of the longest", "below `trainer.max_completion_length`"),
        ("completions/truncated_frac", "share that ended at the length limit", "below 0.1"),
        (
            "completions/similarity",
            "mean of 1 − edit distance / longer length over pairs of completions of different prompts: the first of "
            "each of 16 prompts, 500 characters; left out for one prompt",
            "as at the start; near 1 where every prompt gets the same answer",
        ),
        ("completions/distinct_frac", "mean over groups of (different texts − 1) / (G − 1)", "above 0.2"),
    ),
    *_section(
        "Each task",
        ("task/NAME/reward", "mean value", "as `reward`"),
        ("task/NAME/solved_rate", "share solved", "as `solved_rate`"),
        ("task/NAME/valid_rate", "share with an answer", "as `valid_rate`"),
        ("task/NAME/abstained", "completions that could not be scored", "0"),
        ("task/NAME/frac_reward_zero_std", "share of its groups with equal rewards", "as `frac_reward_zero_std`"),
        (
            "task/NAME/part/FUNCTION",
            "mean raw value of a reward function, before its weight; with tools also of `n_calls`, the calls of an "
            "episode, and of `valid_calls`, the share of them that a tool has answered",
            "all of them rise; one that rises alone is being hacked",
        ),
        (
            "task/NAME/part_correlation/FUNCTION",
            "correlation of a reward function with the value over the completions; left out where either is constant",
            "above 0; of a watched part (weight 0) that falls, the reward no longer means what it should",
        ),
    ),
    *_section(
        "The update",
        ("loss", "all that was differentiated; near 0 on policy", "means little by itself"),
        ("loss/policy", "the policy loss alone", "means little by itself"),
        ("loss/value", "½·max(clipped, unclipped) squared error of the values; with `trainer.value_head`", "falls"),
        ("grad_norm", "global norm before clipping", "around or below `trainer.max_grad_norm`"),
        ("learning_rate", "after warm-up and schedule", "as planned"),
        ("skipped_updates", "optimizer steps skipped so far, because loss or gradient was not finite", "0"),
        (
            "loss_scale",
            "factor of the loss in float16, taken out of the gradients again; halved by each step that overflows",
            "settles after a few skipped steps",
        ),
    ),
    *_section(
        "How far from the policy that sampled",
        ("ratio_mean", "mean of ρ", "1 exactly on policy; 0.9 to 1.1 otherwise"),
        ("ratio_std", "standard deviation of ρ", "0 on policy; below 0.3 otherwise"),
        ("ratio_median", "median of ρ", "1 on policy; near 1 otherwise"),
        ("ratio_p90", "90th percentile of ρ", "1 on policy; below 1 + ε otherwise"),
        ("ratio_p99", "99th percentile of ρ", "1 on policy; below 2 otherwise"),
        ("ratio_max", "largest ρ", "1 on policy; below 10 otherwise"),
        ("ratio_outliers", "share of tokens with ρ < 0.5 or ρ > 2", "0 on policy; below 0.01 otherwise"),
        ("ratio_clamped", "share of tokens with |log ρ| above 20, where it is clamped before exp", "0"),
        (
            "clip_ratio/low",
            "share of tokens with A < 0 and ρ < 1 − ε, which get no gradient; for losses with an `epsilon`",
            "0 on policy; below 0.1 otherwise",
        ),
        (
            "clip_ratio/high",
            "share of tokens with A > 0 and ρ > 1 + ε_high, which get no gradient",
            "0 on policy; below 0.1 otherwise",
        ),
        ("clip_ratio/region", "share of tokens clipped either way", "0 on policy; below 0.2 otherwise"),
        (
            "ess",
            "effective sample size (Σw)² / Σw² over the number of completions, w = Π ρ of one",
            "1 on policy; above 0.5: below it the batch is too old",
        ),
        (
            "sampler_mismatch",
            "mean of |log π of the trainer − log π of the sampler| per token",
            "below 0.01, and in float32 below 1e-4; more means that sampler and trainer disagree",
        ),
        (
            "rollout_weight",
            "mean factor of the policy loss per token; with `trainer.rollout_correction`, `off_policy_mask_threshold` "
            "or `top_entropy_quantile`",
            "near 1 for a correction; the quantile itself for `top_entropy_quantile`",
        ),
    ),
    *_section(
        "KL and entropy",
        ("kl", "mean of the estimator `trainer.kl`; with `trainer.beta` above 0", "grows slowly"),
        (
            "kl/k1",
            "mean of d = log π − log π_ref; where the KL is in the loss, unless it is `full`",
            "near `kl/k3`; it may be negative by chance",
        ),
        (
            "kl/k3",
            "mean of e^(−d) − 1 + d; where the KL is in the loss, unless it is `full`",
            "grows slowly; much above `kl/k1` means a few tokens that the reference finds far likelier",
        ),
        (
            "kl_coef",
            "β as used, after controller and warm-up; with `trainer.beta` above 0",
            "settles; at a bound of its controller the target cannot be met",
        ),
        (
            "entropy",
            "exact, over the whole vocabulary, of the computed tokens",
            "falls slowly; near 0 early means that exploration has ended",
        ),
        (
            "entropy/sampled",
            "−mean of log π of the sampler, over every completion: unbiased where top-p, top-k and min-p cut nothing "
            "off",
            "near `entropy`",
        ),
        ("entropy_coef", "c as used, after its controller; with `trainer.entropy_coef` above 0", "settles"),
    ),
    *_section(
        "Dynamic sampling",
        ("dynamic_sampling/rejected", "groups thrown away, because their rewards hardly differ", "below P"),
        (
            "dynamic_sampling/attempts",
            "times that other groups were drawn in their place",
            "below 3; else most completions are made for nothing",
        ),
        (
            "dynamic_sampling/unfilled",
            "groups trained on although their rewards hardly differ, because the attempts were used up",
            "0",
        ),
    ),
    *_section(
        "Probes",
        (
            "gns/g2",
            "|G|² = (P·‖g_P‖² − b·mean ‖g_b‖²) / (P − b), from the step's own forward passes of b = "
            "`trainer.micro_batch_prompts` of its P prompts; with `trainer.gradient_noise_scale`",
            "above 0 on average",
        ),
        ("gns/trace", "tr Σ = (mean ‖g_b‖² − ‖g_P‖²) / (1/b − 1/P)", "above 0 on average"),
        (
            "gns/b_simple",
            "tr Σ / |G|², from running means of both: the number of prompts at which noise and signal are equal; with "
            "`trainer.gradient_noise_scale`",
            "near `trainer.prompts_per_step`; far above it, larger batches learn more per step, far below they waste "
            "work",
        ),
        (
            "gns_probe/small_squared_norm",
            "‖g_b‖² of the first `trainer.gns_probe_prompts` prompts; every `trainer.gns_probe_steps`",
            "above `grad_norm`² on average",
        ),
        ("gns_probe/big_squared_norm", "‖g_B‖² of the whole step, before clipping", "`grad_norm`²"),
        ("gns_probe/b_small", "prompts in the small batch", "as configured"),
        ("gns_probe/b_big", "prompts in the step", "as configured"),
        ("gns_probe/g2", "|G|² from these two batches", "above 0 on average"),
        ("gns_probe/trace", "tr Σ from these two batches", "above 0 on average"),
        ("gns_probe/b_simple", "tr Σ / |G|², from running means of both", "near `gns/b_simple`"),
        (
            "entropy_probe/predicted_change",
            "change of a completion's entropy that the step will cause, in nats, to first order in Adam's metric; "
            "every `trainer.entropy_probe_steps`, from the second optimizer step on",
            "small and of either sign; always negative means that exploration is ending",
        ),
    ),
    *_section(
        JUDGES,
        *((f"judge/{total}{name}", formula) for total in ("", "total_") for name, formula in OF_JUDGES),
        ("judge/mean_s", "seconds from asking to the reply, waiting for limits included"),
    ),
    *_section(
        TIME,
        ("tokens_per_s", "completion tokens of the step / its seconds"),
        ("generate_s", "seconds of sampling, with the scoring that overlaps it"),
        ("tools_s", "seconds that tools ran, those of all episodes added up; of tasks with tools"),
        (
            "tools/sampler_idle",
            "share of `generate_s` in which nothing was sampled, since every episode waited for its tools, in this "
            "process; of tasks with tools, with `trainer.schedule=arrival`",
        ),
        (
            "tools/workers_idle",
            "share of their time in which the processes of tools ran none: 1 − `tools_s` / (processes · `generate_s`); "
            "likewise. Near 0, calls wait for each other, and more `scoring.tool_workers` help",
        ),
        ("update_s", "seconds of the optimizer steps"),
        (
            "overlap/sampler_idle",
            "share of the time beside the update in which the sampler had finished; with `trainer.off_policy_steps`",
        ),
        (
            "overlap/trainer_idle",
            "share of the time beside sampling in which the update had finished; with `trainer.off_policy_steps`",
        ),
        ("generate_tokens_per_s", "completion tokens of the step / `generate_s`"),
        ("update_tokens_per_s", "completion tokens of the step / `update_s`"),
        ("step_s", "seconds of the whole step"),
        (
            "memory/generate_mib",
            "most memory while sampling and scoring: allocated on a CUDA device, else the process's resident set, "
            "which keeps what was freed; its peak so far on systems other than Linux, which cannot reset it",
        ),
        ("memory/update_mib", "most memory in the passes without gradient and the optimizer steps, measured likewise"),
        ("peak_memory_mib", "most memory so far: of the accelerator, else of the process"),
    ),
)
"""Metrics of a step, in the order of the page."""

_STEP_NAMES = frozenset(metric.name for metric in CATALOGUE)


def owner_of(name: str) -> str:
    """Return `grpo-core` for the name of one of its own metrics, else an empty string."""
    return "grpo-core" if name.startswith(("eval/", "task/")) or name in _STEP_NAMES else ""
