"""`grpo runs --wandb`: the runs of a project in W&B."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from grpo_sdk.display.text import print_json, print_out, table, visible

if TYPE_CHECKING:
    from grpo_core.tracking.wandb_runs import RemoteRun

LIMIT = 20
"""Runs that are listed by default."""

MAX_CHARS = 200
"""Longest text from W&B that is shown in a cell."""


def list_remote(project: str, limit: int | None, *, as_json: bool) -> None:
    """Print the latest runs of a project.

    Args:
        project: `ENTITY/PROJECT`, `PROJECT`, or empty for the one that new runs are logged to.
        limit: Runs at most.
        as_json: Whether to print JSON.
    """
    from grpo_core.tracking.wandb_runs import latest_runs

    chosen = project or _default_project()
    runs = latest_runs(chosen, limit or LIMIT)
    if as_json:
        print_json([asdict(run) for run in runs])
        return
    if not runs:
        print_out(_cell(f"{chosen} holds no runs yet."))
        return
    listing = table("run", "state", "name", "reward", "solved", "task", "model", "started")
    for run in runs:
        listing.add_row(
            _cell(run.path),
            _cell(run.state),
            _cell(run.name),
            _number(run.metrics.get("reward")),
            _solved(run),
            _cell(run.settings.get("task", "-")),
            _cell(run.settings.get("model", "-")),
            _cell(run.created),
        )
    print_out(listing)


def show_remote(path: str, names: Sequence[str], *, as_json: bool) -> None:
    """Print a run: its settings, metrics over the steps, and last metrics.

    Args:
        path: `ENTITY/PROJECT/ID`.
        names: Metrics over the steps.
        as_json: Whether to print JSON.
    """
    from grpo_core.display.results import history_table
    from grpo_core.tracking.wandb_runs import remote_run
    from grpo_sdk.display import lines

    run, history = remote_run(path, names)
    if as_json:
        print_json({**asdict(run), "history": history})
        return
    print_out(lines.fold("run", [_cell(run.path), _cell(run.name), _cell(run.state), _cell(run.created)], None))
    print_out(lines.fold("page", [_cell(run.url)], None))
    if history:
        print_out("", history_table(history))
    for heading, values in (("last step", run.metrics), ("setting", run.settings)):
        listing = table(heading, "value")
        for name, value in values.items():
            listing.add_row(_cell(name), _number(value) if heading == "last step" else _cell(value))
        if values:
            print_out("", listing)


def _default_project() -> str:
    from grpo_core.config import load_config
    from grpo_core.tracking.observe import DEFAULT_PROJECT

    project = load_config().config.tracking.project or os.environ.get("WANDB_PROJECT") or DEFAULT_PROJECT
    entity = os.environ.get("WANDB_ENTITY", "")
    return f"{entity}/{project}" if entity and "/" not in project else project


def _solved(run: RemoteRun) -> str:
    """The last held-out solved rate of the first task, else that of training."""
    names = [name for name in run.metrics if name.startswith("eval/") and name.endswith("/solved_rate")]
    return _number(run.metrics.get(names[0] if names else "solved_rate"))


def _cell(value: object) -> str:
    return visible(str(value)[:MAX_CHARS])


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "-"
