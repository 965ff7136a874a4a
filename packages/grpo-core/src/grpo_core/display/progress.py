"""Progress of a training run and of an evaluation: one plain line per logged step in a pipe, a live line besides."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_core.display.live_text import closing_curve
from grpo_core.display.notebook import NotebookConsole, RunPanel, progress_console
from grpo_core.profiles.accelerator import process_options
from grpo_core.tracking.runs import ENDLESS
from grpo_sdk.callbacks import Callback, EvalPhase, RunInfo, StepRecord
from grpo_sdk.display import lines
from grpo_sdk.display.invocation import command
from grpo_sdk.display.progress import Waiting
from grpo_sdk.display.text import visible
from grpo_sdk.errors import DataError, UserError
from grpo_sdk.plugins.task_objects import is_object
from grpo_sdk.task.spec import parse_task_specs

if TYPE_CHECKING:
    from rich.console import Console

    from grpo_core.config import RunConfig

PANEL_S = 0.5
"""Shortest time between redraws of a notebook's table and curve."""

SAMPLE_EVERY_S = 10.0
"""Time between samples of completions: often enough to notice a hacked reward, rarely enough to read them."""

STEP_WEIGHT = 0.1
"""Weight of the newest step in the running mean from which the remaining time is estimated."""


class EvaluationDisplay(Waiting):
    """Shows the progress of an evaluation by itself, and leaves a line for each result."""

    def on_evaluation(self, task: str, phase: EvalPhase, result: Mapping[str, Any]) -> None:
        """Print the result of a task."""
        self.clear()
        self.say("result", lines.evaluation(result, visible(task)))


