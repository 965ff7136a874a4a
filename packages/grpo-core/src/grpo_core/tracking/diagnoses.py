"""Every diagnosis of a run, with its threshold and where that comes from; docs/reference/warnings.md lists them."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterator

from grpo_core.tracking import advice
from grpo_core.tracking.advice import SOLVED
from grpo_core.tracking.diagnosis import Diagnosis, History, Observation, above, whole_run
from grpo_core.tracking.hacking import SIGNS
from grpo_sdk.plugins import variants as registry

DEFAULT_KL_TARGET = 0.05
"""Nats per token, for runs without a KL controller: five times the controllers' default."""

MIN_ENTROPY = 0.1
"""Nats per token above which no entropy has collapsed."""

UNSCALED = 1.0
"""Loss scale above which the scale is still being searched, by skipping steps that overflow."""

STARTING_STEPS = 3
"""Steps whose mean is the initial entropy."""

CLEAR_SHARE = 0.5
"""Part of a limit below which another task of a mixture has a signal."""


def _all_equal(history: History, diagnosis: Diagnosis) -> Iterator[Observation]:
    low, high = history.value("reward_min"), history.value("reward_max")
    if math.isfinite(high - low):
        equal = high - low <= diagnosis.threshold
        yield "", f"all completions earn the same, {high:g}{diagnosis.since}." if equal else ""


def _teach_nothing(value: float, history: History, threshold: float) -> bool:
    """Whether many groups have equal rewards, although some completions earn more than others."""
    compares = registry.get("advantage", history.config.trainer.baseline).needs_group  # else equal groups teach, too
    differs = history.value("reward_max") != history.value("reward_min")
    solved = history.metrics.get("solved_rate", 0.0)  # explains as many equal groups: nothing is wrong with these
    return compares and differs and value > max(threshold, solved)


def _no_gradient(history: History, diagnosis: Diagnosis) -> Iterator[Observation]:
    value = history.value("grad_norm")
    is_explained = history.value("frac_reward_zero_std") == 1 or history.value("learning_rate") == 0
    if math.isfinite(value) and not (value <= diagnosis.threshold and is_explained):
        yield "", f"the gradient is exactly 0{diagnosis.since}." if value <= diagnosis.threshold else ""


def _skips(value: float, history: History, threshold: float) -> bool:
    """Whether steps are skipped for another reason than the search for the float16 loss scale."""
    grew = value - history.previous.get("skipped_updates", 0.0) > threshold
    return grew and history.metrics.get("loss_scale", 0.0) <= UNSCALED


def _abstained(value: float, history: History, diagnosis: Diagnosis) -> str:
    counts = {label: history.metrics.get(f"task/{label}/abstained", 0) for label in _labels(history)}
    named = ", ".join(f"{label}: {count:.0f}" for label, count in counts.items() if count > 0)
    return f"{value:.0f} completions could not be scored{f' ({named})' if named else ''}; they are left out."


def _labels(history: History) -> list[str]:
    ends = ("task/", "/abstained")
    names = [name for name in history.metrics if name.startswith(ends[0]) and name.endswith(ends[1])]
    return [name.removeprefix(ends[0]).removesuffix(ends[1]) for name in names]


def _never_valid(history: History, diagnosis: Diagnosis) -> Iterator[Observation]:
    for label in _labels(history):
        rate = history.value(f"task/{label}/valid_rate")
        if math.isfinite(rate) and math.isfinite(history.value(f"task/{label}/reward")):  # some were scored
            seen = f"task {label}: the validator finds an answer in {rate:.0%} of the completions{diagnosis.since}."
            yield label, seen if rate < diagnosis.threshold else ""


