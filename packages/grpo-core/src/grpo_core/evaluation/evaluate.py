"""Held-out evaluation: a fixed set of rows, greedy unless asked otherwise, every number with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_core.config import EngineConfig, ScoringConfig
from grpo_core.config.resolution import task_for_model
from grpo_core.display.notebook import progress_console
from grpo_core.display.progress import EvaluationDisplay, watched
from grpo_core.display.results import as_html, as_text, evaluation_table
from grpo_core.engines.native import MAX_BATCH_TOKENS
from grpo_core.evaluation.answers import EvaluatedModel, evaluate_rows
from grpo_core.evaluation.entry import Moment, add_report, entry_of
from grpo_core.evaluation.output import BASE, EvaluationFolder, Meta, write_results
from grpo_core.evaluation.results import Evaluation, RowRates
from grpo_core.evaluation.sampling import EndpointSampler
from grpo_core.evaluation.settings import OPEN, EvaluationSettings, Open
from grpo_core.evaluation.setup import (
    EvaluationTask,
    ModelOptions,
    evaluate_model,
    evaluate_tasks,
    prepare_tasks,
    warn_of_few_rows,
)
from grpo_sdk.callbacks import Callback, Callbacks, ResolvedDefault
from grpo_sdk.check.overlap import held_out
from grpo_sdk.endpoints.openai import OpenAIEngine
from grpo_sdk.errors import UserError
from grpo_sdk.judges.service import usages
from grpo_sdk.judges.usage import Usage
from grpo_sdk.killable.importing import refuse_in_worker
from grpo_sdk.paths import check_makeable
from grpo_sdk.plugins.models import model_source
from grpo_sdk.plugins.task_objects import Tasks, name_tasks
from grpo_sdk.scoring.judge_errors import known_errors
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.row import Split

if TYPE_CHECKING:
    from rich.table import Table

ALONE = "model"
"""Name of the results folder of a model that belongs to no run."""

__all__ = ["Evaluation", "EvaluationResults", "RowRates", "evaluate", "evaluate_rows", "held_out"]


def evaluate(
    task: Tasks,
    model: str,
    *,
    adapter: str | None = None,
    base: str | None = None,
    size: int | Open | None = OPEN,
    split: Split | Open = OPEN,
    subset_frac: float | None = None,
    n: int | Open = OPEN,
    temperature: float | Open = OPEN,
    top_p: float | Open = OPEN,
    max_completion_length: int | Open = OPEN,
    seed: int = 0,
    batch_size: int | None = None,
    surprisal: bool = True,
    device: str = "auto",
    precision: str = "auto",
    max_batch_tokens: int = MAX_BATCH_TOKENS,
    scoring: ScoringConfig | None = None,
    endpoint: str | None = None,
    concurrency: int = 8,
    output_dir: Path | str | None = None,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> EvaluationResults:
    """Evaluate a model on held-out rows of one task or several.

    Settings that are not given come from the task (`EvaluationDefaults`), else they are as below.

    Args:
        task: A task spec, a `Task` object, or a list of these; a mixture is evaluated task by task, its weights do not
            matter.
        model: Embedded name, local folder, GGUF file or hub id; with an endpoint, its name there.
        adapter: A PEFT adapter to put on it.
        base: Another model, the control: evaluated on the same rows, and every result says the difference over it.
        size: Rows per task, 512; None is all of the split.
        split: Split of the rows: that of the spec (`TASK?split=train`), else `test`.
        subset_frac: Share of the rows to evaluate, always the same ones.
        n: Completions a row, 1; from 2 on, pass@k is reported.
        temperature: 0, greedy; 0.7 for several completions a row.
        top_p: Nucleus sampling, 1.
        max_completion_length: Tokens per completion, 256; a task may need fewer.
        seed: Seed of sampling above temperature 0.
        batch_size: Rows answered at once; None is as many as the memory holds.
        surprisal: Also measure surprisal and entropy per token.
        device: Device of the model.
        precision: Floating-point type of the model's products.
        max_batch_tokens: Tokens held at once on a CPU; on an accelerator its free memory decides.
        scoring: The scorers' worker processes.
        endpoint: An OpenAI-compatible endpoint that answers in place of a model of this process.
        concurrency: Requests to it in flight.
        output_dir: Receives `MODEL_TASK/` with every completion and the tables; None writes nothing.
        overwrite: Replace what is there of an earlier evaluation.
        callbacks: Notified of what was chosen, of progress and of each result.
        progress: Show progress: in a terminal, a notebook's cell, or as lines on stderr.

    Returns:
        Task name -> the numbers of `summary.json`; with a base, the base's own under `base`. Its `repr` is a table.
    """
    refuse_in_worker("evaluate()")
    settings = {
        "size": size, "split": split, "n": n, "temperature": temperature, "top_p": top_p,
        "max_completion_length": max_completion_length,
    }  # fmt: skip
    named = name_tasks(task)  # keeps objects until the end
    with watched(callbacks, EvaluationDisplay(progress_console()) if progress else None) as watching:
        results = evaluate_as(
            named.spec,
            Candidate(model=model, adapter=adapter, base=base, endpoint=endpoint, concurrency=concurrency),
            {name: value for name, value in settings.items() if value is not OPEN},
            EvaluationSettings(subset_frac=subset_frac, seed=seed, batch_size=batch_size, surprisal=surprisal),
            ModelOptions(
                device=device,
                precision=precision,
                engine=EngineConfig(max_batch_tokens=max_batch_tokens),
                scoring=scoring or ScoringConfig(),
            ),
            output_dir=output_dir,
            overwrite=overwrite,
            callbacks=watching,
        )
    return EvaluationResults(results)


class EvaluationResults(dict[str, dict[str, Any]]):
    """Task name -> the numbers of `summary.json`, shown as a table."""

    def __repr__(self) -> str:
        return as_text(self._table())

    def _repr_html_(self) -> str:
        return as_html(self._table())

    def _table(self) -> Table:
        return evaluation_table("task", self.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The model that is evaluated, by name.

    Attributes:
        model: Embedded name, local folder, GGUF file or hub id; with an endpoint, its name there.
        adapter: A PEFT adapter to put on it.
        base: Another model, evaluated on the same rows as the control.
        endpoint: An OpenAI-compatible endpoint that answers in place of a model of this process.
        concurrency: Requests to the endpoint in flight.
    """

    model: str
    adapter: str | None = None
    base: str | None = None
    endpoint: str | None = None
    concurrency: int = 8

    def check(self) -> None:
        """Check the names, before anything is loaded.

        Raises:
            UserError: no such model, or one that is beside an endpoint.
        """
        if self.endpoint is not None:
            if self.base is not None or self.adapter is not None:
                raise UserError(
                    "--endpoint takes neither --base nor --adapter: serve the other model and evaluate it, too."
                )
            return
        model_source(self.model)
        if self.base is not None:
            model_source(self.base)


