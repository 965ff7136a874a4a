"""Reading runs from Weights & Biases through its public API."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from grpo_core.tracking.base import without_secrets
from grpo_core.tracking.runs import is_number
from grpo_core.tracking.wandb import has_key
from grpo_sdk.errors import ExitCode, GrpoError, UserError, first_line
from grpo_sdk.records.run_folder import flat

TIMEOUT_S = 30

IDENTITY = "WANDB_IDENTITY_TOKEN_FILE"
"""Variable with which a machine logs in without a key."""

MAX_POINTS = 500
"""Points of a metric that are read; W&B takes them at random of a longer run."""


class WandBError(GrpoError):
    """W&B cannot be reached, or refuses."""

    exit_code = ExitCode.FAILED


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """A run in W&B.

    Attributes:
        path: `ENTITY/PROJECT/ID`.
        name: Its name.
        state: As W&B names it: `running`, `finished`, `crashed`, `failed`, `killed`.
        created: Time of its start, as W&B writes it.
        url: Its page.
        settings: Dotted key -> value.
        metrics: Last value of each metric.
    """

    path: str
    name: str
    state: str
    created: str
    url: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


def latest_runs(project: str, limit: int) -> list[RemoteRun]:
    """Return the latest runs of a project, the newest last.

    Args:
        project: `ENTITY/PROJECT`, or a project of the default entity.
        limit: Runs at most.

    Raises:
        UserError: there is no key, or no such project.
        WandBError: W&B cannot be reached, or refuses.
    """
    parts = project.split("/")
    if not 1 <= len(parts) <= 2 or not all(parts):
        raise UserError(f"--wandb {project[:200]!r}: give ENTITY/PROJECT, or PROJECT.")
    with _api(project) as api:
        runs = api.runs(project, order="-created_at", per_page=min(limit, 100), lazy=False)
        return [_remote(run) for run in islice(runs, limit)][::-1]


def remote_run(path: str, names: Sequence[str]) -> tuple[RemoteRun, dict[str, list[tuple[int, float | None]]]]:
    """Return a run, and metrics of it over the steps.

    Args:
        path: `ENTITY/PROJECT/ID`.
        names: Metrics; those that the run did not log are left out.

    Raises:
        UserError: there is no key, or no such run.
        WandBError: W&B cannot be reached, or refuses.
    """
    parts = path.split("/")
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise UserError(f"{path[:200]!r}: give ENTITY/PROJECT/ID, as grpo runs --wandb prints it.")
    with _api(path) as api:
        run = api.run(path)
        remote = _remote(run)
        history: dict[str, list[tuple[int, float | None]]] = {}
        for name in names:
            if name not in remote.metrics:
                continue
            lines = run.history(keys=[name], x_axis="step", samples=MAX_POINTS, pandas=False)
            points = {int(line["step"]): float(line[name]) for line in lines if _is_point(line, name)}
            history[name] = sorted(points.items())
        return remote, history


def _is_point(line: Mapping[str, Any], name: str) -> bool:
    return is_number(line.get("step")) and is_number(line.get(name))


def _remote(run: Any) -> RemoteRun:
    settings = flat({key: value for key, value in run.config.items() if not key.startswith("_")}, ".")
    return RemoteRun(
        path="/".join(map(str, run.path)),
        name=str(run.name),
        state=str(run.state),
        created=str(run.created_at),
        url=str(run.url),
        settings=settings,
        metrics={
            str(name): float(value)
            for name, value in dict(run.summary_metrics).items()
            if not name.startswith("_") and name != "step" and is_number(value)
        },
    )


@contextlib.contextmanager
def _api(what: str) -> Iterator[Any]:
    """Open W&B's public API; its errors become one line."""
    os.environ.setdefault("WANDB_SILENT", "true")
    import wandb
    from wandb.errors import AuthenticationError, CommError, UsageError

    host = os.environ.get("WANDB_BASE_URL") or wandb.setup().settings.base_url
    if not has_key(host, os.environ) and IDENTITY not in os.environ:
        raise UserError(  # wandb itself would ask for a key in a terminal
            "no key for W&B: run `wandb login`, or put WANDB_API_KEY into the environment or .env. Without --wandb, "
            "grpo runs lists the runs of this machine."
        )
    try:
        yield wandb.Api(timeout=TIMEOUT_S)
    except (AuthenticationError, UsageError) as error:
        if error.__cause__ is not None and getattr(error.__cause__, "response", None) is None:
            raise WandBError(f"W&B at {host} cannot be reached: {without_secrets(first_line(error))}") from error
        raise UserError(f"W&B refuses the key: {without_secrets(first_line(error))} Run `wandb login`.") from error
    except (ValueError, CommError, TimeoutError, OSError) as error:
        if isinstance(error, ValueError) or isinstance(getattr(error, "exc", None), ValueError):
            # What the API raises for a project or a run that is not there.
            raise UserError(f"W&B has no {what[:200]!r}, or the key may not read it ({first_line(error)}).") from error
        raise WandBError(f"W&B at {host} cannot be read: {without_secrets(first_line(error))}") from error
