"""What was measured of a published checkpoint, for people and for the hub. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_core.publish.markdown import code, one_line, plain
from grpo_core.publish.source import Evaluated, Source


def evaluation_section(source: Source) -> str:
    """The card's section on what was measured, base and checkpoint side by side."""
    found = source.evaluated()
    if not found:
        return f"## Evaluation\n\nThis model (step {source.step}) was not evaluated."
    lines = [
        "## Evaluation",
        "",
        "| task | split | sampled | rows | base solved | this model solved | difference | mean reward, base → this |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        some = each.this or each.base
        lines.append(
            f"| {code(each.task)} | {plain(some.get('split', '-'))} | {_sampled(some)} | {_rows(some)} "
            f"| {_interval(each.base, 'solved_rate')} | {_interval(each.this, 'solved_rate')} "
            f"| {_interval(each.this, 'delta', '+.3f')} "
            f"| {_interval(each.base, 'mean_reward')} → {_interval(each.this, 'mean_reward')} |"
        )
    lines += ["", *_passes(found)]
    lines.append(
        "Held-out rows that were never trained on, the same ones for base and this model. Brackets are 95% intervals: "
        "Wilson's for rates of one completion a row, the bootstrap over rows for all others, paired for differences. "
        "*Solved* is the task's own verdict; the *reward* is what training maximised. Rows that could not be scored "
        "are in no rate."
    )
    if not any(each.this for each in found):
        lines += ["", f"Only the base was evaluated; this model (step {source.step}) was not."]
    return "\n".join(lines)


def _passes(found: Sequence[Evaluated]) -> list[str]:
    """A line for each evaluation of several completions a row: the unbiased pass@k."""
    lines = []
    for each in found:
        names = [name for name in each.this if name.startswith("pass@") and name.removeprefix("pass@").isdigit()]
        if names:
            passes = "; ".join(
                f"{name} {_interval(each.base, name)} → {_interval(each.this, name)}"
                for name in sorted(names, key=lambda name: int(name.removeprefix("pass@")))
            )
            lines.append(f"* {code(each.task)}, base → this model: {passes}")
    return [*lines, ""] if lines else []


def eval_results(source: Source) -> list[Any]:
    """The same for machines, as the hub's `model-index`."""
    from huggingface_hub import EvalResult

    found = []
    for each in source.evaluated():
        label, result = each.task, each.this
        for metric, words in (("solved_rate", "solved rate"), ("mean_reward", "mean reward")):
            if not is_number(result.get(metric)):
                continue
            _, _, interval = _interval(result, metric).partition(" ")
            facts = [words, _sampled(result), *([f"95% interval {interval}"] if interval else [])]
            found.append(
                EvalResult(
                    task_type="text-generation",
                    task_name="Text generation",
                    dataset_type=one_line(label),
                    dataset_name=one_line(label),
                    dataset_split=str(result.get("split", "")) or None,
                    dataset_args={"identity": _identity(source, label), "rows": result.get("n")},
                    metric_type=metric,
                    metric_args={
                        "temperature": result.get("temperature"),
                        "completions_per_row": result.get("completions_per_row", 1),
                    },
                    metric_name=", ".join(facts),
                    metric_value=result[metric],
                )
            )
    return found


def _identity(source: Source, label: str) -> str | None:
    entry = (source.summary.get("tasks") or {}).get(label) or {}
    return entry.get("identity")


def _rows(result: Mapping[str, Any]) -> str:
    unscored = result.get("abstained")
    return f"{plain(result.get('n', '-'))}" + (f" ({plain(unscored)} not scored)" if unscored else "")


def _sampled(result: Mapping[str, Any]) -> str:
    temperature, several = result.get("temperature"), result.get("completions_per_row", 1)
    how = f"at temperature {temperature:g}" if is_number(temperature) and temperature else "greedily"
    return f"{how}, {several} a row" if is_number(several) and several != 1 else how


_LOW_HIGH = {"solved_rate": ("ci_low", "ci_high")}
"""A number -> its interval's ends, where they are not named after it."""


def _interval(result: Mapping[str, Any], name: str, form: str = ".3f") -> str:
    value = result.get(name)
    low, high = (result.get(end) for end in _LOW_HIGH.get(name, (f"{name}_ci_low", f"{name}_ci_high")))
    if not is_number(value):
        return "-"
    interval = f" [{low:.3f}, {high:.3f}]" if is_number(low) and is_number(high) else ""
    return f"{format(value, form)}{interval}"


def is_number(value: Any) -> bool:
    """Whether a value that was read from JSON is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)
