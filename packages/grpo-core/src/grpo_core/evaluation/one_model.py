"""Held-out evaluation of one model or endpoint: what `grpo eval` and `grpo_core.evaluate` do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grpo_core.config import EvalConfig, RunConfig
from grpo_core.config.resolution import task_for_model
from grpo_core.evaluation.answers import EvaluatedModel, evaluate_tasks
from grpo_core.evaluation.entry import Moment, entry_of
from grpo_core.evaluation.held_out import HeldOutTask, prepare_tasks
from grpo_core.evaluation.output import BASE, EvaluationFolder, NamedModel
from grpo_core.evaluation.results import Evaluation
from grpo_core.evaluation.sampling import EndpointSampler, ToolForm, check_tool_options
from grpo_core.evaluation.settings import EvaluationSettings, ModelOptions
from grpo_core.rollouts.task_scoring import prepare_nodes
from grpo_core.tracking.monitor import diagnose_held_out
from grpo_sdk.callbacks import Callback, Callbacks, ResolvedDefault
from grpo_sdk.endpoints.openai import OpenAIEngine
from grpo_sdk.errors import UserError, near_match
from grpo_sdk.judges.service import usages
from grpo_sdk.judges.usage import Usage
from grpo_sdk.paths import check_makeable
from grpo_sdk.plugins.models import model_source
from grpo_sdk.scoring.judge_errors import known_errors

ALONE = "model"
"""Name of the results folder of a model that belongs to no run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The model that is evaluated, by name.

    Attributes:
        model: Embedded name, local folder, GGUF file or hub id; with an endpoint, its name there.
        adapter: A PEFT adapter to put on it.
        base: Another model, evaluated on the same rows as the control.
        endpoint: An OpenAI-compatible endpoint that answers in place of a model of this process.
        concurrency: Requests to the endpoint in flight.
        tool_choice: At an endpoint, whether the model has to call a tool: `auto`, `none`, `required` or a tool's name;
            None leaves it to the endpoint.
        tool_form: How the endpoint is told of the tools of a task whose prompts are messages: by its own `tools`, or in
            text, by a message of the system.
    """

    model: str
    adapter: str | None = None
    base: str | None = None
    endpoint: str | None = None
    concurrency: int = 8
    tool_choice: str | None = None
    tool_form: ToolForm = "native"

    def check(self) -> None:
        """Check the names, before anything is loaded.

        Raises:
            UserError: no such model, one that is beside an endpoint, or an option that is for endpoints.
        """
        check_tool_options(self.tool_choice, self.tool_form, is_endpoint=self.endpoint is not None)
        if self.endpoint is not None:
            if self.base is not None or self.adapter is not None:
                raise UserError(
                    "--endpoint takes neither --base nor --adapter: serve the other model and evaluate it, too."
                )
            return
        model_source(self.model)
        if self.base is not None:
            model_source(self.base)

    def check_tools(self, held: HeldOutTask) -> list[ResolvedDefault]:
        """Check the options of tools against a task; returns how its tools are told, with the reason.

        Raises:
            UserError: it has no tools, its prompts are text, or none of its tools has that name.
        """
        label, tools = held.task.label, [tool.name for tool in held.task.task.all_tools()]
        is_text = isinstance(held.task.prompt(held.rows[0]), str)
        if self.tool_choice is not None:
            choices = ("auto", "none", "required", *tools)
            if not tools or is_text or self.tool_form == "text":
                why = "has no tools" if not tools else "is asked in text, where an endpoint can't constrain calls"
                raise UserError(f"--tool-choice {self.tool_choice}: {label} {why}.")
            if self.tool_choice not in choices:
                near = near_match(self.tool_choice, choices)
                raise UserError(f"--tool-choice {self.tool_choice}: {label} takes {', '.join(choices)}.{near}")
        if not (form := self.form_of(held)):
            return []
        why = "the task's prompts are text" if is_text else "--tool-form" if form == "text" else "the endpoint's own"
        return [ResolvedDefault("tool calls", f"{label}: {form}", why)]

    def form_of(self, held: HeldOutTask) -> str:
        """How the endpoint is told of a task's tools; empty where there are none, or no endpoint."""
        if self.endpoint is None or not held.task.task.has_tools:
            return ""
        return "text" if isinstance(held.task.prompt(held.rows[0]), str) else self.tool_form


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
    """Like `grpo_core.evaluate`, with the settings that the user gives apart from the defaults.

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
    callback, scoring, why = Callbacks(callbacks), options.scoring, ""
    candidate.check()
    if candidate.endpoint is None:
        task, why = task_for_model(task, candidate.model)
    tasks, choices = prepare_tasks(task, given, defaults, rows_of_spec=True)
    nodes = prepare_nodes(scoring, [held.task for held in tasks.values()])
    choices += [choice for held in tasks.values() for choice in candidate.check_tools(held)]
    callback.on_choices([*([ResolvedDefault("task", task, why)] if why else []), *nodes, *choices])
    for label, held in tasks.items():
        rows = EvalConfig(size=held.settings.size, split=held.settings.split, subset_frac=held.settings.subset_frac)
        diagnose_held_out(RunConfig(task=held.task.spec, eval=rows), {label: len(held.rows)}, callback)
    folders = {} if output_dir is None else _new_folders(Path(output_dir), candidate.model, tasks, overwrite=overwrite)
    before = usages()
    bound = {label: held.task for label, held in tasks.items()}
    errors = known_errors(bound, scoring.timeout_s, scoring.memory_mib, callback)
    controls = {}
    if candidate.endpoint is not None:
        engine = OpenAIEngine(candidate.endpoint, candidate.model, concurrency=candidate.concurrency)
        sampler = EndpointSampler(engine, tool_choice=candidate.tool_choice, tool_form=candidate.tool_form)
        evaluations = evaluate_tasks(tasks, EvaluatedModel(sampler), options, callback)
    else:
        from grpo_core.evaluation.candidate import evaluate_model  # it imports torch

        if candidate.base is not None:
            controls = evaluate_model(candidate.base, None, tasks, options, callback)
        evaluations = evaluate_model(candidate.model, candidate.adapter, tasks, options, callback)
    callback.on_choices(usage_choices(before))
    results = {}
    for label, evaluation in evaluations.items():
        result = results[label] = _concluded(
            label, tasks[label], candidate, evaluation, controls.get(label), folders.get(label), callback
        )
        if label in errors:
            result["judges"] = [each.as_json() for each in errors[label]]
        callback.on_evaluation(label, "final", result)
    return results


def _concluded(
    label: str,
    held: HeldOutTask,
    candidate: Candidate,
    evaluation: Evaluation,
    control: Evaluation | None,
    folder: EvaluationFolder | None,
    callbacks: Callbacks,
) -> dict[str, Any]:
    """The result of one task with its control's, written where there is a folder."""
    if folder is not None:
        folder.path.mkdir(parents=True, exist_ok=True)
    moment, identity = Moment("final", folder=folder.path if folder else None), held.task.identity
    entry = entry_of(evaluation, held, label, moment, warn=callbacks.warn_once)
    if form := candidate.form_of(held):
        entry |= {"tool_form": form, "tool_choice": candidate.tool_choice}
    result = {**entry, "identity": identity, "timing": evaluation.timing()}
    written = [(NamedModel(ALONE, candidate.model, candidate.adapter), evaluation, entry)]
    if control is not None and candidate.base is not None:
        base = entry_of(control, held, label, None)
        result |= evaluation.paired_delta(control)
        result["base"] = {**base, "identity": identity, "timing": control.timing()}
        written.append((NamedModel(BASE, candidate.base), control, base))
    if folder is not None:
        for model, completions, numbers in written:
            folder.write(completions, held, numbers, model)
        _summarise(folder, held, candidate.model)
    return result