class ProgressDisplay(Waiting):
    """Shows the progress of a training run.

    Args:
        console: Console to print to.
        config: Configuration of the run.
        quiet: Show warnings only.
        every: Print a line of every so many steps, and of the first and the last; by default one of each in a pipe, and
            none in a terminal, whose live line shows the newest.
        clock: Monotonic clock, in seconds.
    """

    def __init__(
        self,
        console: Console | NotebookConsole,
        config: RunConfig,
        *,
        quiet: bool = False,
        every: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(console, quiet=quiet, clock=clock)
        self.config, self.every = config, every
        self._tasks: tuple[str, ...] = ()
        self._total: int | None = None
        self._time_limit: float | None = None
        self._started = self._sampled = self._previous = 0.0
        self._step_s: float | None = None
        self._last_step: tuple[str, ...] = ()
        self._step, self._panel, self._shown = 0, RunPanel(), float("-inf")

    def on_run_start(self, info: RunInfo) -> None:
        """Print the header of the run and the chosen values with their reasons."""
        self._tasks = tuple(info.tasks)
        self._total = None if info.total_steps is None or info.total_steps >= ENDLESS else info.total_steps
        self._time_limit = info.seconds_left
        self._step = info.step
        self._started = self._clock()
        self._sampled = self._started - SAMPLE_EVERY_S
        self.say("grpo-run", lines.header(info.tasks, info.choices))
        self.on_choices(info.choices)

    def on_evaluation(self, task: str, phase: EvalPhase, result: Mapping[str, Any]) -> None:
        """Print an evaluation; the time of the next step is measured from its end."""
        self._keep_last_step()
        self._panel.add_evaluation(self._step, task, result)
        self._show_panel(last=True)
        is_obvious = self._tasks == (task,) and self.config.eval.task is None  # games evaluate other opponents, too
        self.say(phase, lines.evaluation(result, "" if is_obvious else visible(task), "initial"))
        self._previous = self._clock()

    def on_step_end(self, step: int) -> None:
        """Record the step for evaluations."""
        self._step = step

    def on_step(self, record: StepRecord) -> None:
        """Draw the step, or print it in a pipe, and print completions every `SAMPLE_EVERY_S`."""
        now = self._clock()
        self._panel.add_step(record.step, record.metrics)
        self._show_panel(last=record.step == self._total)
        self._time_step(record, now)
        done = f"{record.step:>{len(str(self._total))}}/{self._total}" if self._total else str(record.step)
        segments = (done, *lines.step(record.metrics, self._tasks, self._eta(record.step, now)))
        is_first = not self._last_step
        if record.samples and now - self._sampled >= SAMPLE_EVERY_S:
            self._sampled = now
            self.say("sample", lines.samples(record.samples), "bold magenta")
        if self._is_live:
            self.draw("step", segments, self._share(record.step, now), last=is_first or record.step == self._total)
        is_due = self.every is not None and (is_first or record.step % self.every == 0 or record.step == self._total)
        if is_due or (self.every is None and not self._is_live):
            self.say("step", segments, gap=lines.STEP_GAP)
        self._last_step = segments

    def on_run_end(self, summary: Mapping[str, Any], run_dir: Path) -> None:
        """Print the run's folder and a command to continue with."""
        self._keep_last_step()
        steps = f"{summary.get('steps', '-')} of {self._total}" if self._total else str(summary.get("steps", "-"))
        next_command = self._next_command(run_dir)
        if summary.get("interrupted"):
            self.say("stopped", [f"after step {steps}"], "bold yellow")
            next_command = visible(command("resume", str(run_dir), *process_options()))
            if self._is_object:
                next_command = visible(f"grpo_core.resume({str(run_dir)!r}, task=…)")
        for address, usage in summary.get("judges", {}).get("usage", {}).items():
            self.say("judge", [visible(f"{address}: {usage['text']}")])
        if names := lines.warned(summary.get("warnings", ())):
            self.say("warned", names, "bold yellow")
        self._show_curve(run_dir)
        self.say("saved", [visible(str(run_dir)), f"next: {next_command}"])
        self.say("report", [visible(command("report", str(run_dir)))])

    def _show_panel(self, *, last: bool) -> None:
        """Show the table and the curve in a notebook, at most every `PANEL_S` unless `last`."""
        if self._is_live and isinstance(self.console, NotebookConsole):
            now = self._clock()
            if last or now - self._shown >= PANEL_S:
                self._shown = now
                self.console.show_panel(self._panel)

    def _show_curve(self, run_dir: Path) -> None:
        """Print the learning curve in a terminal; in a pipe, lines are for programs."""
        if not self._is_live or isinstance(self.console, NotebookConsole):
            return
        try:
            curve = closing_curve(run_dir, self.console.width - 1)
        except DataError as error:
            self.on_warning(str(error))
            return
        if curve is not None:
            self.console.print(curve)

    def _next_command(self, run_dir: Path) -> str:
        if self._is_object:
            return "result.evaluate()"
        path = str(run_dir / "training_state" / "step_final" / "model")
        path = path if path.startswith(("/", ".")) else f"./{path}"
        words = ["eval", "--task", self.config.task]
        if self.config.lora.enabled or self.config.adapter is not None:
            words += ["--model", str(self.config.model), "--adapter", path]
        else:
            words += ["--model", path]
        return visible(command(*words))

    @property
    def _is_object(self) -> bool:
        """Whether a task is an object of this process, which a command may not find."""
        return any(map(is_object, parse_task_specs(self.config.task)))

    def _keep_last_step(self) -> None:
        self.clear()
        if self._is_live and self._last_step:
            self.say("step", self._last_step, gap=lines.STEP_GAP)
        self._last_step = ()

    def _time_step(self, record: StepRecord, now: float) -> None:
        """Update the mean seconds per step from the metric `step_s`, else from the time since the previous step."""
        newest = record.metrics.get("step_s", now - (self._previous or self._started))
        self._previous = now
        self._step_s = newest if self._step_s is None else (1 - STEP_WEIGHT) * self._step_s + STEP_WEIGHT * newest

    def _eta(self, step: int, now: float) -> str:
        remaining = []
        if self._total is not None and self._step_s is not None:
            remaining.append((self._total - step) * self._step_s)
        if self._time_limit is not None:
            remaining.append(self._time_limit - (now - self._started))
        return f"ETA {lines.duration(min(remaining))}" if remaining else lines.duration(now - self._started)

    def _share(self, step: int, now: float) -> float | None:
        shares = [step / self._total] if self._total else []
        if self._time_limit:
            shares.append((now - self._started) / self._time_limit)
        return max(shares, default=None)


@contextmanager
def watched(
    callbacks: Sequence[Callback], config: RunConfig | None = None, *, progress: bool
) -> Iterator[Sequence[Callback]]:
    """The callbacks of a call from Python: with a display before them, and no bars of libraries.

    Commands have a display of their own, and have hidden the bars before the libraries were imported.

    Args:
        callbacks: The caller's.
        config: The run whose progress is shown; None shows that of an evaluation.
        progress: Whether there is a display.

    Raises:
        UserError: what is no callback.
    """
    if not (isinstance(callbacks, Sequence) and all(isinstance(callback, Callback) for callback in callbacks)):
        raise UserError(f"callbacks={callbacks!r:.80} must be a list of Callback objects: callbacks=[Mine()].")
    if any(isinstance(callback, Waiting) for callback in callbacks):
        yield callbacks
        return
    with without_bars():
        if progress:
            console = progress_console()
            with EvaluationDisplay(console) if config is None else ProgressDisplay(console, config) as display:
                yield (display, *callbacks)
        else:
            yield callbacks


@contextmanager
def without_bars() -> Iterator[None]:
    """Hide the bars of transformers and datasets, which come on every load; those of downloads stay."""
    from datasets.utils import logging as datasets_logging
    from transformers.utils import logging as transformers_logging

    # It warns of a kernel for CPUs that is not installed, when TRL imports it.
    logging.getLogger("bitsandbytes.backends").setLevel(logging.ERROR)
    libraries = (transformers_logging, datasets_logging)
    switched = [library for library in libraries if library.is_progress_bar_enabled()]
    for library in switched:
        library.disable_progress_bar()
    try:
        yield
    finally:
        for library in switched:
            library.enable_progress_bar()
