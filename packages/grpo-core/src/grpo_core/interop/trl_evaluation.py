"""Held-out evaluation of any task while a `transformers` or TRL trainer trains: a `TrainerCallback`.

from grpo_core.interop.trl import EvaluationCallback
trainer.add_callback(EvaluationCallback("math.gsm8k", interval_steps=50, trainer=trainer))
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch  # noqa: TID253 - this module is imported only to be used inside a trainer, which has both
from transformers import Trainer, TrainerCallback  # noqa: TID253 - likewise; its class is what a trainer takes

from grpo_core.callbacks import EvalPhase
from grpo_core.engines.compatibility import max_context
from grpo_core.engines.native import NativeEngine
from grpo_core.errors import UserError
from grpo_core.evaluation.answers import evaluate_rows
from grpo_core.evaluation.entry import add_report, entry_of
from grpo_core.evaluation.plan import EvaluationPlan, settled
from grpo_core.evaluation.ranks import Alone, Ranks, evaluate_together
from grpo_core.evaluation.results import Evaluation, RowRates
from grpo_core.evaluation.sampling import EngineSampler
from grpo_core.evaluation.settings import OPEN, EvaluationSettings, Open
from grpo_core.evaluation.setup import EvaluationTask, ModelOptions, prepare_tasks
from grpo_core.plugins.models import ModelSource
from grpo_core.policy.memory import tokens_that_fit
from grpo_core.policy.policy import Policy
from grpo_core.rollouts.model_opponents import opponent_sampler
from grpo_core.rollouts.opponents import OpponentSampler
from grpo_core.scoring.metrics import MetricNames
from grpo_core.task.row import Row
from grpo_core.tracking.evaluations import evaluation_metrics
from grpo_core.training.world import World


class EvaluationCallback(TrainerCallback):
    """Evaluates the model on held-out rows when training begins, every `interval_steps` steps and when it ends.

    It samples with our engine from the trainer's own weights and draws no random number of the trainer's, so that
    training is the same with it and without. Numbers are logged as `eval/TASK/solved_rate` and so on, and what a task
    reports under its own names: through the trainer to every tracker if it is given, else to `state.log_history` alone.
    Every process evaluates its share of the rows. Weights that are sharded over processes (FSDP, DeepSpeed ZeRO-3)
    cannot be sampled from so. What is left open is as each task wishes (`EvaluationDefaults`), else as said below.

    Args:
        task: Spec of one task or several; also other ones than those trained.
        interval_steps: Evaluate every so many steps, too; None, which is ours: only at the start and the end.
        at_start: Evaluate before the first step, as we do: the control of the differences.
        at_end: Evaluate after the last step, as we do.
        trainer: Through which to log.
        settings: Rows and sampling, for every task; ours are one greedy completion for each of 512 test rows.
        loading: Of the scorers.

    Attributes:
        choices: What the tasks wish, and what their scores depend on here.
        results: (phase, step, label, entry of `summary.json`) of every evaluation so far.

    Raises:
        UserError: no such task, or one with several turns.
    """

    def __init__(
        self,
        task: str,
        *,
        interval_steps: int | Open | None = OPEN,
        at_start: bool | Open = OPEN,
        at_end: bool | Open = OPEN,
        trainer: Any = None,
        settings: EvaluationSettings | None = None,
        loading: ModelOptions | None = None,
    ) -> None:
        if isinstance(interval_steps, int) and interval_steps < 1:
            raise UserError(f"interval_steps={interval_steps} must be at least 1, or None.")
        self._loading, self._trainer = loading or ModelOptions(), trainer
        given = {} if settings is None else asdict(settings)
        self._tasks, self.choices = prepare_tasks(task, given, settings or EvaluationSettings())
        moments = {"interval_steps": interval_steps, "at_start": at_start, "at_end": at_end}
        said = {name: value for name, value in moments.items() if value is not OPEN}
        ours = {"interval_steps": None, "at_start": True, "at_end": True}
        self._plans = {
            label: EvaluationPlan(settings=asked.settings, **settled(said, asked.task, ours)[0])
            for label, asked in self._tasks.items()
        }
        self._base: dict[str, RowRates] = {}
        self._evaluated: dict[str, int] = {}
        self._resources = ExitStack()
        self._opponents: dict[str, OpponentSampler] = {}
        self._names = MetricNames()
        self.results: list[tuple[str, int, str, dict[str, Any]]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Evaluate the starting model; a training that is resumed has none."""
        if state.global_step == 0:
            self._evaluate("base", args, state, control, given)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Evaluate where an interval ends."""
        self._evaluate("interval", args, state, control, given)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Evaluate the trained model, unless an interval has just ended."""
        self._evaluate("final", args, state, control, given)
        self._resources.close()
        self._opponents.clear()

    def _evaluate(self, phase: EvalPhase, args: Any, state: Any, control: Any, given: dict[str, Any]) -> None:
        step = state.global_step
        due = [
            label
            for label, plan in self._plans.items()
            if plan.is_due(phase, step) and not (phase == "final" and self._evaluated.get(label) == step)
        ]
        if not due:
            return
        policy, ranks = _policy(args, given), _ranks(args)
        self._make_opponents(policy)
        tokens = tokens_that_fit(policy.model, policy.device, self._loading.max_batch_tokens)
        sampler = EngineSampler(
            NativeEngine(policy.model, policy.tokenizer, max_batch_tokens=tokens),
            policy.tokenizer,
            tokens_at_once=tokens,
            prompts_at_once=self._tasks[due[0]].settings.batch_size,
            max_context=max_context(policy.model),
            warn=_warn,
        )
        metrics: dict[str, float] = {}
        for label in due:
            asked = self._tasks[label]
            evaluation = self._evaluation(label, asked, policy, sampler, ranks)
            result = entry_of(evaluation, asked.task, seed=asked.settings.seed, warn=_warn)
            if phase == "base":
                self._base[label] = evaluation.rates()
            elif label in self._base:
                result |= evaluation.paired_delta(self._base[label], seed=asked.settings.seed)
            if ranks.is_main:
                where = Path(args.output_dir)
                add_report(
                    result, evaluation, asked.task, label,
                    phase=phase, step=step, folder=where, names=self._names, warn=_warn,
                )  # fmt: skip
            result["timing"] = evaluation.timing()
            self.results.append((phase, step, label, result))
            self._evaluated[label] = step
            metrics |= evaluation_metrics(label, result)
        self._log(metrics, state, control)

    def _evaluation(
        self, label: str, asked: EvaluationTask, policy: Policy, sampler: EngineSampler, ranks: Ranks
    ) -> Evaluation:
        settings = asked.settings
        with self._loading.scorer(asked.task) as scorer, policy.precision():

            def evaluate(rows: Sequence[Row]) -> Evaluation:
                return evaluate_rows(
                    asked.task,
                    rows,
                    sampler=sampler,
                    scorer=scorer,
                    sampling=settings.sampling,
                    seed=settings.seed,
                    n=settings.n,
                    opponent=self._opponents.get(label),
                    measured=policy if settings.surprisal else None,
                    warn=_warn,
                )

            return evaluate_together(asked.rows, evaluate, ranks, policy.in_step)

    def _log(self, metrics: dict[str, float], state: Any, control: Any) -> None:
        if self._trainer is None:
            state.log_history.append({**metrics, "step": state.global_step})
        else:
            is_due = control.should_log
            # Not TRL's own log: it would average and forget what the step has gathered so far.
            Trainer.log(self._trainer, metrics)
            control.should_log = is_due  # logging clears it, and the step's own numbers are still to come

    def _make_opponents(self, policy: Policy) -> None:
        """Once, so that an opponent that is the starting policy stays it."""
        for label, asked in self._tasks.items():
            if asked.task.opponent is not None and label not in self._opponents:
                self._opponents[label] = opponent_sampler(asked.task, policy, self._resources)


def _policy(args: Any, given: dict[str, Any]) -> Policy:
    """The trainer's model as our engines take it."""
    model = given["model"]
    model = getattr(model, "module", model)  # DistributedDataParallel's wrapper
    tokenizer = getattr(given["processing_class"], "tokenizer", given["processing_class"])
    name = str(getattr(model.config, "_name_or_path", ""))
    autocast = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None
    source = ModelSource("folder", name, name, "the trainer's own")
    return Policy(model, tokenizer, source, next(model.parameters()).device, autocast)


def _ranks(args: Any) -> Ranks:
    """The trainer's processes."""
    if args.world_size == 1:
        return Alone()
    return World(args.process_index, args.local_process_index, args.world_size, args.device)


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)
