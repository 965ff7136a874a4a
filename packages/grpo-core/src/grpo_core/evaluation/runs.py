"""Every checkpoint of a run, evaluated one after the other, each in a process of its own with a time limit."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from grpo_core.callbacks import Callback, Callbacks, ResolvedDefault
from grpo_core.checkpoints import CheckpointError, CheckpointStore, check_run, evaluation_dir, read_json
from grpo_core.config import RunConfig, load_config
from grpo_core.config.resolution import task_for_model
from grpo_core.errors import UserError
from grpo_core.evaluation.held_out import held_out_tasks
from grpo_core.evaluation.output import BASE, FINAL, EvaluationFolder, check_kept, phase_of, safe_name, step_order
from grpo_core.evaluation.process import WORKER, Relay, run_worker
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.evaluation.setup import EvaluationTask, ModelOptions, prepare_tasks
from grpo_core.evaluation.worker import Job
from grpo_core.killable.importing import refuse_in_worker
from grpo_core.plugins.models import model_source
from grpo_core.plugins.tasks import bind
from grpo_core.policy.load import DTYPES
from grpo_core.prompts.mixture import task_labels
from grpo_core.scoring.conditions import condition_choices
from grpo_core.task.spec import parse_task_specs

TIMEOUT_S = 600.0
"""A checkpoint's evaluation is killed after ten minutes, as in the reference systems."""

_STEP_FOLDER = re.compile(r"step_(\d{1,18}|final)")


@dataclass(frozen=True, slots=True)
class RunEvaluation:
    """What `evaluate_run` found.

    Attributes:
        results: Task -> checkpoint -> the numbers of summary.json; the checkpoints in order, base first.
        failures: Checkpoint -> why it has no result.
        kept: Checkpoints that were evaluated before, and were left as they are.
        folders: Task -> its folder.
    """

    results: Mapping[str, Mapping[str, Mapping[str, Any]]]
    failures: Mapping[str, str]
    kept: Sequence[str]
    folders: Mapping[str, Path]

    @property
    def has_any(self) -> bool:
        """Whether at least one checkpoint has a result, the control aside."""
        return any(not step.startswith(BASE) for found in self.results.values() for step in found)


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """What is evaluated: `step_K`, `step_final` or `base`."""

    name: str
    model: str
    adapter: str | None
    steps_done: int = 0

    @property
    def is_of_run(self) -> bool:
        """Whether it is a checkpoint of the run or what it started from, and no other model."""
        return self.name == BASE or not self.name.startswith(BASE)


def evaluate_run(
    run_dir: Path | str,
    *,
    steps: str = "all",
    task: str | None = None,
    config: RunConfig | None = None,
    settings: EvaluationSettings | None = None,
    loading: ModelOptions | None = None,
    base: str | None = None,
    with_base: bool = True,
    output_dir: Path | str | None = None,
    overwrite: bool = False,
    timeout_s: float = TIMEOUT_S,
    callbacks: Sequence[Callback] = (),
    worker: Sequence[str] = WORKER,
) -> RunEvaluation:
    """Evaluate the checkpoints of a run as the run evaluates, the starting model first.

    Args:
        run_dir: Folder of the run.
        steps: `all`, or some of them: `1,5,final`, `latest`.
        task: Spec of the tasks; by default those that the run evaluates.
        config: Configuration of the run, which says the rows and the sampling; by default its config.yaml.
        settings: Settings of every task, in place of those of the configuration.
        loading: How models and scorers are set up; by default as for the run.
        base: The control; by default the model that the run started from.
        with_base: Whether there is a control at all.
        output_dir: Receives `RUN_TASK`; by default `eval_runs`, beside the folder that holds the run's.
        overwrite: Evaluate again what has a result.
        timeout_s: For one checkpoint, loading included.
        callbacks: Notified of progress, of each result and each failure.
        worker: Command of the process that evaluates one checkpoint.

    Raises:
        UserError: it is no run, it has no such checkpoint, or a result that is there is of another evaluation.
    """
    refuse_in_worker("evaluate_run()")
    everybody = Callbacks(callbacks)
    run_dir = Path(run_dir)
    check_run(run_dir)
    config = config or load_config({}, config_file=run_dir / "config.yaml", environ={}, dotenv_path=None).config
    if not timeout_s > 0:
        raise UserError(f"--timeout-s {timeout_s:g}: must be above 0 seconds.")
    chosen, failures = _checkpoints(run_dir, config, steps)
    options = loading or _model_options(config, CheckpointStore(run_dir))
    control = None
    if with_base:
        chosen = [_control(config, base), *chosen]
        control = chosen[0].name
    tasks, choices = _tasks(config, task, settings)
    everybody.on_choices(choices)
    assert config.model is not None, "a run's configuration is resolved"
    start = (config.model, config.adapter)
    output_dir = evaluation_dir(run_dir) if output_dir is None else Path(output_dir)
    folders = {label: EvaluationFolder(output_dir, run_dir.resolve().name, label) for label in tasks}
    jobs, kept = _jobs(run_dir, chosen, tasks, folders, options, start, overwrite=overwrite)
    for label, folder in folders.items():
        facts = {"run": str(run_dir), "task": tasks[label].task.spec, "steps": steps, **asdict(tasks[label].settings)}
        folder.write_config({**facts, "base": chosen[0].model if with_base else None, "timeout_s": timeout_s})
    relay = Relay(everybody)
    for name, why in failures.items():
        everybody.on_warning(f"{name} is left out: {why}")
    for name in kept:
        everybody.on_warning(
            f"{name} has been evaluated so before: its results are kept (--overwrite evaluates it again)"
        )
    started = time.monotonic()
    for job in jobs:
        why = run_worker(worker, job, timeout_s, relay)
        if why:
            failures[job.step] = why
            everybody.on_warning(f"{job.step} failed: {why}")
        else:
            _tell_results(everybody, job, folders, tasks, control)
    results = _results(folders, tasks, {checkpoint.name for checkpoint in chosen}, control)
    for label, folder in folders.items():
        seconds = round(time.monotonic() - started, 3)
        folder.write_summary(_summary(run_dir, label, results[label], failures, tasks[label].settings, seconds))
    return RunEvaluation(results, failures, kept, {label: folder.path for label, folder in folders.items()})