def usage_choices(before: Mapping[str, Usage]) -> list[ResolvedDefault]:
    """What each model that judges was asked since `before`, as lines to show."""
    return [
        ResolvedDefault("judge", address, usage.minus(before.get(address, Usage())).text())
        for address, usage in usages().items()
        if usage != before.get(address)  # others were asked by earlier calls in this process
    ]


def _new_folders(
    output_dir: Path, model: str, tasks: Mapping[str, HeldOutTask], *, overwrite: bool
) -> dict[str, EvaluationFolder]:
    check_makeable(output_dir, f"--eval-dir {output_dir}")
    folders = {label: EvaluationFolder(output_dir, Path(model).name, label) for label in tasks}
    for label, folder in folders.items():
        results = folder.results(ALONE, tasks[label].settings)
        if results.exists() and not overwrite:
            raise UserError(f"{results} holds an evaluation. Give another --eval-dir, or --overwrite to replace it.")
    return folders


def _summarise(folder: EvaluationFolder, held: HeldOutTask, model: str) -> None:
    settings = asdict(held.settings)
    folder.write_config({"task": held.task.spec, "model": model, **settings})
    results = folder.consolidate(held.settings, BASE)
    entry = {name: results[step] for name, step in (("base", BASE), ("final", ALONE)) if step in results}
    folder.write_summary({"tasks": {held.task.label: entry}, "settings": settings, "seed": held.settings.seed})
