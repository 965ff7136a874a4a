"""Differences of runs with intervals, paired by what they have in common: held-out rows, and prompts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from grpo_core.checkpoints import evaluation_dir
from grpo_core.evaluation.intervals import difference_interval
from grpo_core.evaluation.output import FINAL, META, EvaluationFolder, Meta, read_meta, read_rates, safe_name
from grpo_core.report.curves import reward_of
from grpo_core.tracking.runs import RunView, differences
from grpo_sdk.display.text import format_value
from grpo_sdk.errors import DataError, UserError
from grpo_sdk.records.rollouts import read_rollouts
from grpo_sdk.task.spec import label_of

LAST_SHARE = 0.25
"""Share of the steps that both runs have, at their end, over which training rewards are compared."""


def compare(views: Sequence[RunView], names: Sequence[str]) -> dict[str, Any]:
    """Compare every run with the first one.

    Returns:
        `settings` that differ, and `differences`: on held-out rows and on the prompts of training.
    """
    first = views[0]
    rows: list[dict[str, Any]] = []
    for view, name in zip(views[1:], names[1:], strict=True):
        rows += [{"run": name, **each} for each in (*_held_out(first, view), *_training(first, view))]
    return {
        "base": names[0],
        "settings": [
            [key, *(format_value(value) for value in values)]
            for key, values in differences(views).items()
            if key != "output_dir"
        ],
        "differences": rows,
    }


def _held_out(first: RunView, other: RunView) -> Iterator[dict[str, Any]]:
    """Differences of the final evaluations, row by row."""
    for task in dict.fromkeys((*first.results, *other.results)):
        found = [_final(view.path, task) for view in (first, other)]
        if None in found:
            missing = [view.path.name for view, each in zip((first, other), found, strict=True) if each is None]
            yield {"task": task, "what": "held-out", "problem": f"no final evaluation of {' and '.join(missing)}"}
            continue
        (base, base_meta), (folder, meta) = (each for each in found if each is not None)
        if unlike := _unlike(base_meta, meta):
            yield {"task": task, "what": "held-out", "problem": f"not comparable: {unlike}"}
            continue
        try:
            delta = read_rates(folder).paired_delta(read_rates(base))
        except UserError as error:
            yield {"task": task, "what": "held-out", "problem": str(error)}
            continue
        for what, key in (("held-out solved rate", "delta"), ("held-out reward", "reward_delta")):
            yield {
                "task": task,
                "what": what,
                "value": delta[key],
                "low": delta[f"{key}_ci_low"],
                "high": delta[f"{key}_ci_high"],
                "n": delta["delta_n"],
                "unit": "rows",
            }


def _unlike(first: Meta, other: Meta) -> str:
    """Return what makes two evaluations incomparable. Another seed does not: it only draws other completions."""
    if first.identity != other.identity:
        return "the task or its rows differ"
    keys = [key for key in first.settings if key != "seed" and first.settings[key] != other.settings.get(key)]
    return ", ".join(
        f"eval.{key} is {format_value(first.settings[key])} and {format_value(other.settings.get(key))}" for key in keys
    )


def _final(run: Path, task: str) -> tuple[Path, Meta] | None:
    """The files of a run's final evaluation, as far as they belong to it."""
    folder = EvaluationFolder(evaluation_dir(run), run.resolve().name, task).path / FINAL
    for results in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (results / META).is_file():
            try:
                meta = read_meta(results)
            except UserError:
                continue  # damaged, or of a newer version: as if it was not there
            # A label is a spec where two tasks share a name; the evaluated one has further options, as the split.
            names = {safe_name(label_of(spec)) for spec in (task, meta.task)}
            if Path(meta.run).name == run.resolve().name and len(names) == 1:
                return results, meta
    return None


def _training(first: RunView, other: RunView) -> Iterator[dict[str, Any]]:
    """Differences of mean rewards of groups that answer the same prompt in the same step.

    A row that is met several times is one observation, its mean difference: how two runs differ depends on the row.
    """
    last = min(first.steps, other.steps)
    start = last - max(1, math.ceil(last * LAST_SHARE)) + 1
    try:
        groups = [_group_means(view.path, start, last) for view in (first, other)]
    except (UserError, DataError) as error:
        yield {"task": "", "what": "training", "problem": str(error)}
        return
    for task in dict.fromkeys((*groups[0], *groups[1])):
        base, own = (each.get(task, {}) for each in groups)
        common = base.keys() & own.keys()
        if len(common) < 2:
            yield {"task": task, "what": "training reward", "problem": "no prompts in common: other seed or batch"}
            continue
        rows: dict[str, list[float]] = {}
        for key in sorted(common):
            rows.setdefault(key[0], []).append(own[key] - base[key])
        seen = [mean for means in (base, own) for mean in means.values()]
        interval = difference_interval([fmean(each) for each in rows.values()], (min(seen), max(seen)))
        yield {
            "task": task, "what": f"training reward, steps {start} to {last}", "n": interval.n, "unit": "prompts",
            **interval.as_json("value", low="low", high="high"),
        }  # fmt: skip


def _group_means(run: Path, start: int, last: int) -> Mapping[str, Mapping[tuple[str, int, str], float]]:
    """Task -> (row, step, prompt) -> mean reward."""
    means: dict[str, dict[tuple[str, int, str], float]] = {}
    records = (record for record in read_rollouts(run, problems=[]) if start <= record.step <= last)
    for (task, step, group), members in groupby(records, key=lambda record: (record.task, record.step, record.group)):
        listed = list(members)
        rewards = [value for value in map(reward_of, listed) if not math.isnan(value)]
        if rewards:
            row = listed[0].row_id
            means.setdefault(task, {})[row, step, listed[0].prompt_id or f"{row}/{group}"] = fmean(rewards)
    return means
