"""Held-out evaluation: a fixed set of rows, greedy unless asked otherwise, every number with its interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from grpo_core.binding import BoundTask, bind
from grpo_core.callbacks import Callback
from grpo_core.config import ScoringConfig
from grpo_core.engines.native import MAX_BATCH_TOKENS
from grpo_core.engines.openai import OpenAIEngine
from grpo_core.errors import UserError
from grpo_core.evaluation.answers import evaluate_rows, unscored
from grpo_core.evaluation.memory import tokens_that_fit
from grpo_core.evaluation.output import BASE, EvaluationFolder, Meta, write_results
from grpo_core.evaluation.results import Evaluation, RowRates
from grpo_core.evaluation.rows import held_out, subset
from grpo_core.evaluation.sampling import EndpointSampler, EngineSampler, Sampler
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.mixture import task_labels
from grpo_core.model_source import model_source
from grpo_core.opponents import EndpointOpponent, OpponentSampler
from grpo_core.policy.policy import Policy
from grpo_core.scoring import Scorer
from grpo_core.task import Split
from grpo_core.taskspec import parse_task_specs

ALONE = "model"
"""What the results folder of a model that belongs to no run is called."""

__all__ = ["Evaluation", "RowRates", "evaluate", "evaluate_rows", "held_out"]


def evaluate(
    task: str,
    model: str,
    *,
    adapter: str | None = None,
    base: str | None = None,
    size: int | None = 512,
    split: Split = "test",
    subset_frac: float | None = None,
    n: int = 1,
    temperature: float = 0.0,
    top_p: float = 1.0,
    max_completion_length: int = 256,
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
) -> dict[str, dict[str, Any]]:
    """Evaluate a model on held-out rows of one task or several.

    Args:
        task: A task spec; a mixture is evaluated task by task, its weights do not matter.
        model: Embedded name, local folder, GGUF file or hub id; with an endpoint, its name there.
        adapter: A PEFT adapter to put on it.
        base: Another model, the control: evaluated on the same rows, and every result says the difference over it.
        size: Rows per task; None is all of the split.
        split: Which rows.
        subset_frac: Take this share of them, always the same ones.
        n: Completions a row; from 2 on, pass@k is reported.
        temperature: 0 is greedy.
        top_p: Nucleus sampling.
        max_completion_length: Tokens per completion; a task may need fewer.
        seed: Of sampling above temperature 0.
        batch_size: Rows answered at once; None is as many as the memory holds.
        surprisal: Also measure surprisal and entropy per token.
        device: Where.
        precision: In which floating-point type.
        max_batch_tokens: Tokens held at once on a CPU; on an accelerator its free memory decides.
        scoring: Of the worker processes that score.
        endpoint: An OpenAI-compatible endpoint that answers in place of a model of this process.
        concurrency: Requests to it in flight.
        output_dir: Receives `MODEL_TASK/` with every completion and the tables; None writes nothing.
        overwrite: Replace what is there of an earlier evaluation.
        callbacks: Told of progress and of each result.

    Returns:
        Task name -> the numbers of `summary.json`; with a base, the base's own under `base`.
    """
    settings = EvaluationSettings(
        size=size, split=split, subset_frac=subset_frac, n=n, temperature=temperature, top_p=top_p,
        max_completion_length=max_completion_length, seed=seed, batch_size=batch_size, surprisal=surprisal,
    )  # fmt: skip
    if endpoint is not None and (base is not None or adapter is not None):
        raise UserError("--endpoint takes neither --base nor --adapter: serve the other model and evaluate it, too.")
    for name in () if endpoint is not None else (model, *([base] if base is not None else [])):
        model_source(name)  # names are checked before anything is loaded
    tasks = bound_tasks(task, settings)
    folders = {} if output_dir is None else _new_folders(Path(output_dir), model, tasks, settings, overwrite=overwrite)
    loading = Loading(device=device, precision=precision, max_batch_tokens=max_batch_tokens, scoring=scoring)
    controls: dict[str, Evaluation] = {}
    if endpoint is not None:
        sampler = EndpointSampler(OpenAIEngine(endpoint, model, concurrency=concurrency))
        found = evaluate_with(sampler, tasks, settings, loading, callbacks)
    else:
        if base is not None:
            controls = evaluate_model(base, None, tasks, settings, loading, callbacks)
        found = evaluate_model(model, adapter, tasks, settings, loading, callbacks)
    results = {}
    for label, evaluation in found.items():
        results[label] = described(evaluation, tasks[label], seed)
        if label in controls:
            results[label] |= evaluation.paired_delta(controls[label], seed=seed)
            results[label]["base"] = described(controls[label], tasks[label], seed)
        if label in folders:
            named = {BASE: (base, None, controls.get(label)), ALONE: (model, adapter, evaluation)}
            _write(folders[label], named, tasks[label], settings)
        for callback in callbacks:
            callback.on_evaluation(label, "base", results[label])
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How a model and the scorers are set up; nothing of it changes a number.

    Attributes:
        device: Where the model runs.
        precision: In which floating-point type.
        max_batch_tokens: Tokens held at once on a CPU.
        scoring: Of the workers.
    """

    device: str = "auto"
    precision: str = "auto"
    max_batch_tokens: int = MAX_BATCH_TOKENS
    scoring: ScoringConfig | None = field(default=None)

    def scorer(self, task: BoundTask) -> Scorer:
        """The workers of a task."""
        scoring = self.scoring or ScoringConfig()
        return Scorer(task, workers=scoring.workers, timeout_s=scoring.timeout_s, memory_mib=scoring.memory_mib)