def evaluate_as(
    task: str,
    candidate: Candidate,
    given: Mapping[str, Any],
    defaults: EvaluationSettings,
    options: ModelOptions,
    *,
    output_dir: Path | str | None = None,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
) -> dict[str, dict[str, Any]]:
    """Like `evaluate`, with the settings that the user gives apart from the defaults.

    Args:
        task: A task spec.
        candidate: The model, and what it is compared with.
        given: Settings that the user gives, by the names of `EvaluationSettings`.
        defaults: Settings where neither the user nor the task gives one.
        options: How model and scorers are set up.
        output_dir: Receives `MODEL_TASK/`; None writes nothing.
        overwrite: Replace the results of an earlier evaluation.
        callbacks: Notified of choices, progress and results.
    """
    refuse_in_worker("evaluate()")
    callback = Callbacks(callbacks)
    candidate.check()
    why = ""
    if candidate.endpoint is None:
        task, why = task_for_model(task, candidate.model)
    tasks, choices = prepare_tasks(task, given, defaults, options.scoring, rows_of_spec=True)
    callback.on_choices([*([ResolvedDefault("task", task, why)] if why else []), *choices])
    warn_of_few_rows(tasks, callback)
    folders = {} if output_dir is None else _new_folders(Path(output_dir), candidate.model, tasks, overwrite=overwrite)
    bound = {label: each.task for label, each in tasks.items()}
    before = usages()
    errors = known_errors(bound, options.scoring.timeout_s, options.scoring.memory_mib, callback)
    evaluations, controls = _evaluated(candidate, tasks, options, callback)
    callback.on_choices(usage_choices(before))
    results = {}
    for label, evaluation in evaluations.items():
        control = controls.get(label)
        result = results[label] = _concluded(
            label, tasks[label], candidate, evaluation, control, folders.get(label), callback
        )
        if label in errors:
            result["judges"] = [each.as_json() for each in errors[label]]
        callback.on_evaluation(label, "final", result)
    return results


