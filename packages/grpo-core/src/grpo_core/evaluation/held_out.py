"""Evaluation inside a training run: the same held-out rows at its start, every few steps and at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from grpo_core.binding import BoundTask, bind
from grpo_core.callbacks import Callback, Choice, EvalPhase
from grpo_core.config import RunConfig
from grpo_core.engines.base import Engine
from grpo_core.engines.opponent import opponent_sampler
from grpo_core.errors import UserError
from grpo_core.evaluation.answers import evaluate_rows, unscored
from grpo_core.evaluation.evaluate import Loading, meta_of
from grpo_core.evaluation.output import BASE, META, EvaluationFolder, flat, read_meta, write_results
from grpo_core.evaluation.results import Evaluation, RowRates
from grpo_core.evaluation.rows import held_out, subset, trained_rows
from grpo_core.evaluation.sampling import EngineSampler
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.opponents import OpponentSampler
from grpo_core.policy.policy import Policy
from grpo_core.scoring import Scorer
from grpo_core.task import Row
from grpo_core.taskspec import parse_task_specs

NOT_LOGGED = frozenset({"temperature", "top_p", "completions_per_row"})
"""Numbers of a summary that are settings and no results."""


def held_out_tasks(config: RunConfig, trained: Mapping[str, BoundTask]) -> tuple[dict[str, BoundTask], list[Choice]]:
    """The tasks that a run evaluates, on their held-out rows: the trained ones and those of `eval.task`.

    Args:
        config: Of the run.
        trained: The trained tasks, by label.

    Returns:
        (label -> task, what was chosen and what the user should know).

    Raises:
        UserError: a task of `eval.task` does not exist, or has several turns.
    """
    wanted = dict(trained)
    specs = {task.spec for task in trained.values()}
    for spec in parse_task_specs(config.eval.task) if config.eval.task else ():
        task = bind(spec)
        if task.spec in specs:
            continue
        if task.task.max_turns > 1 or task.task.respond is not None:
            raise UserError(f"eval.task={config.eval.task}: {task.name!r} has several turns; this version has one.")
        wanted[task.spec if task.name in wanted else task.name] = task
    found, said = {}, []
    for label, task in wanted.items():
        found[label] = held = held_out(task, size=config.eval.size, split=config.eval.split)
        there, asked = len(held.rows()), config.eval.size
        if asked is not None and there < asked:
            said.append(Choice("held-out", f"{label}: {there} rows", f"eval.size={asked}, and only {there} exist"))
        rows = subset(held.rows(), config.eval.subset_frac)
        known = sum(trained_rows(each, rows, held) for each in trained.values())
        if known:
            why = f"{known} of {len(rows)} held-out prompts are also trained on; what they show is memory"
            said.append(Choice("held-out", f"{label}: not disjoint", why))
    return found, said


class HeldOutEvaluator:
    """Evaluates a policy while it is trained, always on the same rows, and compares with its start.

    Args:
        config: Of the run; `eval.*` says how.
        policy: In training.
        engine: Samples from it; synced by whoever trains.
        tasks: Of `held_out_tasks`.
        resources: Receives the scorers and opponents that are made here.
        scorers: Those that are there already, by label.
        opponents: Likewise.
        run: Folder of the run; None writes no files.
        callbacks: Told of progress, results and warnings.
        should_stop: Asked after every completion.

    Attributes:
        settings: How it evaluates.
        results: Label -> phase -> entry of `summary.json`; of the interval evaluations the newest.
    """

    def __init__(
        self,
        config: RunConfig,
        policy: Policy,
        engine: Engine,
        tasks: Mapping[str, BoundTask],
        resources: ExitStack,
        *,
        scorers: Mapping[str, Scorer] | None = None,
        opponents: Mapping[str, OpponentSampler] | None = None,
        run: Path | None = None,
        callbacks: Sequence[Callback] = (),
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.settings = settings_of(config)
        self.results: dict[str, dict[str, dict[str, Any]]] = {label: {} for label in tasks}
        self._config, self._policy, self._tasks, self._callbacks = config, policy, tasks, callbacks
        self._should_stop = should_stop
        self._rows = {label: subset(task.rows(), self.settings.subset_frac) for label, task in tasks.items()}
        self._base: dict[str, RowRates] = {}
        self._newest: dict[tuple[str, int], Evaluation] = {}  # the end may fall on an interval: no need to do it twice
        loading = Loading(scoring=config.scoring)
        self._scorers = {
            label: (scorers or {}).get(label) or resources.enter_context(loading.scorer(task))
            for label, task in tasks.items()
        }
        self._opponents = {
            label: (opponents or {}).get(label) or opponent_sampler(task, policy, resources)
            for label, task in tasks.items()
            if task.task.opponent is not None
        }
        self._sampler = EngineSampler(
            engine,
            policy.tokenizer,
            tokens_at_once=config.engine.max_batch_tokens,
            prompts_at_once=self.settings.batch_size,
            warn=self._warn,
        )
        self._folders: dict[str, EvaluationFolder] = {}
        self._run = run
        if run is not None:
            output_dir = evaluation_dir(config)
            self._folders = {label: EvaluationFolder(output_dir, run.resolve().name, label) for label in tasks}

    def due(self, step: int) -> bool:
        """Whether an interval evaluation follows this step."""
        every = self._config.eval.interval_steps
        return every is not None and step > 0 and step % every == 0

    def run(self, phase: EvalPhase, step: int) -> dict[str, float]:
        """Evaluate every task and tell the callbacks; the first evaluation of phase `base` is what others compare with.

        Args:
            phase: `base` before the first step, `interval` or `final`.
            step: Steps done.

        Returns:
            `eval/TASK/solved_rate` and the other metrics.

        Raises:
            StopRequested: `should_stop` said so; tasks done until then are in `results`.
        """
        metrics: dict[str, float] = {}
        for label, task in self._tasks.items():
            what = f"{phase} evaluation of {label}" if phase != "interval" else f"evaluation of {label} at step {step}"
            evaluation = self._newest.pop((label, step), None) or self.evaluate_rows(label, self._rows[label], what)
            self._newest = {key: kept for key, kept in self._newest.items() if key[1] == step}
            self._newest[label, step] = evaluation
            result = evaluation.summary(seed=self.settings.seed)
            if phase == "base":
                self._base[label] = evaluation.rates()
            elif label in self._base:
                result |= evaluation.paired_delta(self._base[label], seed=self.settings.seed)
            self.results[label][phase] = result
            for reason, count in unscored(evaluation).items():
                self._warn(f"{label}: {count} of {len(evaluation.scores)} completions were not scored: {reason}")
            self._write(label, task, phase, step, evaluation)
            metrics |= _metrics(label, {**result, **evaluation.timing()})
            for callback in self._callbacks:
                callback.on_evaluation(label, phase, result)
        return metrics

    def evaluate_rows(self, label: str, rows: Sequence[Row], what: str) -> Evaluation:
        """Evaluate some rows of a task, as a ladder's rung; nothing is told but progress.

        Args:
            label: Of the task.
            rows: Of the task.
            what: What the progress calls it.

        Raises:
            StopRequested: `should_stop` said so.
        """
        with self._policy.precision():
            return evaluate_rows(
                self._tasks[label],
                rows,
                sampler=self._sampler,
                scorer=self._scorers[label],
                sampling=self.settings.sampling,
                seed=self.settings.seed,
                n=self.settings.n,
                opponent=self._opponents.get(label),
                measured=self._policy if self.settings.surprisal else None,
                progress=self._progress(what),
                should_stop=self._should_stop,
                warn=self._warn,
            )

    def state(self) -> dict[str, Any]:
        """What a run that goes on compares with, as JSON."""
        base = {label: rates.as_json() for label, rates in self._base.items()}
        return {"base": base, "results": self.results}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; a task that is new has no control."""
        self._base = {
            label: RowRates.from_json(rates) for label, rates in state["base"].items() if label in self._tasks
        }
        for label, results in state["results"].items():
            if label in self.results:
                self.results[label] = {phase: dict(result) for phase, result in results.items()}

    def _write(self, label: str, task: BoundTask, phase: EvalPhase, step: int, evaluation: Evaluation) -> None:
        if label not in self._folders:
            return
        folder = self._folders[label]
        name = {"base": BASE, "interval": f"step_{step}", "final": "step_final"}[phase]
        target, run = folder.results(name, self.settings), str(self._run.resolve() if self._run else "")
        meta = meta_of(
            evaluation, task, self.settings, run=run, step=name, model=self._policy.source.name, adapter=None
        )
        try:
            if (target / META).is_file() and read_meta(target).run != run:
                raise UserError(f"{target} belongs to another run of this name; it is left as it is.")
            write_results(target, evaluation, meta)
            folder.write_config({"task": task.spec, "run": run, **self.settings.deciding()})
            folder.consolidate(self.settings, BASE)
        except (UserError, OSError) as error:  # a full disk here must not end the training
            self._warn(f"the evaluation's files are not written: {error}")

    def _progress(self, what: str) -> Callable[[int, int], None]:
        def tell(done: int, total: int) -> None:
            for callback in self._callbacks:
                callback.on_progress(what, done, total)

        return tell

    def _warn(self, message: str) -> None:
        for callback in self._callbacks:
            callback.on_warning(message)


def settings_of(config: RunConfig) -> EvaluationSettings:
    """How a run evaluates, as its configuration says.

    Raises:
        UserError: several greedy completions a row.
    """
    held = config.eval
    return EvaluationSettings(
        size=held.size,
        split=held.split,
        subset_frac=held.subset_frac,
        n=held.n,
        temperature=held.temperature,
        top_p=held.top_p,
        max_completion_length=held.max_completion_length or config.trainer.max_completion_length,
        seed=config.seed,
        batch_size=held.batch_size,
        surprisal=held.surprisal,
    )


def evaluation_dir(config: RunConfig) -> Path:
    """Where evaluations of a run are written: `eval_runs`, beside the folder that holds the runs."""
    return Path(config.output_dir).absolute().parent / "eval_runs"


def _metrics(label: str, result: Mapping[str, Any]) -> dict[str, float]:
    """`eval/TASK/…` of everything in a result that is a number."""
    return {
        f"eval/{label}/{name}": float(value)
        for name, value in flat(result).items()
        if isinstance(value, int | float) and name not in NOT_LOGGED
    }
