"""MLflow by its client, and Comet, ClearML, SwanLab and Aim through the trackers of accelerate."""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from grpo_core.tracking.base import OFFLINE, Cell, TrackedRun, continued_id, recall_id, remember_id


class AccelerateTracker:
    """Logs the numbers of a run through a tracker of accelerate; subclasses add tables, warnings and the final status.

    Args:
        run: Run to log.
        options: Further arguments of accelerate's tracker.
    """

    name: str
    """Name of the tracker in accelerate."""

    def __init__(self, run: TrackedRun, **options: Any) -> None:
        from accelerate import PartialState
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        PartialState()  # without it, the trackers' first log message raises an error
        self._tracker = LOGGER_TYPE_TO_CLASS[self.name](run.project, **options)
        self._tracker.start()
        self._service = self._tracker.tracker

    def configure(self, run: TrackedRun, identifier: str) -> None:
        """Log the settings, and keep the run's identifier for a resume."""
        remember_id(run.run_dir, self.name, identifier)
        self._tracker.store_init_configuration(dict(run.config))

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Log numbers."""
        self._tracker.log(dict(values), step=step)

    def close(self, *, failed: bool) -> None:
        """Flush and close the tracker."""
        self._tracker.finish()


class MLflow:
    """Logs a run to MLflow, at MLFLOW_TRACKING_URI.

    Its runs are named by identifier: MLflow's active run is one of a thread, and a tracker is closed in another.

    Args:
        run: Run to log.
    """

    def __init__(self, run: TrackedRun) -> None:
        import mlflow as library
        from mlflow.tracking.context.registry import resolve_tags

        self._library, self._client = library, library.MlflowClient()
        if known := recall_id(run.run_dir, "mlflow"):
            self._run_id = known
            self._client.update_run(known, status="RUNNING")
            return  # MLflow refuses to change a parameter
        experiment = library.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", run.project))
        created = self._client.create_run(experiment.experiment_id, tags=resolve_tags(), run_name=run.name)
        self._run_id = created.info.run_id
        remember_id(run.run_dir, "mlflow", self._run_id)
        settings = list(run.config.items())
        for start in range(0, len(settings), 100):  # as many as MLflow takes at once
            library.log_params(dict(settings[start : start + 100]), run_id=self._run_id)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Log numbers under names that MLflow accepts: `pass@4` becomes `pass_4`."""
        accepted = {re.sub(r"[^\w\-. /:]", "_", name): value for name, value in values.items()}
        self._library.log_metrics(accepted, step=step, run_id=self._run_id)

    def table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Log a table as a separate artifact."""
        self._log_table(f"{name}/step_{step:06d}.json", columns, rows)

    def note(self, step: int, text: str) -> None:
        """Add a warning to the artifact `warnings.json`."""
        self._log_table("warnings.json", ("step", "warning"), [(step, text)])

    def close(self, *, failed: bool) -> None:
        """End the run with its status."""
        self._client.set_terminated(self._run_id, "FAILED" if failed else "FINISHED")

    def _log_table(self, file: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        by_column = {column: [row[index] for row in rows] for index, column in enumerate(columns)}
        self._client.log_table(self._run_id, by_column, file)


class Comet(AccelerateTracker):
    """Logs a run to Comet, or with COMET_START_ONLINE=0 to `logs/comet/`.

    Args:
        run: Run to log.
    """

    name = "comet_ml"

    def __init__(self, run: TrackedRun) -> None:
        from comet_ml import ExperimentConfig, get_config

        is_offline = get_config("comet.start.online") is False
        key = (None if is_offline else continued_id(run.run_dir, self.name)) or secrets.token_hex(16)
        super().__init__(
            run,
            experiment_key=key,
            mode="get_or_create",
            # The console shows our progress report; the user's code is not uploaded.
            experiment_config=ExperimentConfig(
                name=run.name,
                offline_directory=os.environ.get("COMET_OFFLINE_DIRECTORY") or str(run.run_dir / "logs" / "comet"),
                auto_output_logging=False,
                auto_param_logging=False,
                auto_metric_logging=False,
                log_code=False,
                log_git_patch=False,
                display_summary_level=0,
            ),
        )
        self.configure(run, f"{OFFLINE}{key}" if is_offline else key)

    def table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Log a table as a CSV file."""
        self._service.log_table(f"{name}_{step:06d}.csv", [list(row) for row in rows], headers=list(columns))

    def note(self, step: int, text: str) -> None:
        """Log a warning as text."""
        self._service.log_text(text, step=step)

    def close(self, *, failed: bool) -> None:
        """Flush and close; a failed run gets the tag `failed`."""
        if failed:
            self._service.add_tag("failed")
        super().close(failed=failed)


