"""One checkpoint's evaluation in a process of its own: `python -m grpo_core.evaluation.worker`, started by `runs`.

The first line of its input is the job; the input stays open as long as whoever started it lives, and when it ends, so
does the process. Its output is one JSON object a line: `choices`, `progress`, `warning`, and at the end `error` or
`done`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from grpo_core.callbacks import Callback, Callbacks, ResolvedDefault
from grpo_core.config import EngineConfig, LoraConfig, ScoringConfig
from grpo_core.errors import ExitCode, GrpoError


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Job of a worker process, sent as JSON.

    Attributes:
        run: Folder of the run, for the record.
        step: `step_K`, `step_final` or `base`.
        steps_done: Training steps of the checkpoint.
        model: Model to load.
        adapter: Adapter to put on the model.
        start: Model and adapter that the run started from: the opponent `base`.
        tasks: Label -> what `send` returns for the task.
        folders: Label -> results folder to write.
        settings: Label -> fields of `EvaluationSettings`.
        options: Fields of `ModelOptions`, sections of the configuration as mappings.
    """

    run: str
    step: str
    steps_done: int
    model: str
    adapter: str | None
    start: tuple[str, str | None]
    tasks: Mapping[str, Sequence[str]]
    folders: Mapping[str, str]
    settings: Mapping[str, Mapping[str, Any]]
    options: Mapping[str, Any]


class Reporter(Callback):
    """Writes messages for the process that waits."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w", encoding="utf-8", buffering=1)

    def on_choices(self, choices: Sequence[ResolvedDefault]) -> None:
        """Write the choices."""
        self.say("choices", [asdict(choice) for choice in choices])

    def on_progress(self, what: str, done: int, total: int) -> None:
        """Write the progress."""
        self.say("progress", [what, done, total])

    def on_warning(self, message: str) -> None:
        """Write the warning."""
        self.say("warning", message)

    def say(self, kind: str, content: Any) -> None:
        """Write one line."""
        self._file.write(json.dumps({kind: content}) + "\n")


def evaluate_job(job: Job, callbacks: Callbacks) -> None:
    """Load the model, evaluate it on every task and write the results."""
    from grpo_core.evaluation.entry import Moment, add_report, entry_of
    from grpo_core.evaluation.evaluate import meta_of
    from grpo_core.evaluation.output import phase_of, write_results
    from grpo_core.evaluation.settings import EvaluationSettings
    from grpo_core.evaluation.setup import EvaluationTask, ModelOptions, evaluate_model
    from grpo_core.plugins.tasks import received_task

    lora = job.options["lora"]
    options = ModelOptions(
        **{
            **job.options,
            "engine": EngineConfig(**job.options["engine"]),
            "scoring": ScoringConfig(**job.options["scoring"]),
            "lora": None if lora is None else LoraConfig(**lora),
        }
    )
    tasks = {
        label: EvaluationTask(received_task(*sent), EvaluationSettings.from_json(job.settings[label]))
        for label, sent in job.tasks.items()
    }
    model, adapter = job.start  # a list by now
    evaluations = evaluate_model(job.model, job.adapter, tasks, options, callbacks, start=(model, adapter))
    for label, evaluation in evaluations.items():
        task, settings, folder = tasks[label].task, tasks[label].settings, Path(job.folders[label])
        entry = entry_of(evaluation, task, seed=settings.seed, warn=callbacks.warn_once)
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        moment = Moment(phase_of(job.step), job.steps_done, folder.parent.parent)
        add_report(entry, evaluation, task, label, moment, warn=callbacks.warn_once)
        meta = meta_of(
            evaluation, task, settings, entry, run=job.run, step=job.step, model=job.model, adapter=job.adapter
        )
        precision = "" if options.precision == "auto" else options.precision
        write_results(folder, evaluation, replace(meta, precision=precision, steps_done=job.steps_done))


def main() -> int:
    """Do the job on standard input."""
    job = Job(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_input, daemon=True).start()
    reporter = Reporter(os.dup(1))
    os.dup2(2, 1)  # what libraries and plugins print must not be taken for a message
    try:
        evaluate_job(job, Callbacks([reporter]))
    except GrpoError as error:
        reporter.say("error", str(error))
        return error.exit_code
    reporter.say("done", True)
    return ExitCode.DONE


def _end_with_input() -> None:
    # Not sys.stdin.read: its lock, held at the end, is a fatal error of the interpreter.
    while os.read(0, 1):
        pass
    os._exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
