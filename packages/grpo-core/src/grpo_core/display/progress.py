"""Progress displays: a live line in a terminal, one plain line per logged step in a pipe."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.text import Text

from grpo_core.callbacks import Callback, EvalPhase, Finding, ResolvedDefault, RunInfo, StepRecord
from grpo_core.display import lines
from grpo_core.display.invocation import command
from grpo_core.display.libraries import without_bars
from grpo_core.display.live_text import closing_curve
from grpo_core.display.notebook import NotebookConsole, RunPanel
from grpo_core.display.text import visible
from grpo_core.errors import DataError
from grpo_core.plugins.task_objects import is_object
from grpo_core.profiles.accelerator import process_options
from grpo_core.task.spec import parse_task_specs
from grpo_core.task.watching import watching
from grpo_core.tracking.runs import ENDLESS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from grpo_core.config import RunConfig

REDRAW_S = 0.1
"""Shortest time between redraws; each costs about a millisecond."""

PANEL_S = 0.5
"""Shortest time between redraws of a notebook's table and curve."""

SAMPLE_EVERY_S = 10.0
"""Time between samples of completions: often enough to notice a hacked reward, rarely enough to read them."""

REPORT_FIRST_S = 2.0
"""Time after which work that is not done gets its first progress line in a pipe."""

REPORT_EVERY_S = 15.0
"""Time between progress lines in a pipe."""

TICK_S = 1.0
"""Time between repetitions of the newest progress."""

STEP_WEIGHT = 0.1
"""Weight of the newest step in the running mean from which the remaining time is estimated."""

MIN_BAR_WIDTH, MAX_BAR_WIDTH = 8, 24
"""Columns of the progress bar."""