_CLEARML_FINDS = (
    "detect_repository", "hydra", "scikit", "joblib", "matplotlib", "tensorflow", "tensorboard", "tfdefines", "pytorch",
    "megengine", "xgboost", "catboost", "fastai", "lightgbm", "gradio",
)  # fmt: skip
"""What `Task.init` of ClearML 2.1 connects unless it is named. False for all would leave the repository in, for which
the close of a task waits up to 300 s."""


class ClearML(AccelerateTracker):
    """Logs a run as a task of ClearML.

    Args:
        run: Run to log.
    """

    name = "clearml"

    def __init__(self, run: TrackedRun) -> None:
        known = continued_id(run.run_dir, self.name)
        super().__init__(
            run,
            task_name=os.environ.get("CLEARML_TASK") or run.name,
            reuse_last_task_id=known or False,
            continue_last_task=0 if known else False,  # 0: steps are not offset by those logged before
            auto_connect_arg_parser=False,
            auto_connect_frameworks=dict.fromkeys(_CLEARML_FINDS, False),
            auto_connect_streams=False,
        )
        self.configure(run, self._service.id)

    def table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Log a table as a plot."""
        self._tracker.log_table(name, list(columns), [list(row) for row in rows], step=step)

    def note(self, step: int, text: str) -> None:
        """Log a warning to the console of the task."""
        self._service.get_logger().report_text(f"step {step}: {text}", level=logging.WARNING, print_console=False)

    def close(self, *, failed: bool) -> None:
        """Flush and close with the status of the run."""
        if failed:
            self._service.mark_failed()
        super().close(failed=failed)


class SwanLab(AccelerateTracker):
    """Logs a run to SwanLab in the mode SWANLAB_MODE; its files are in `logs/swanlab/`.

    Args:
        run: Run to log.
    """

    name = "swanlab"

    def __init__(self, run: TrackedRun) -> None:
        import swanlab as library

        self._library = library
        known = recall_id(run.run_dir, self.name)
        # In the main thread, SwanLab would take over SIGINT, and could be closed only there.
        with ThreadPoolExecutor(1) as opening:
            opening.submit(
                super().__init__,
                run,
                name=run.name,
                id=known or secrets.token_hex(10),
                resume="allow",
                log_dir=str(run.run_dir / "logs" / "swanlab"),
            ).result()
        self.configure(run, self._service.id)

    def table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Log a table as a list of texts, one per row: SwanLab has no tables of text."""
        self._tracker.log({name: [self._library.Text(text) for text in _row_texts(columns, rows)]}, step=step)

    def note(self, step: int, text: str) -> None:
        """Log a warning as text."""
        self._tracker.log({"warnings": self._library.Text(text)}, step=step)

    def close(self, *, failed: bool) -> None:
        """Flush and close with the status of the run."""
        self._library.finish(*(("crashed", "the run failed") if failed else ()))


class Aim(AccelerateTracker):
    """Logs a run to the Aim repository in the working folder.

    Args:
        run: Run to log.
    """

    name = "aim"

    def __init__(self, run: TrackedRun) -> None:
        known = recall_id(run.run_dir, self.name)
        super().__init__(
            run,
            run_hash=known,
            experiment=run.project,
            system_tracking_interval=None,
            capture_terminal_logs=False,
        )
        self._service.name = run.name  # accelerate sets the name of the project
        self.configure(run, self._service.hash)

    def table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Log a table as a list of texts, one per row: Aim has no tables."""
        from aim import Text

        self._tracker.log({name: [Text(text) for text in _row_texts(columns, rows)]}, step=step)

    def note(self, step: int, text: str) -> None:
        """Log a warning."""
        self._service.log_warning(f"step {step}: {text}")


def _row_texts(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Format each row of a table as text, for services without tables."""
    return [", ".join(f"{column}: {cell}" for column, cell in zip(columns, row, strict=True)) for row in rows]