def _results(
    folders: Mapping[str, EvaluationFolder],
    tasks: Mapping[str, EvaluationTask],
    names: Set[str],
    control: str | None,
) -> dict[str, dict[str, dict[str, Any]]]:
    """The results of the named checkpoints, in order: task -> checkpoint -> numbers."""
    results = {}
    for label, folder in folders.items():
        found = folder.consolidate(tasks[label].settings, control)
        results[label] = {step: found[step] for step in sorted(names & found.keys(), key=step_order)}
    return results


def _tasks(
    config: RunConfig, task: str | None, settings: EvaluationSettings | None
) -> tuple[dict[str, EvaluationTask], list[ResolvedDefault]]:
    """What a run evaluates, or other tasks as it would: by label, on their held-out rows."""
    if settings is not None:
        return prepare_tasks(task or tasks_of(config), asdict(settings), settings)
    bound = [bind(spec) for spec in parse_task_specs(config.task)]
    trained, why = dict(zip(task_labels(bound), bound, strict=True)), ""
    if task is not None:
        assert config.model is not None, "a run's configuration is resolved"
        task, why = task_for_model(task, config.model)
    held, choices = held_out_tasks(config, trained, needed=None, others=task)
    if task is not None and why:
        choices = [ResolvedDefault("task", task, why), *choices]
    choices = [*condition_choices({label: each.task for label, each in held.items()}), *choices]
    return {label: EvaluationTask(each.task, each.plan.settings) for label, each in held.items()}, choices


def _model_options(config: RunConfig, store: CheckpointStore) -> ModelOptions:
    """As the run set up its model, in the precision that `auto` was there."""
    precision = config.precision
    if precision == "auto" and store.folder.is_dir():
        recorded = (_info(path).get("precision") for path in store.folder.glob("step_*"))
        precision = next((name for name in recorded if name in DTYPES), precision)
    return ModelOptions(
        device=config.device,
        precision=precision,
        engine=config.engine.name,
        max_batch_tokens=config.engine.max_batch_tokens,
        scoring=config.scoring,
        lora=config.lora.model_copy(update={"enabled": False}) if config.lora.quantization else None,
    )


def tasks_of(config: RunConfig) -> str:
    """The tasks that a run evaluates: those it trains and those of `eval.task`, each once."""
    specs = (*parse_task_specs(config.task), *(parse_task_specs(config.eval.task) if config.eval.task else ()))
    return ",".join(dict.fromkeys(str(spec) for spec in specs))


def _tell_results(
    callbacks: Callbacks,
    job: Job,
    folders: Mapping[str, EvaluationFolder],
    tasks: Mapping[str, EvaluationTask],
    control: str | None,
) -> None:
    for label in job.tasks:
        found = folders[label].consolidate(tasks[label].settings, control)[job.step]
        callbacks.on_evaluation(label, phase_of(job.step), {**found, "checkpoint": job.step})


def _checkpoints(run_dir: Path, config: RunConfig, steps: str) -> tuple[list[_Checkpoint], dict[str, str]]:
    """The checkpoints that were asked for, in order, and why some that are there cannot be used."""
    store = CheckpointStore(run_dir)
    failures: dict[str, str] = {}
    folders: dict[str, Path] = {}
    if steps.strip() == "all":
        for name in sorted(_named_like_steps(store), key=step_order):
            try:
                folders[name] = store.path(_which(name.removeprefix("step_")))
            except CheckpointError as error:
                failures[name] = str(error)
        if not folders:
            raise UserError(f"{run_dir} has no complete checkpoint{_first(failures)}")
    else:
        for word in dict.fromkeys(part.strip() for part in steps.split(",")):
            folder = store.path(_which(word))
            folders[folder.name] = folder
    found = []
    for name in sorted(folders, key=step_order):
        try:
            store.verify(folders[name])
        except CheckpointError as error:
            failures[name] = str(error)
            continue
        model = str((folders[name] / "model").resolve())
        done = _steps_done(folders[name])
        if (Path(model) / "adapter_config.json").is_file():
            assert config.model is not None, "a run's configuration is resolved"
            found.append(_Checkpoint(name, config.model, model, done))
        else:
            found.append(_Checkpoint(name, model, None, done))
    for name in {checkpoint.model for checkpoint in found}:
        model_source(name)  # the base of an adapter may have been moved away
    return found, failures