def _without_signal(history: History, diagnosis: Diagnosis) -> Iterator[Observation]:
    trends = {label: history.trends.get(f"task/{label}/frac_reward_zero_std") for label in _labels(history)}
    shares = {label: statistics.fmean(each.newest or each.first) for label, each in trends.items() if each}
    if not registry.get("advantage", history.config.trainer.baseline).needs_group:
        return
    for label, share in shares.items():
        others = [other for name, other in shares.items() if name != label]
        if not others or f"task/{label}/reward" not in history.metrics:
            continue
        alone = share >= diagnosis.threshold and min(others) < diagnosis.threshold * CLEAR_SHARE
        solved = history.metrics.get(f"task/{label}/solved_rate", math.nan)
        equal = f"{share:.0%} of its groups have equal rewards{diagnosis.since} (solved {solved:.2f})"
        yield label, f"task {label}: {equal}, while the other tasks of the mixture learn." if alone else ""


def _truncated(value: float, history: History, diagnosis: Diagnosis) -> str:
    what = "every completion" if value == 1 else f"{value:.0%} of the completions"
    limit = history.config.trainer.max_completion_length
    return f"{what} hit trainer.max_completion_length={limit}{diagnosis.since}."


def _collapsed(value: float, history: History, share: float) -> bool:
    trend = history.trends.get("entropy") or history.trends["entropy/sampled"]
    start = statistics.fmean(trend.first[:STARTING_STEPS])
    return value < MIN_ENTROPY and value < share * start and not history.value("solved_rate") >= SOLVED


def _spikes(value: float, history: History, factor: float) -> bool:
    trend = history.trend("grad_norm")
    usual = statistics.median(trend.newest) if trend is not None else math.inf
    return usual > 0 and value > factor * usual and value > history.config.trainer.max_grad_norm


def _spike(value: float, history: History, diagnosis: Diagnosis) -> str:
    usual = statistics.median(history.trends["grad_norm"].newest)
    return f"the gradient norm is {value:.3g}, {value / usual:.0f} times the median of the steps before ({usual:.3g})."


