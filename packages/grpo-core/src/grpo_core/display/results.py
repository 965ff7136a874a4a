"""Results as tables: evaluations, runs, metrics over the steps; as text and as HTML."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from grpo_core.display.plots import sparkline
from grpo_sdk.display.lines import interval, number
from grpo_sdk.display.text import table, visible

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 120
"""Columns of a table as text, where it is not known what will show it."""


def evaluation_table(
    first: str, rows: Iterable[tuple[str, Mapping[str, Any]]], tasks: list[str] | None = None
) -> Table:
    """Return a table of evaluations, one per row, without columns that are empty in all rows."""
    rows = list(rows)
    ks = sorted(
        {int(name[5:]) for _, result in rows for name in result if name.startswith("pass@") and "_" not in name}
    )
    has_delta = any(result.get("delta") is not None for _, result in rows)
    columns = [first, *(["task"] if tasks else []), "solved", "95% interval"]
    columns += [*(["over base", "95% interval"] if has_delta else []), *(f"pass@{k}" for k in ks if k > 1)]
    listing = table(*columns, "mean reward", "valid", "length", "truncated", "rows", "split")
    listing.columns[0].no_wrap = False  # a spec with many options is folded, before the numbers are
    for index, (name, result) in enumerate(rows):
        cells = [visible(name), *([visible(tasks[index])] if tasks else [])]
        cells += [number(result.get("solved_rate")), interval(result.get("ci_low"), result.get("ci_high"))]
        if has_delta:
            over = interval(result.get("delta_ci_low"), result.get("delta_ci_high"))
            cells += [number(result.get("delta"), "+.2f"), over]
        cells += [number(result.get(f"pass@{k}")) + pass_rows(result, k) for k in ks if k > 1]
        listing.add_row(
            *cells,
            number(result.get("mean_reward")),
            number(result.get("valid_rate")),
            number(result.get("mean_length"), ".1f"),
            number(result.get("truncated_frac")),
            str(result.get("n", "-")) + (f" ({result['abstained']} not scored)" if result.get("abstained") else ""),
            _how(result),
        )
    return listing


def pass_rows(result: Mapping[str, Any], k: int) -> str:
    """The rows that pass@k is of, where they are fewer than those of the solved rate: ` (40 rows)`."""
    of_k, rows = result.get(f"pass@{k}_n"), result.get("n")
    is_fewer = isinstance(of_k, int) and isinstance(rows, int) and of_k < rows
    return f" ({of_k} rows)" if is_fewer else ""


def _how(result: Mapping[str, Any]) -> str:
    temperature, several = result.get("temperature"), result.get("completions_per_row", 1)
    how = str(result.get("split", "-"))
    how += f", {several} completions a row" if several > 1 else ""
    return how + (f" at temperature {temperature:g}" if temperature else "")


def history_table(history: Mapping[str, Sequence[tuple[int, float | None]]]) -> Table:
    """A table of metrics over the steps, one per row, each with a small plot.

    Args:
        history: Metric -> (step, value), as `grpo_core.tracking.runs.series` reads it.
    """
    listing = table("metric", "over the steps", "first", "last", "lowest", "highest")
    for name, points in history.items():
        values = [value for _, value in points]
        known = [value for value in values if value is not None]
        ends = (known[0], known[-1], min(known), max(known)) if known else (None,) * 4
        listing.add_row(visible(name), sparkline(values), *(number(end, ".4g") for end in ends))
    return listing


def as_text(table: Table) -> str:
    """A table as text, without trailing spaces."""
    from rich.console import Console

    file = io.StringIO()
    # In a notebook a console would display the table by itself.
    console = Console(
        file=file, width=WIDTH, color_system=None, highlight=False, markup=False, emoji=False, force_jupyter=False
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def as_html(table: Table) -> str:
    """A table as HTML, for a notebook."""
    heads = "".join(f"<th>{escape(str(column.header))}</th>" for column in table.columns)
    rows = zip(*(column.cells for column in table.columns), strict=True)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