class Waiting(Callback):
    """Shows progress and warnings of a command.

    A context manager that removes the live line however the work ends.

    Args:
        console: Console to print to: stderr, since stdout is for results; or the output of a notebook's cell.
        quiet: Show warnings only.
        clock: Monotonic clock, in seconds.
    """

    def __init__(
        self,
        console: Console | NotebookConsole,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console, self.quiet, self._clock = console, quiet, clock
        self._is_live = console.is_terminal and not console.is_dumb_terminal and not quiet
        self._live: Live | NotebookConsole | None = None
        self._drawn = float("-inf")
        self._reported: float | None = None
        self._activity = ("", 0, 0.0)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(watching(self.on_progress))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
        self.clear()

    def on_progress(self, what: str, done: int, total: int) -> None:
        """Draw the progress; in a pipe, print it after `REPORT_FIRST_S`, then every `REPORT_EVERY_S`.

        Args:
            what: What is done.
            done: Parts of it that are done.
            total: All of its parts; 0 where that is unknown.
        """
        segments = [visible(what), f"{done}/{total}" if total else "…", self._time_left(what, done, total)]
        if self._is_live:
            self.draw("working", segments, done / total if total else None, last=done >= total)
        elif self._reported is None:
            self._reported = self._clock() - REPORT_EVERY_S + REPORT_FIRST_S
        elif self._clock() - self._reported >= REPORT_EVERY_S and (done < total or not total):
            self._reported = self._clock()
            self.say("working", segments)

    @contextmanager
    def ticking(self, what: str) -> Iterator[Callable[[str, int, int], None]]:
        """Repeat the newest progress every second, so that a long piece of work is not silent.

        Args:
            what: What is done until progress is reported.

        Yields:
            Function that reports progress, like `on_progress`.
        """
        newest, ended = [(what, 0, 0)], threading.Event()

        def report(what: str, done: int, total: int) -> None:
            newest[0] = (what, done, total)

        def repeat() -> None:
            while not ended.is_set():
                self.on_progress(*newest[0])
                ended.wait(TICK_S)

        thread = threading.Thread(target=repeat, name="progress", daemon=True)
        thread.start()
        try:
            yield report
        finally:
            ended.set()
            thread.join()

    def _time_left(self, what: str, done: int, total: int) -> str:
        """The remaining time by the work done since an activity was first reported; empty where it is unknown."""
        activity = what.partition(",")[0]
        if activity != self._activity[0] or done < self._activity[1]:
            self._activity = (activity, done, self._clock())
        _, begin, since = self._activity
        if not begin < done < total:
            return ""
        return f"ETA {lines.duration((self._clock() - since) / (done - begin) * (total - done))}"

    def on_choices(self, choices: Sequence[ResolvedDefault]) -> None:
        """Print the chosen values with their reasons."""
        for index, reason in enumerate(lines.reasons(choices)):
            self.say("why" if index == 0 else "", [reason])

    def on_warning(self, message: str) -> None:
        """Print the warning, also when quiet."""
        text = Text(lines.fold("warning", [visible(message)], self.console.width if self.console.is_terminal else None))
        text.stylize("yellow", 0, len("warning"))
        self.console.print(text, soft_wrap=True)

    def on_diagnosis(self, finding: Finding) -> None:
        """Print what was found, why it matters and what to try, also when quiet."""
        self.on_warning(finding.headline)
        for part in (f"why: {finding.why}", f"try: {finding.fix}"):
            text = lines.fold("", [visible(part)], self.console.width if self.console.is_terminal else None)
            self.console.print(Text(text), soft_wrap=True)

    def say(self, label: str, segments: Sequence[str], style: str = "bold cyan", gap: str = lines.GAP) -> None:
        """Print a permanent line above the live one."""
        if self.quiet:
            return
        text = Text(lines.fold(label, segments, self.console.width if self.console.is_terminal else None, gap))
        text.stylize(style, 0, len(label))
        self.console.print(text, soft_wrap=True)

    def draw(self, label: str, segments: Sequence[str], share: float | None, *, last: bool = False) -> None:
        """Replace the live line, at most every `REDRAW_S` unless `last`."""
        now = self._clock()
        if now - self._drawn < REDRAW_S and not last:
            return
        self._drawn = now
        bar = 0 if share is None else len(lines.STEP_GAP) + MIN_BAR_WIDTH
        line = lines.crop(label, segments, self.console.width - bar, lines.STEP_GAP)
        text = Text(line, no_wrap=True, overflow="ellipsis")
        text.stylize("bold cyan", 0, len(label))
        room = self.console.width - len(text) - len(lines.STEP_GAP)
        if share is not None and room >= MIN_BAR_WIDTH:
            width = min(room, MAX_BAR_WIDTH)
            filled = round(width * min(1.0, share))
            text.append(lines.STEP_GAP).append("━" * filled, "green").append("━" * (width - filled), "bright_black")
        if self._live is None:
            self._live = self._new_live()
            self._live.start()
        self._live.update(text, refresh=True)

    def _new_live(self) -> Live | NotebookConsole:
        if isinstance(self.console, NotebookConsole):
            return self.console
        from rich.live import Live

        # stdout is not redirected: code that redirects it meanwhile could not restore it in order.
        return Live(console=self.console, auto_refresh=False, transient=True, redirect_stdout=False)

    def clear(self) -> None:
        """Remove the live line."""
        if self._live is not None:
            self._live.stop()
            self._live = None


class EvaluationDisplay(Waiting):
    """Shows the progress of an evaluation by itself, and leaves a line for each result."""

    def on_evaluation(self, task: str, phase: EvalPhase, result: Mapping[str, Any]) -> None:
        """Print the result of a task."""
        self.clear()
        self.say("result", lines.evaluation(result, visible(task)))


@contextmanager
def watched(callbacks: Sequence[Callback], display: Waiting | None) -> Iterator[Sequence[Callback]]:
    """The callbacks of a call from Python: with the display before them, if there is one, and no bars of libraries."""
    with without_bars():
        if display is None:
            yield callbacks
            return
        with display:
            yield (display, *callbacks)


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