DIAGNOSES: tuple[Diagnosis, ...] = (
    Diagnosis(
        "all-rewards-equal",
        "all completions of the first batch (if it has 64 or more) earn the same; later `reward_max` − `reward_min` "
        "is at most {}",
        0.0,
        "of 64 completions of which 1 in 20 would differ, all are equal in 4 of 100 batches",
        _all_equal,
        "GRPO learns from how completions differ, so there is nothing to learn from.",
        lambda history, about: advice.equal_rewards(history),
        steps=3,
    ),
    Diagnosis(
        "equal-rewards-in-groups",
        "`frac_reward_zero_std` is above {} and above `solved_rate`, with a baseline that compares completions",
        0.5,
        "more than half of what is sampled has no gradient; DAPO (arXiv 2503.14476) filters such groups",
        whole_run(_teach_nothing, "{value:.0%} of the groups have equal rewards{rule.since}.", "frac_reward_zero_std"),
        "A group of equal rewards has no gradient: its completions are paid for and teach nothing.",
        lambda history, about: advice.equal_rewards(history),
        steps=5,
    ),
    Diagnosis(
        "zero-gradient",
        "`grad_norm` is {}, and neither equal rewards nor the learning rate explain it",
        0.0,
        "exactly 0 has a cause other than chance",
        _no_gradient,
        "The weights do not change: nothing is learnt.",
        lambda history, about: advice.no_gradient(history),
        steps=3,
    ),
    Diagnosis(
        "learning-rate-zero",
        "`learning_rate` is {}",
        0.0,
        "a schedule may touch 0 in its first or last step, and not longer",
        whole_run(
            lambda value, history, threshold: value <= threshold, "the learning rate is 0{rule.since}.", "learning_rate"
        ),
        "The weights do not change: nothing is learnt.",
        lambda history, about: (
            f"raise trainer.learning_rate (now {history.config.trainer.learning_rate:g}), or check the schedule "
            f"trainer.lr_scheduler_type={history.config.trainer.lr_scheduler_type} and its trainer.warmup_steps."
        ),
        steps=3,
    ),
    Diagnosis(
        "skipped-updates",
        "`skipped_updates` has grown by more than {}, while the loss scale of float16 is not being searched",
        0.0,
        "a step is skipped only where loss or gradient is not finite",
        whole_run(_skips, "{value:.0f} optimizer steps were skipped so far: not finite.", "skipped_updates"),
        "Loss or gradient was infinite or no number: the step is too large, or the precision too low.",
        lambda history, about: advice.skipped(history),
    ),
    Diagnosis(
        "abstained",
        "`abstained` is above {}",
        0.0,
        "a completion is left unscored only by a bug, a limit or a failing machine",
        whole_run(above, _abstained, "abstained"),
        "It is a bug of the task or a limit that is too low, and a policy can learn to provoke it.",
        lambda history, about: (
            "see which: grpo rollouts RUN --abstained. The limits are scoring.timeout_s and scoring.memory_mib "
            f"(now {history.config.scoring.memory_mib})."
        ),
    ),
    Diagnosis(
        "answers-invalid",
        "`task/NAME/valid_rate` is below {}",
        0.1,
        "fewer than one completion in a group of eight can earn by its answer",
        _never_valid,
        "Rewards of an answer are never earned, so the form of the answer is all that can be learnt.",
        lambda history, about: (
            f"compare prompt and validator with what the model writes: grpo rollouts RUN --task {about}; grpo sample "
            f"{shlex.quote(advice.spec_of(history, about))} shows golds that pass. Say the form in the prompt, show "
            f"examples, reward the form a little, or fine-tune first: {advice.warm_start()}."
        ),
        steps=10,
    ),
    Diagnosis(
        "task-without-signal",
        "of the groups of one task of a mixture at least {} have equal rewards, and of another less than half as many",
        0.95,
        "of the newest ten logged steps; below it a group in twenty teaches",
        _without_signal,
        "Its completions are sampled and scored for nothing, and its share of the batch is lost for the others.",
        lambda history, about: advice.equal_rewards_of(history, about),
        steps=10,
    ),
    Diagnosis(
        "identical-completions",
        "`completions/distinct_frac` is below {}, and less than 0.9 is solved",
        0.05,
        "two different answers in a group of eight, as to a yes-or-no question, make 0.14",
        whole_run(
            lambda value, history, limit: value < limit and not history.value("solved_rate") >= SOLVED,
            "the completions of a prompt are identical{rule.since} (distinct {value:.0%}).",
            "completions/distinct_frac",
        ),
        "Without different completions there are no better ones to learn from.",
        lambda history, about: advice.more_diversity(history),
        steps=5,
    ),
    Diagnosis(
        "truncated",
        "`completions/truncated_frac` is above {}",
        0.25,
        "the reward of a quarter depends on length rather than on quality",
        whole_run(above, _truncated, "completions/truncated_frac"),
        "Truncated completions are scored without their end, which is where the answer stands.",
        lambda history, about: advice.truncation(history),
        steps=3,
    ),
    Diagnosis(
        "empty-completions",
        "`completions/max_length` is at most {}, and not by the length limit",
        1.0,
        "one token is the end of the text alone",
        whole_run(
            lambda value, history, limit: value <= limit and history.value("completions/truncated_frac") < 1,
            "every completion is empty{rule.since}: the model ends it at once.",
            "completions/max_length",
        ),
        "There is no answer to score.",
        lambda history, about: advice.empty(history),
        steps=3,
    ),
    Diagnosis(
        "kl-high",
        "`kl/k3`, else `kl`, is above {} × the controller's target; without a controller the target counts as 0.05",
        5.0,
        "a controller corrects twice the target by itself, but no longer this much",
        whole_run(
            lambda value, history, factor: value > factor * history.kl_target,
            "the policy is {value:.3g} nats per token from where it started{rule.since}, more than "
            "{rule.threshold:g} × {history.kl_target:g}.",
            "kl/k3",
            "kl",
        ),
        "It may be forgetting what it could, or hacking the reward.",
        lambda history, about: advice.less_kl(history),
        steps=3,
    ),
    Diagnosis(
        "entropy-collapse",
        "`entropy`, else `entropy/sampled`, is below 0.1 and below {} of its first three steps, and less than 0.9 is "
        "solved",
        0.1,
        "a policy that is sure because it is right may be below, one that starts so may stay there",
        whole_run(
            _collapsed,
            "the entropy has fallen to {value:.3g} nats per token{rule.since}, and little is solved.",
            "entropy",
            "entropy/sampled",
        ),
        "Exploration has ended: every completion is the same, and no better one is found any more.",
        lambda history, about: advice.more_entropy(history),
        steps=5,
    ),
    Diagnosis(
        "gradient-spike",
        "`grad_norm` is above `trainer.max_grad_norm` and above {} × the median of the newest ten logged steps",
        20.0,
        "runs of code.execution and chess.policy stay below 2.2; the median does not see single large values",
        whole_run(_spikes, _spike, "grad_norm"),
        "It is clipped, but a few completions have decided the whole step: an outlier of the reward, or a rare token.",
        lambda history, about: advice.spikes(history),
    ),
    Diagnosis(
        "clipping-high",
        "`clip_ratio/region` is above {}",
        0.2,
        "the healthy range of the metric; on policy it is 0",
        whole_run(above, "{value:.0%} of the tokens are clipped{rule.since}.", "clip_ratio/region"),
        "The policy moves so far from the one that sampled that a large part of the batch has no gradient any more.",
        lambda history, about: advice.less_clipping(history),
        steps=5,
    ),
    Diagnosis(
        "clipping-never",
        "`clip_ratio/region` is {}, although each batch is used for several optimizer steps",
        0.0,
        "of some hundred tokens in each of so many steps not one: the clip is without effect",
        whole_run(
            lambda value, history, limit: value <= limit and history.steps_per_batch > 1,
            "no token is clipped{rule.since}, although each batch is used for "
            "{history.steps_per_batch} optimizer steps.",
            "clip_ratio/region",
        ),
        "The steps after the first hardly move the policy, and each costs as much as the first.",
        lambda history, about: advice.fewer_passes(history),
        steps=20,
    ),
    Diagnosis(
        "sampler-mismatch",
        "`sampler_mismatch` is above {}, without `trainer.off_policy_steps`",
        1e-2,
        "nats per token; a hundred times that of float32, and where training gets unstable",
        whole_run(
            # Those of off-policy steps have different weights.
            lambda value, history, limit: value > limit and not history.config.trainer.off_policy_steps,
            "sampler and trainer disagree by {value:.2g} nats per token{rule.since} (above {rule.threshold:g}).",
            "sampler_mismatch",
        ),
        "The batch comes from another policy than the one trained, which biases the gradient: low precision, or "
        "different kernels.",
        lambda history, about: "set precision=float32, or correct for it: trainer.rollout_correction=token_truncate.",
        steps=3,
    ),
    Diagnosis(
        "dynamic-sampling-unfilled",
        "`dynamic_sampling/unfilled` is above {} of `trainer.prompts_per_step`",
        0.25,
        "a quarter of the batch teaches nothing although others were drawn in its place",
        whole_run(
            lambda value, history, share: value > share * history.config.trainer.prompts_per_step,
            "{value:.0f} of {history.config.trainer.prompts_per_step} groups have equal rewards although others "
            "were drawn in their place{rule.since}.",
            "dynamic_sampling/unfilled",
        ),
        "Completions are sampled several times over, and part of the batch still has no gradient.",
        lambda history, about: advice.unfilled(history),
        steps=5,
    ),
    *SIGNS,
)
"""In the order in which they are made and documented."""


def named(name: str) -> Diagnosis:
    """The diagnosis of a name."""
    return next(each for each in DIAGNOSES if each.name == name)
