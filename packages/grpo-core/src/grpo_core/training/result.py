"""The result of a run: its summary, its metrics, its completions, as a notebook shows them."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_core.config import RunConfig, load_config
from grpo_core.display.results import as_html, as_text, history_table
from grpo_core.evaluation.evaluate import EvaluationResults, evaluate
from grpo_core.evaluation.held_out import evaluated_specs
from grpo_core.evaluation.run_models import checkpoints_of
from grpo_core.tracking.runs import metric_named, series
from grpo_sdk.display.lines import duration, interval, number
from grpo_sdk.display.text import table, visible
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.task_objects import Tasks
from grpo_sdk.records.jsonl import TRAIN_LOG, read_jsonl
from grpo_sdk.records.rollouts import RolloutRecord, read_rollouts
from grpo_sdk.task.task import Task

if TYPE_CHECKING:
    from rich.table import Table

PLOTTED = ("reward", "solved_rate", "frac_reward_zero_std", "completions/mean_length")
"""Metrics that are plotted where none is named."""


class Records(list[dict[str, Any]]):
    """The metrics of a run, a mapping for each logged step."""

    def to_pandas(self) -> Any:
        """The records as a `pandas.DataFrame`."""
        try:
            import pandas
        except ImportError:
            raise UserError("to_pandas() needs pandas: pip install pandas.") from None
        return pandas.DataFrame(list(self))

    def to_polars(self) -> Any:
        """The records as a `polars.DataFrame`."""
        try:
            import polars
        except ImportError:
            raise UserError("to_polars() needs polars: pip install polars.") from None
        return polars.DataFrame(list(self), infer_schema_length=None)


@dataclass(frozen=True, slots=True, repr=False)
class RunResult:
    """The result of a run.

    Attributes:
        run_dir: Folder of the run.
        summary: Content of `summary.json`.
        interrupted: Whether the user stopped it; everything up to then is saved.
        objects: The tasks that are objects of this process, kept for `evaluate`.
    """

    run_dir: Path
    summary: dict[str, Any]
    interrupted: bool
    objects: tuple[Task, ...] = field(default=(), compare=False)

    @property
    def metrics(self) -> Records:
        """The logged metrics of each step: `result.metrics[-1]["reward"]`, `result.metrics.to_pandas()`.

        Raises:
            DataError: the log cannot be read.
        """
        return Records(read_jsonl(self.run_dir / TRAIN_LOG))

    def rollouts(self, *, step: int | None = None, task: str | None = None) -> list[RolloutRecord]:
        """The completions that were trained on, with prompts, rows and scores, in order.

        Args:
            step: Only those of this step.
            task: Only those of this task, by its spec.
        """
        return list(read_rollouts(self.run_dir, step=step, task=task))

    def evaluate(self, task: Tasks | None = None, **settings: Any) -> EvaluationResults:
        """Evaluate the trained model.

        Args:
            task: Task or tasks; by default those that the run evaluates.
            settings: As for `grpo_core.evaluate`.
        """
        config = self._config()
        (checkpoint, *_), _ = checkpoints_of(self.run_dir, config, "latest")
        model, adapter = checkpoint.model, checkpoint.adapter
        return evaluate(evaluated_specs(config) if task is None else task, model, adapter=adapter, **settings)

    def plot(self, *metrics: str) -> Any:
        """Plot metrics over the steps.

        Args:
            metrics: Names of metrics; by default reward, solved rate, groups without spread and length.

        Returns:
            A matplotlib figure; without matplotlib a small plot for a terminal.

        Raises:
            UnknownNameError: the run logged no such metric.
        """
        known = list(dict.fromkeys(name for record in self.metrics for name in record if name != "step"))
        names = [metric_named(name, known) for name in metrics] or [name for name in PLOTTED if name in known]
        history = series(self.run_dir, names)
        try:
            from matplotlib.figure import Figure
        except ImportError:
            return _Shown(history_table({name: history[name] for name in names if name in history}))

        class Plot(Figure):
            """A figure that a notebook shows, whatever its backend is."""

            def _repr_png_(self) -> bytes:
                image = io.BytesIO()
                self.savefig(image, format="png")
                return image.getvalue()

        figure = Plot(figsize=(4 * len(names), 3), layout="constrained")
        for position, name in enumerate(names, start=1):
            axes = figure.add_subplot(1, len(names), position)
            axes.plot(*zip(*history.get(name, [(0, None)]), strict=True))
            axes.set(title=name, xlabel="step")
        return figure

    def __repr__(self) -> str:
        return f"{self._headline()}\n{as_text(self._table())}"

    def _repr_html_(self) -> str:
        return f"<p>{visible(self._headline())}</p>{as_html(self._table())}"

    def _headline(self) -> str:
        how = "stopped after" if self.interrupted else "after"
        return f"{self.run_dir}: {how} {self.summary['steps']} steps, {duration(self.summary['seconds'])}"

    def _table(self) -> Table:
        listing = table("task", "solved before", "95% interval", "solved after", "95% interval", "gain", "95% interval")
        for task, entry in self.summary["tasks"].items():
            cells = []
            for phase in ("initial", "final"):
                result = entry.get(phase, {})
                cells += [number(result.get("solved_rate")), interval(result.get("ci_low"), result.get("ci_high"))]
            final = entry.get("final", {})
            gain = interval(final.get("delta_ci_low"), final.get("delta_ci_high"))
            listing.add_row(visible(task), *cells, number(final.get("delta"), "+.2f"), gain)
        return listing

    def _config(self) -> RunConfig:
        return load_config(config_file=self.run_dir / "config.yaml", environ={}, dotenv_path=None).config


class _Shown:
    """A table that shows itself."""

    def __init__(self, listing: Table) -> None:
        self._table = listing

    def __repr__(self) -> str:
        return as_text(self._table)

    def _repr_html_(self) -> str:
        return as_html(self._table)