def bound_tasks(task: str, settings: EvaluationSettings) -> dict[str, BoundTask]:
    """The tasks of a spec on their held-out rows, by label.

    Raises:
        UserError: a task that does not exist, or has several turns.
    """
    bound = [bind(spec) for spec in parse_task_specs(task)]
    for each in bound:
        if each.task.max_turns > 1 or each.task.respond is not None:
            raise UserError(f"task {each.name!r} has several turns; this version evaluates single-turn tasks.")
    return {
        label: held_out(each, size=settings.size, split=settings.split)
        for label, each in zip(task_labels(bound), bound, strict=True)
    }


def evaluate_model(
    model: str,
    adapter: str | None,
    tasks: Mapping[str, BoundTask],
    settings: EvaluationSettings,
    loading: Loading,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Evaluation]:
    """Load a model and evaluate it on tasks, by label; arguments as for `evaluate` and its parts."""
    from grpo_core.engines.native import NativeEngine
    from grpo_core.policy.load import load_policy

    policy = load_policy(model, adapter=adapter, device=loading.device, precision=loading.precision)
    tokens = tokens_that_fit(policy.model, policy.device, loading.max_batch_tokens)
    engine = NativeEngine(policy.model.eval(), policy.tokenizer, max_batch_tokens=tokens)
    sampler = EngineSampler(
        engine,
        policy.tokenizer,
        tokens_at_once=tokens,
        prompts_at_once=settings.batch_size,
        warn=_teller(callbacks),
    )
    with policy.precision():
        return evaluate_with(sampler, tasks, settings, loading, callbacks, policy)


