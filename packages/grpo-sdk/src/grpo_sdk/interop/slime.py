"""Any task of one turn in slime.

    --custom-rm-path grpo_sdk.interop.slime.custom_rm
    --custom-reward-post-process-path grpo_sdk.interop.slime.post_process_rewards

`grpo export slime TASK DIR` writes rows and command line. Rows are `record`s: the row as JSON is the label, the task's
spec `metadata.task`, so one file may hold rows of many tasks. A task with group rewards needs `--group-rm`.

Read in slime's sources of August 2026. A sample that could not be scored is removed (`sample.remove_sample`: its loss
mask is 0), and the second function leaves it out of its group's mean and standard deviation, too.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from statistics import fmean, stdev
from typing import Any

from grpo_sdk.errors import DataError, UnscoredError
from grpo_sdk.interop.adapter import TaskAdapter, shared_adapter
from grpo_sdk.scoring.parts import log_values
from grpo_sdk.task.row import Row
from grpo_sdk.task.score import Score

__all__ = ["custom_rm", "post_process_rewards", "record"]

UNSCORED = "unscored"
"""Key of a sample's metadata with the reason why it has no reward."""

_CENTRED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
"""Advantage estimators whose rewards slime centres."""

_SCALED = ("grpo", "gspo", "cispo")
"""Advantage estimators whose rewards slime divides by their standard deviation."""

_EPSILON = 1e-6
"""Added to the standard deviation, as slime does."""


async def custom_rm(args: Any, sample: Any, **unused: object) -> Any:
    """Score a sample, or with `--group-rm` those of a prompt.

    What is known of each score is in the sample's metadata: `solved`, `valid`, every part, and `unscored` with the
    reason where there is none.

    Args:
        args: slime's arguments.
        sample: A sample, or a list of them.
        **unused: What else slime passes.

    Returns:
        The reward, NaN where there is none; with `--reward-key` a mapping of that key and all parts. A list of these
        for a list.

    Raises:
        UnscoredError: a sample could not be scored, and `--custom-reward-post-process-path` does not leave it out.
        DataError: a sample does not say which task it is of, or its label is no row of it.
        UserError: slime cannot train the task; says why.
    """
    if not isinstance(sample, list):
        adapter = _adapter(sample, "answer")
        (score,) = await adapter.ascore([sample.response], [sample.label])
        return _rewarded(args, sample, score, adapter)
    if not args.group_rm:  # a function of --custom-generate-function-path made several of one
        return list(await asyncio.gather(*(custom_rm(args, each) for each in sample)))
    adapter = _adapter(sample[0], "group")
    texts = [each.response for each in sample]
    scores = await asyncio.to_thread(adapter.score_group, texts, sample[0].label)
    return [_rewarded(args, each, score, adapter) for each, score in zip(sample, scores, strict=True)]


def post_process_rewards(args: Any, samples: list[Any]) -> tuple[list[float], list[float]]:
    """Normalise rewards as slime does, without the samples that could not be scored.

    Args:
        args: slime's arguments.
        samples: Samples of a batch, with their `group_index`.

    Returns:
        (rewards to be logged, rewards to be trained on). A sample without a reward is logged with the mean of the
        others, so that it moves no average, and trained on with 0, where its loss mask is 0.
    """
    scored = [index for index, sample in enumerate(samples) if UNSCORED not in sample.metadata]
    raw = {index: float(samples[index].get_reward_value(args)) for index in scored}
    trained = dict(raw)
    if args.advantage_estimator in _CENTRED and args.rewards_normalization:
        groups: dict[int, list[int]] = defaultdict(list)
        for index in scored:
            groups[samples[index].group_index].append(index)
        has_scale = args.advantage_estimator in _SCALED and args.grpo_std_normalization
        for members in groups.values():
            values = [raw[index] for index in members]
            mean, scale = fmean(values), 1.0
            if has_scale and len(values) > 1:
                scale = stdev(values) + _EPSILON
            trained |= {index: (raw[index] - mean) / scale for index in members}
    logged = fmean(raw.values()) if raw else math.nan
    everything = range(len(samples))
    return [raw.get(index, logged) for index in everything], [trained.get(index, 0.0) for index in everything]


def record(adapter: TaskAdapter, row: Row) -> dict[str, Any]:
    """One row of slime's data: `--input-key prompt --label-key label --metadata-key metadata --apply-chat-template`."""
    messages = adapter.first_messages(row)
    return {"prompt": messages, "label": row.model_dump_json(), "metadata": {"task": adapter.task.spec}}


def _adapter(sample: Any, completes: Any) -> TaskAdapter:
    spec = (sample.metadata or {}).get("task")
    if not isinstance(spec, str):
        raise DataError(
            "slime: a sample has no metadata.task, the spec of its task; make the data with grpo export slime, and "
            "give --metadata-key metadata."
        )
    return shared_adapter(spec, "slime", completes)


def _rewarded(args: Any, sample: Any, score: Score, adapter: TaskAdapter) -> Any:
    """The reward of a score, as slime takes it; notes in the sample what is known of it."""
    values = log_values(adapter.task, score)
    sample.metadata |= values
    if score.abstained:
        if not str(args.custom_reward_post_process_path or "").endswith(post_process_rewards.__name__):
            raise UnscoredError(
                f"task {adapter.task.name!r}: not scored: {score.fault}: {score.why} slime would count it as a reward: "
                f"give --custom-reward-post-process-path {__name__}.{post_process_rewards.__name__}."
            )
        sample.remove_sample, sample.metadata[UNSCORED] = True, f"{score.fault}: {score.why}"
    value = math.nan if score.value is None else score.value
    keys = {key for key in (args.reward_key, getattr(args, "eval_reward_key", None)) if key}
    return values | dict.fromkeys(keys, value) if keys else value