def _evaluated(
    candidate: Candidate, tasks: Mapping[str, EvaluationTask], options: ModelOptions, callbacks: Callbacks
) -> tuple[dict[str, Evaluation], dict[str, Evaluation]]:
    """Evaluations of the candidate and of its control, by label."""
    if candidate.endpoint is not None:
        engine = OpenAIEngine(candidate.endpoint, candidate.model, concurrency=candidate.concurrency)
        return evaluate_tasks(tasks, EvaluatedModel(EndpointSampler(engine)), options.scoring, callbacks), {}
    controls = {}
    if candidate.base is not None:
        controls = evaluate_model(candidate.base, None, tasks, options, callbacks)
    return evaluate_model(candidate.model, candidate.adapter, tasks, options, callbacks), controls


def _concluded(
    label: str,
    prepared: EvaluationTask,
    candidate: Candidate,
    evaluation: Evaluation,
    control: Evaluation | None,
    folder: EvaluationFolder | None,
    callbacks: Callbacks,
) -> dict[str, Any]:
    """The result of one task with its control's, written where there is a folder."""
    task, settings, warn = prepared.task, prepared.settings, callbacks.warn_once
    entry = entry_of(evaluation, task, seed=settings.seed, warn=warn)
    if folder is not None:
        folder.path.mkdir(parents=True, exist_ok=True)
    moment = Moment("final", folder=None if folder is None else folder.path)
    add_report(entry, evaluation, task, label, moment, warn=warn)
    result = described(entry, evaluation, task)
    written = [(ALONE, candidate.model, candidate.adapter, evaluation, entry)]
    if control is not None:
        assert candidate.base is not None, "the control is the base"
        base = entry_of(control, task, seed=settings.seed)
        result |= evaluation.paired_delta(control)
        result["base"] = described(base, control, task)
        written.append((BASE, candidate.base, None, control, base))
    if folder is not None:
        for step, model, adapter, results, numbers in written:
            meta = meta_of(results, task, settings, numbers, run="", step=step, model=model, adapter=adapter)
            write_results(folder.results(step, settings), results, meta)
        _summarise(folder, prepared, candidate.model)
    return result


def usage_choices(before: Mapping[str, Usage]) -> list[ResolvedDefault]:
    """What each model that judges was asked since `before`, as lines to show."""
    return [
        ResolvedDefault("judge", address, usage.minus(before.get(address, Usage())).text())
        for address, usage in usages().items()
        if usage != before.get(address)  # others were asked by earlier calls in this process
    ]


def meta_of(
    evaluation: Evaluation, task: BoundTask, settings: EvaluationSettings, entry: Mapping[str, Any], *, run: str,
    step: str, model: str, adapter: str | None,
) -> Meta:  # fmt: skip
    """Facts that are written beside the completions; the entry is made by `entry_of`."""
    return Meta(
        run=run,
        step=step,
        model=model,
        adapter=adapter,
        task=task.spec,
        identity=task.identity,
        settings=settings.deciding(),
        summary=entry,
        timing=evaluation.timing(),
        conditions=task.conditions,
    )


def described(entry: Mapping[str, Any], evaluation: Evaluation, task: BoundTask) -> dict[str, Any]:
    """An entry of `summary.json` with the task's identity and what the evaluation took."""
    return {**entry, "identity": task.identity, "timing": evaluation.timing()}


def _new_folders(
    output_dir: Path, model: str, tasks: Mapping[str, EvaluationTask], *, overwrite: bool
) -> dict[str, EvaluationFolder]:
    check_makeable(output_dir, f"--eval-dir {output_dir}")
    folders = {label: EvaluationFolder(output_dir, Path(model).name, label) for label in tasks}
    for label, folder in folders.items():
        results = folder.results(ALONE, tasks[label].settings)
        if results.exists() and not overwrite:
            raise UserError(f"{results} holds an evaluation. Give another --eval-dir, or --overwrite to replace it.")
    return folders


def _summarise(folder: EvaluationFolder, prepared: EvaluationTask, model: str | None) -> None:
    task, settings = prepared.task, prepared.settings
    folder.write_config({"task": task.spec, "model": model, **asdict(settings)})
    results = folder.consolidate(settings, BASE)
    entry = {name: results[step] for name, step in (("base", BASE), ("final", ALONE)) if step in results}
    folder.write_summary({"tasks": {task.label: entry}, "settings": asdict(settings), "seed": settings.seed})
