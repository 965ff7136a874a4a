"""Summaries and reports as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def summary_lines(out: Path, summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the summary of a file that was made."""
    settings = summary["settings"]
    labelled = f", labelled by {settings['engine']} to depth {settings['depth']}" if "engine" in settings else ""
    finished = "was finished before: " if summary.get("finished_before") else ""
    yield f"{out}   {finished}{summary['rows']} rows, {settings['format']}, seed {settings['seed']}{labelled}"
    yield f"splits   {_counts(summary['splits'])}"
    yield f"to move   {_counts(summary['to_move'])}"
    for kind, counts in summary.get("kinds", {}).items():
        share = counts["rows"] / summary["rows"]
        yield f"  {kind:<22}{counts['rows']:>7}   {share:6.1%} of the rows, {counts['quota']:.0%} wanted"


def report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the report on files that were checked."""
    for file in report["files"]:
        yield f"{file['source']}   rows: {_counts(file['rows']) or 'none'}   splits: {_counts(file['splits'])}"
        for side, counts in file["best_move_is_evaluated"].items():
            yield f"  {side}'s best move is evaluated {_counts(counts)}"
        for problem, rows in file["problems"].items():
            yield f"  PROBLEM   {problem}: {rows['rows']} rows"
            yield from (f"    {ascii(first)[1:-1]}" for first in rows["first"])
    for pair in report["shared"]:
        label = "PROBLEM   " if pair["positions"] else ""
        yield f"{label}{pair['positions']} positions of {pair['kind']} are in both {' and '.join(pair['files'])}"
    yield "all is right" if report["ok"] else "something is wrong"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
