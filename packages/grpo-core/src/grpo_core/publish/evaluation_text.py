"""Evaluation results of a published checkpoint, as Markdown and as the hub's metadata. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_core.display.results import pass_rows
from grpo_core.publish.source import Evaluated, Source
from grpo_core.tracking.runs import is_number


def evaluation_section(source: Source) -> str:
    """Return the card's section of evaluation results, base and checkpoint side by side."""
    evaluations = source.evaluated()
    if not evaluations:
        return f"## Evaluation\n\nThis model (step {source.step}) was not evaluated."
    lines = [
        "## Evaluation",
        "",
        "| task | split | sampled | rows | base solved | this model solved | difference | mean reward, base → this |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in evaluations:
        result = each.this or each.base
        lines.append(
            f"| {code(each.task)} | {plain(result.get('split', '-'))} | {_sampled(result)} | {_rows(result)} "
            f"| {_interval(each.base, 'solved_rate')} | {_interval(each.this, 'solved_rate')} "
            f"| {_interval(each.this, 'delta', '+.3f')} "
            f"| {_interval(each.base, 'mean_reward')} → {_interval(each.this, 'mean_reward')} |"
        )
    lines += ["", *_pass_rates(evaluations)]
    lines.append(
        f"{_rows_text(source, evaluations)} Brackets are 95% intervals: Wilson's for rates of one completion a row, "
        "the bootstrap over rows for all others (below 20 rows Student's), paired for differences. *Solved* is the "
        "task's own verdict; the *reward* is what training maximised. Rows that could not be scored are in no rate."
    )
    if not any(each.this for each in evaluations):
        lines += ["", f"Only the base was evaluated; this model (step {source.step}) was not."]
    return "\n".join(lines)


def _rows_text(source: Source, evaluations: Sequence[Evaluated]) -> str:
    """What is known of the rows: whether they are trained on, too."""
    notes = dict.fromkeys(_row_note(source, each) for each in evaluations)
    if not any(notes):
        return "Held-out rows, none of which is trained on; the same ones for base and this model."
    return " ".join(["The same rows for base and this model.", *filter(None, notes)])


def _row_note(source: Source, evaluated: Evaluated) -> str:
    """A sentence on the rows of an evaluation that may be trained on; empty where it is known that none is."""
    task, result = code(evaluated.task), evaluated.this or evaluated.base
    if result.get("split") == "train":
        return f"Those of {task} are of the training split: what they show may be memory."
    entry = (source.summary.get("tasks") or {}).get(evaluated.task) or {}
    overlap, own = entry.get("also_trained"), entry.get("final") or entry.get("initial") or {}
    rows = result.get("n")
    # The run compared the rows of its own evaluations; a later one may have had others.
    is_own = own.get("split") == result.get("split") and is_number(rows)
    if not overlap or not is_own or rows > overlap["of"]:
        return f"Whether rows of {task} are also trained on is not known."
    if overlap["n"]:
        return f"{overlap['n']} of {overlap['of']} rows of {task} are also trained on: what these show may be memory."
    return ""


def _pass_rates(evaluations: Sequence[Evaluated]) -> list[str]:
    """One line per evaluation with several completions per row: the unbiased pass@k."""
    lines = []
    for each in evaluations:
        numbers = sorted(int(name[5:]) for name in each.this if name.startswith("pass@") and name[5:].isdigit())
        rates = []
        for k in numbers:
            base, this = (_interval(of, f"pass@{k}") + pass_rows(of, k) for of in (each.base, each.this))
            rates.append(f"pass@{k} {base} → {this}")
        if rates:
            lines.append(f"* {code(each.task)}, base → this model: {'; '.join(rates)}")
    return [*lines, ""] if lines else []


def eval_results(source: Source) -> list[Any]:
    """Return the same results as entries of the hub's `model-index`."""
    from huggingface_hub import EvalResult

    entries = []
    for each in source.evaluated():
        label, result = each.task, each.this
        entry = (source.summary.get("tasks") or {}).get(label) or {}
        for metric, words in (("solved_rate", "solved rate"), ("mean_reward", "mean reward")):
            if not is_number(result.get(metric)):
                continue
            _, _, interval = _interval(result, metric).partition(" ")
            facts = [words, _sampled(result), *([f"95% interval {interval}"] if interval else [])]
            entries.append(
                EvalResult(
                    task_type="text-generation",
                    task_name="Text generation",
                    dataset_type=one_line(label),
                    dataset_name=one_line(label),
                    dataset_split=str(result.get("split", "")) or None,
                    dataset_args={"identity": entry.get("identity"), "rows": result.get("n")},
                    metric_type=metric,
                    metric_args={
                        "temperature": result.get("temperature"),
                        "completions_per_row": result.get("completions_per_row", 1),
                    },
                    metric_name=", ".join(facts),
                    metric_value=result[metric],
                )
            )
    return entries


def _rows(result: Mapping[str, Any]) -> str:
    unscored = result.get("abstained")
    return f"{plain(result.get('n', '-'))}" + (f" ({plain(unscored)} not scored)" if unscored else "")


def _sampled(result: Mapping[str, Any]) -> str:
    temperature, several = result.get("temperature"), result.get("completions_per_row", 1)
    how = f"at temperature {temperature:g}" if is_number(temperature) and temperature else "greedily"
    return f"{how}, {several} a row" if is_number(several) and several != 1 else how


_LOW_HIGH = {"solved_rate": ("ci_low", "ci_high")}
"""Metric -> keys of its interval's ends, where they are not named after the metric."""


def _interval(result: Mapping[str, Any], name: str, form: str = ".3f") -> str:
    value = result.get(name)
    low, high = (result.get(end) for end in _LOW_HIGH.get(name, (f"{name}_ci_low", f"{name}_ci_high")))
    if not is_number(value):
        return "-"
    interval = f" [{low:.3f}, {high:.3f}]" if is_number(low) and is_number(high) else ""
    return f"{format(value, form)}{interval}"


def one_line(text: str) -> str:
    """Replace every unprintable character, line breaks included, by a space."""
    return "".join(char if char.isprintable() else " " for char in text)


def plain(text: Any) -> str:
    """Escape untrusted text for running Markdown: no markup, no HTML, no table cells."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>|#!&~" else char for char in one_line(str(text)))


def code(value: Any) -> str:
    """Format untrusted text as inline code on one line, also inside a table."""
    text = one_line(str(value)).replace("`", "'").replace("|", "\\|")
    return f"`{text}`"
