"""Signs that a policy learns to earn the reward without doing what the reward is for."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator

from grpo_core.tracking.advice import warm_start
from grpo_core.tracking.diagnosis import ERRORS, Diagnosis, History, Observation, Trend

ALIKE = 0.8
"""Similarity of completions of different prompts above which they are suspicious, unless they were so at the start."""

CLOSER = 0.5
"""Share of the initial distance between completions that is left where they are becoming alike."""

OPPOSED = -0.1
"""Correlation with the reward at the start below which less of a watched part is better."""


def _rising(history: History) -> Iterator[tuple[str, Trend]]:
    """Labels of the tasks, and their rewards, where both windows are full; games have counts for their metrics."""
    for label, task in history.tasks.items():
        reward = history.trend(f"task/{label}/reward")
        if task.task.game is None and reward is not None:
            yield label, reward


def _falling_parts(history: History, diagnosis: Diagnosis) -> Iterator[Observation]:
    """Parts of weight 0 that fall while the reward rises."""
    for label, reward in _rising(history):
        for spec in history.tasks[label].rewards:
            trend = history.trend(f"task/{label}/part/{spec.name}")
            if not spec.is_fact or trend is None or not 0 <= trend.start <= spec.maximum:
                continue  # a fact above its maximum is a count
            agreement = history.trends.get(f"task/{label}/part_correlation/{spec.name}")
            if agreement is not None and agreement.first and agreement.start < OPPOSED:
                continue  # less is better, as of an error
            has_fallen = trend.errors < -ERRORS and trend.start - trend.now > diagnosis.threshold * spec.maximum
            rises = f"the reward rises ({reward.start:.3g} to {reward.now:.3g})"
            falls = f"the watched part {spec.name} falls ({trend.start:.3g} to {trend.now:.3g})"
            is_bad = has_fallen and reward.errors > ERRORS
            yield f"{label} {spec.name}", f"task {label}: {rises} while {falls}." if is_bad else ""


def _dominating_parts(history: History, diagnosis: Diagnosis) -> Iterator[Observation]:
    """One of several parts that carries the reward, while no more rows are solved."""
    for label, reward in _rising(history):
        criteria = [spec for spec in history.tasks[label].rewards if spec.is_criterion]
        solved = history.trend(f"task/{label}/solved_rate")
        earned = {
            spec.name: max(0.0, spec.weight * trend.now)
            for spec in criteria
            if (trend := history.trend(f"task/{label}/part/{spec.name}")) is not None
        }
        total = sum(earned.values())
        if len(criteria) < 2 or solved is None or len(earned) < len(criteria) or total <= 0:
            continue
        name = max(earned, key=lambda name: earned[name])
        is_bad = earned[name] >= diagnosis.threshold * total and reward.errors > ERRORS and solved.errors <= ERRORS
        seen = (
            f"task {label}: {name} carries {earned[name] / total:.0%} of the reward, which rises "
            f"({reward.start:.3g} to {reward.now:.3g}) while no more is solved ({solved.now:.2f})."
        )
        yield label, seen if is_bad else ""


def _alike(history: History, diagnosis: Diagnosis) -> Iterator[Observation]:
    similarity = history.trend("completions/similarity")
    calls = any(task.task.has_tools for task in history.tasks.values())  # which are alike where they are right
    if similarity is not None and not calls:
        is_closer = 1.0 - similarity.now < CLOSER * (1.0 - similarity.start)
        is_alike = similarity.now > diagnosis.threshold and is_closer and similarity.errors > ERRORS
        seen = f"similarity {similarity.now:.2f}, {similarity.start:.2f} at the start."
        yield "", f"completions of different prompts are becoming alike: {seen}" if is_alike else ""


def _longer(history: History, diagnosis: Diagnosis) -> Iterator[Observation]:
    length, reward = history.trend("completions/mean_length"), history.trend("reward")
    if length is not None and reward is not None:
        is_longer = length.now > diagnosis.threshold * length.start and length.errors > ERRORS
        grown = f"completions have grown from {length.start:.0f} to {length.now:.0f} tokens"
        stuck = f"the reward has not risen ({reward.start:.3g} to {reward.now:.3g})"
        yield "", f"{grown}, and {stuck}." if is_longer and reward.errors < ERRORS else ""


def _held_out_falls(history: History, diagnosis: Diagnosis) -> Iterator[Observation]:
    """A task whose newest evaluation is below its best one, beyond both intervals, while its reward rises."""
    label = history.evaluated
    reward = history.trend(f"task/{label}/reward")
    known = [each for each in history.evaluations.get(label, ()) if each.get("ci_low") is not None]
    if reward is None or len(known) < 2:
        return
    best, newest = max(known, key=lambda each: each["ci_low"]), known[-1]
    has_fallen = best["ci_low"] - newest["ci_high"] > diagnosis.threshold
    rises = f"the training reward rises ({reward.start:.3g} to {reward.now:.3g})"
    was, now = (f"{each['solved_rate']:.2f} [{each['ci_low']:.2f}, {each['ci_high']:.2f}]" for each in (best, newest))
    falls = f"the held-out solved rate has fallen from {was} to {now}"
    yield label, f"task {label}: {rises} while {falls}." if has_fallen and reward.errors > ERRORS else ""


def _also_trained(history: History, diagnosis: Diagnosis) -> Iterator[Observation]:
    for label, rows in history.also_trained.items():
        pairs = ", ".join(f"{held} is {trained}" for held, trained in rows["pairs"].items())
        more = ", …" if rows["n"] > len(rows["pairs"]) else ""
        seen = f"task {label}: {rows['n']} of {rows['of']} held-out rows are trained on ({pairs}{more})."
        yield label, seen if rows["n"] > diagnosis.threshold else ""


def _few_rows(history: History, diagnosis: Diagnosis) -> Iterator[Observation]:
    for label, rows in history.held_out.items():
        margin = 0.98 / math.sqrt(rows + 3.84)  # Wilson's interval of a rate of one half
        seen = f"task {label}: {rows} held-out rows tell a solved rate to about ±{margin:.2f} only."
        yield label, seen if 0 < rows < diagnosis.threshold else ""


def _more_rows(history: History, about: str) -> str:
    evaluation = history.config.eval
    if evaluation.subset_frac is not None:
        return f"raise eval.subset_frac (now {evaluation.subset_frac:g}), or leave it out."
    if evaluation.size is not None and history.held_out.get(about, 0) >= evaluation.size:
        return f"raise eval.size (now {evaluation.size}): 200 rows tell a rate to about ±0.07."
    return (
        f"put more rows into the split {evaluation.split}: a file for each split (path={{split}}.jsonl), or more rows "
        "in one file, of which a share is held out. 200 rows tell a rate to about ±0.07."
    )


SIGNS = (
    Diagnosis(
        "golds-unsolved",
        "more than {} of the first 32 golds of a task are not solved when the task scores them, before the first step; "
        "not where a model decides, or the task is exempt from `grpo check -k gold`",
        0,
        "a gold is what the row calls right",
        lambda history, diagnosis: iter(()),  # `check_golds` scores them
        "The reward calls wrong what the row calls right: the model is trained away from right answers.",
        lambda history, about: (
            f"see which, and why: grpo sample {shlex.quote(history.tasks[about].spec)} -n 32. Correct the golds of "
            "these rows, or what the reward calls right."
        ),
        moment="start",
    ),
    Diagnosis(
        "few-held-out-rows",
        "fewer than {} held-out rows of a task are evaluated",
        50,
        "with 50 rows the 95% interval of a rate of one half is ±0.13 wide: most gains of a run lie within",
        _few_rows,
        "Most differences between start and end, or between two runs, are within chance.",
        _more_rows,
        moment="start",
    ),
    Diagnosis(
        "evaluation-rows-in-training",
        "more than {} held-out rows have the prompt of a training row",
        0,
        "a held-out row is one that is not trained on",
        _also_trained,
        "The held-out solved rate counts rows that the model may know by heart, so it says too much.",
        lambda history, about: (
            f"give the splits of {about} different rows: load() is told its split by config.split, and "
            "grpo_sdk.data.split_of(text) assigns each row to one, by the text of its problem, as "
            "read_rows(…, content=…) does. To evaluate training rows: eval.split=train."
        ),
        moment="start",
    ),
    Diagnosis(
        "held-out-falls",
        "the reward of a task rises, and the interval of its newest held-out solved rate lies more than {} below "
        "that of its best one",
        0.0,
        "two 95% intervals that do not overlap: less than one in a hundred by chance",
        _held_out_falls,
        "The model learns its training rows, or a weakness of the reward, and not the task.",
        lambda history, about: (
            f"read what is rewarded: grpo rollouts RUN --best --task {about}. Then take more training rows, stop "
            "earlier (trainer.early_stop_patience with eval.interval_steps; trainer.keep_best keeps the best "
            "checkpoint), or hold the policy near its start: trainer.beta=0.05."
        ),
        moment="evaluation",
    ),
    Diagnosis(
        "part-falls",
        "the reward of a task rises while a part of weight 0 falls by more than {} of its maximum; not where it is "
        "above its maximum or opposed to the reward at the start, as a count or an error",
        0.1,
        "a tenth of what the part can be, beyond three standard errors of ten logged steps",
        _falling_parts,
        "The reward may be earned in a way that it is not meant for.",
        lambda history, about: (
            f"read completions: grpo rollouts RUN --best --task {about.partition(' ')[0]}. Then let the reward demand "
            "what is missing, or give the watched part a weight."
        ),
    ),
    Diagnosis(
        "part-dominates",
        "the reward of a task rises, no more rows are solved, and one of several parts makes up {} of what is earned",
        0.95,
        "a twentieth for all other parts together is below what noise of a batch moves",
        _dominating_parts,
        "The policy optimises what is easy, such as the format; the other parts are not learnt.",
        lambda history, about: (
            "lower that part's weight, or open the parts one after the other: @reward(needs=…). If the others are "
            f"never earned, take easier rows or a warm start: {warm_start()}."
        ),
    ),
    Diagnosis(
        "answers-alike",
        "`completions/similarity` of different prompts is above {}, and more than halfway from where it started to 1",
        ALIKE,
        "yes-or-no tasks begin above it, and are left out by the second half of the condition",
        _alike,
        "One answer may earn the reward of many rows, which is a weakness of the task; and exploration is ending.",
        lambda history, about: (
            "read completions: grpo rollouts RUN. If one text earns for many rows, mend the task (grpo check "
            "--fuzz searches for such texts); else keep exploring: trainer.entropy_coef=0.01 or trainer.beta=0.05."
        ),
    ),
    Diagnosis(
        "longer-without-reward",
        "`completions/mean_length` has grown to more than {} times that of the start, and `reward` has not risen",
        1.5,
        "the growth that Dr. GRPO (arXiv 2503.20783) removes is larger; that of a healthy run brings reward",
        _longer,
        "Tokens cost time and memory and bring nothing: a length bias of the loss, or a reward that pays for length.",
        lambda history, about: (
            f"take a loss without length bias, trainer.loss_type=dr_grpo (now {history.config.trainer.loss_type}); "
            "charge for length with trainer.soft_overlong_buffer; read the longest completions with grpo rollouts RUN."
        ),
    ),
)
"""Diagnoses that compare the start of a run with now, or its training with its evaluations."""