def evaluate_with(
    sampler: Sampler,
    tasks: Mapping[str, BoundTask],
    settings: EvaluationSettings,
    loading: Loading,
    callbacks: Sequence[Callback] = (),
    policy: Policy | None = None,
) -> dict[str, Evaluation]:
    """Evaluate whoever answers on tasks, by label.

    Args:
        sampler: Who answers.
        tasks: On their held-out rows.
        settings: Which of them, and how.
        loading: Of the scorers.
        callbacks: Told of progress and warnings.
        policy: The sampler's model, if it is of this process.
    """
    from grpo_core.engines.opponent import opponent_sampler

    warn = _teller(callbacks)
    found = {}
    for label, task in tasks.items():
        with ExitStack() as resources:
            opponent: OpponentSampler | None = None
            if task.task.opponent is not None and policy is not None:
                opponent = opponent_sampler(task, policy, resources)
            elif task.task.opponent is not None:
                opponent = _endpoint_opponent(task)
            found[label] = evaluate_rows(
                task,
                subset(task.rows(), settings.subset_frac),
                sampler=sampler,
                scorer=resources.enter_context(loading.scorer(task)),
                sampling=settings.sampling,
                seed=settings.seed,
                n=settings.n,
                opponent=opponent,
                measured=policy if settings.surprisal else None,
                progress=_progress(callbacks, label),
                warn=warn,
            )
        for reason, count in unscored(found[label]).items():
            warn(f"{label}: {count} of {len(found[label].scores)} completions were not scored: {reason}")
    return found


def meta_of(
    evaluation: Evaluation, task: BoundTask, settings: EvaluationSettings, *, run: str, step: str, model: str,
    adapter: str | None,
) -> Meta:  # fmt: skip
    """What is written beside the completions."""
    return Meta(
        run=run,
        step=step,
        model=model,
        adapter=adapter,
        task=task.spec,
        identity=task.identity,
        settings=settings.deciding(),
        summary=evaluation.summary(seed=settings.seed),
        timing=evaluation.timing(),
    )


def described(evaluation: Evaluation, task: BoundTask, seed: int) -> dict[str, Any]:
    """An entry of `summary.json`, with the task's identity and what the evaluation took."""
    return {**evaluation.summary(seed=seed), "identity": task.identity, "timing": evaluation.timing()}


def _new_folders(
    output_dir: Path, model: str, tasks: Mapping[str, BoundTask], settings: EvaluationSettings, *, overwrite: bool
) -> dict[str, EvaluationFolder]:
    folders = {label: EvaluationFolder(output_dir, Path(model).name, label) for label in tasks}
    for folder in folders.values():
        there = folder.results(ALONE, settings)
        if there.exists() and not overwrite:
            raise UserError(f"{there} holds an evaluation. Give another --eval-dir, or --overwrite to replace it.")
    return folders


def _write(
    folder: EvaluationFolder,
    evaluations: Mapping[str, tuple[str | None, str | None, Evaluation | None]],
    task: BoundTask,
    settings: EvaluationSettings,
) -> None:
    for step, (model, adapter, evaluation) in evaluations.items():
        if model is not None and evaluation is not None:
            meta = meta_of(evaluation, task, settings, run="", step=step, model=model, adapter=adapter)
            write_results(folder.results(step, settings), evaluation, meta)
    folder.write_config({"task": task.spec, "model": evaluations[ALONE][0], **asdict(settings)})
    found = folder.consolidate(settings, BASE)
    entry = {name: found[step] for name, step in (("base", BASE), ("final", ALONE)) if step in found}
    folder.write_summary({"tasks": {task.name: entry}, "settings": asdict(settings), "seed": settings.seed})


def _endpoint_opponent(task: BoundTask) -> OpponentSampler:
    assert task.task.opponent is not None
    if not OpenAIEngine.is_url(task.task.opponent.engine):
        raise UserError(
            f"task {task.name!r} has an opponent, {task.task.opponent.engine!r}, that needs a model in this process; "
            "an endpoint is none. Evaluate with --model."
        )
    return EndpointOpponent(OpenAIEngine.from_url(task.task.opponent.engine))


def _teller(callbacks: Sequence[Callback]) -> Callable[[str], None]:
    def tell(message: str) -> None:
        for callback in callbacks:
            callback.on_warning(message)

    return tell


def _progress(callbacks: Sequence[Callback], label: str) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        for callback in callbacks:
            callback.on_progress(f"evaluating {label}", done, total)

    return tell