def _steps_done(folder: Path) -> int:
    match = _STEP_FOLDER.fullmatch(folder.name)
    if match and match[1] != "final":
        return int(match[1])
    step = _info(folder).get("step")
    return step if isinstance(step, int) else 0


def _info(folder: Path) -> Mapping[str, Any]:
    """What a checkpoint is of; empty where it doesn't say."""
    try:
        found = read_json(folder / "training_info.json", "training info")
    except UserError:
        return {}
    return found if isinstance(found, dict) else {}


def _named_like_steps(store: CheckpointStore) -> Iterator[str]:
    if store.folder.is_dir():
        yield from (path.name for path in store.folder.iterdir() if _STEP_FOLDER.fullmatch(path.name))


def _which(word: str) -> Any:
    if word in ("final", "latest"):
        return word
    if word.isascii() and word.isdigit() and len(word) <= 18:
        return int(word)
    raise UserError(f"--steps {word!r}: give all, or step numbers, final and latest, separated by commas: 1,5,final.")


def _control(config: RunConfig, base: str | None) -> _Checkpoint:
    model = base or config.model
    assert model is not None, "a run's configuration is resolved"
    model_source(model)
    if base is None or base == config.model:
        return _Checkpoint(BASE, model, config.adapter)
    return _Checkpoint(f"{BASE}_{safe_name(base)}", model, None)


def _jobs(
    run_dir: Path,
    chosen: Sequence[_Checkpoint],
    tasks: Mapping[str, EvaluationTask],
    folders: Mapping[str, EvaluationFolder],
    options: ModelOptions,
    start: tuple[str, str | None],
    *,
    overwrite: bool,
) -> tuple[list[Job], list[str]]:
    """What is left to do, and which checkpoints need nothing more."""
    jobs, kept = [], []
    for checkpoint in chosen:
        missing: dict[str, Path] = {}
        for label, task in ((label, asked.task) for label, asked in tasks.items()):
            settings = tasks[label].settings
            folder = folders[label].results(checkpoint.name, settings)
            wanted = {
                **settings.deciding(),
                "task": task.spec,
                "identity": task.identity,
                "conditions": task.conditions,
                "run": str(run_dir.resolve()),
                "model": checkpoint.model,
                "steps_done": checkpoint.steps_done,
                "precision": "" if options.precision == "auto" else options.precision,
            }
            if overwrite or not check_kept(folder, wanted):
                missing[label] = folder.resolve()
        if not missing:
            kept.append(checkpoint.name)
            continue
        jobs.append(
            Job(
                run=str(run_dir.resolve()),
                step=checkpoint.name,
                steps_done=checkpoint.steps_done,
                model=checkpoint.model,
                adapter=checkpoint.adapter,
                start=start,
                tasks={label: tasks[label].task.spec for label in missing},
                folders={label: str(folder) for label, folder in missing.items()},
                settings={label: asdict(tasks[label].settings) for label in missing},
                options=_as_json(options if checkpoint.is_of_run else replace(options, lora=None)),
            )
        )
    return jobs, kept


def _as_json(options: ModelOptions) -> dict[str, Any]:
    """Its fields, with sections of the configuration as mappings."""
    lora = None if options.lora is None else options.lora.model_dump()
    return {**asdict(options), "scoring": options.scoring.model_dump(), "lora": lora}


def _summary(
    run_dir: Path,
    label: str,
    found: Mapping[str, Mapping[str, Any]],
    failures: Mapping[str, str],
    settings: EvaluationSettings,
    seconds: float,
) -> dict[str, Any]:
    entry: dict[str, Any] = {"checkpoints": dict(found)}
    control = next((step for step in found if step.startswith(BASE)), "")
    # The run's own start is its phase `initial`, which version 0.1 called `base`; another model is only the base.
    for name, step in (("initial", BASE), ("base", control), ("final", FINAL)):
        if step in found:
            entry[name] = found[step]
    return {
        "tasks": {label: entry},
        "run_dir": str(run_dir),
        "failures": dict(failures),
        "settings": asdict(settings),
        "seed": settings.seed,
        "seconds": seconds,
    }


def _first(failures: Mapping[str, str]) -> str:
    return (
        f": {next(iter(failures.values()))}" if failures else "; wait for the first, or train with trainer.save_every."
    )
