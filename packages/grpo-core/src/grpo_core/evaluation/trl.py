"""Held-out evaluation of any task while a `transformers` or TRL trainer trains: a `TrainerCallback`.

from grpo_core.interop.trl import EvaluationCallback
trainer.add_callback(EvaluationCallback("math.gsm8k", interval_steps=50, trainer=trainer))
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback

from grpo_core.engines.native import NativeEngine
from grpo_core.evaluation.answers import EvaluationHooks, evaluate_rows
from grpo_core.evaluation.candidate import in_process
from grpo_core.evaluation.entry import Moment, entry_of
from grpo_core.evaluation.held_out import prepare_tasks
from grpo_core.evaluation.plan import EvaluationPlan, settled
from grpo_core.evaluation.results import RowRates
from grpo_core.evaluation.settings import OPEN, EvaluationSettings, ModelOptions, Open
from grpo_core.policy.memory import tokens_that_fit
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.rollouts.task_scoring import Scoring
from grpo_core.tracking.evaluations import evaluation_metrics
from grpo_sdk.callbacks import EvalPhase
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.models import ModelSource
from grpo_sdk.plugins.task_objects import Tasks, name_tasks
from grpo_sdk.scoring.metrics import MetricNames

__all__ = ["EvaluationCallback"]


class EvaluationCallback(TrainerCallback):
    """Evaluates the model on held-out rows when training begins, every `interval_steps` steps and when it ends.

    It samples with our engine from the trainer's own weights and draws no random numbers of the trainer, so that
    training is the same with and without it. Numbers are logged as `eval/TASK/solved_rate` and so on, and reports of a
    task under their own names: through the trainer to every tracker, if it is given, else to `state.log_history` alone.
    Every process evaluates its share of the rows. Weights that are sharded over processes (FSDP, DeepSpeed ZeRO-3)
    are not supported. Arguments that are left open have the defaults of the task (`EvaluationDefaults`), else ours.

    Args:
        task: Spec of one task or several, a `Task` object, or a list; they need not be those that are trained.
        interval_steps: Steps between evaluations during training; None, our default: only at the start and the end.
        at_start: Evaluate before the first step, as the control of the differences; our default.
        at_end: Evaluate after the last step; our default.
        trainer: Trainer through which results are logged.
        settings: Rows and sampling, for every task; our default is one greedy completion for each of 512 test rows.
        loading: Settings of the scorers.

    Attributes:
        choices: Defaults of the tasks, and conditions of this machine that their scores depend on.
        results: (phase, step, label, entry of `summary.json`) of every evaluation so far.

    Raises:
        UserError: no such task, or one with several turns.
    """

    def __init__(
        self,
        task: Tasks,
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
        self._options, self._trainer = loading or ModelOptions(), trainer
        overrides = {} if settings is None else asdict(settings)
        named = name_tasks(task)
        tasks, self.choices = prepare_tasks(named.spec, overrides, settings or EvaluationSettings())
        moments = {"interval_steps": interval_steps, "at_start": at_start, "at_end": at_end}
        arguments = {name: value for name, value in moments.items() if value is not OPEN}
        defaults = {"interval_steps": None, "at_start": True, "at_end": True}
        self._tasks = {
            label: replace(
                held, plan=EvaluationPlan(settings=held.settings, **settled(arguments, held.task, defaults)[0])
            )
            for label, held in tasks.items()
        }
        self._names = MetricNames()
        self._initial: dict[str, RowRates] = {}
        self._evaluated: dict[str, int] = {}
        self._scoring: Scoring | None = None
        self.results: list[tuple[str, int, str, dict[str, Any]]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Evaluate the starting model, unless training is resumed."""
        if state.global_step == 0:
            self._evaluate("initial", args, state, control, given)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Evaluate at the end of an interval."""
        self._evaluate("interval", args, state, control, given)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Evaluate the trained model, unless an interval has just ended."""
        self._evaluate("final", args, state, control, given)
        if self._scoring is not None:
            self._scoring.close()
            self._scoring = None

    def _evaluate(self, phase: EvalPhase, args: Any, state: Any, control: Any, given: dict[str, Any]) -> None:
        step = state.global_step
        due = [
            label
            for label, held in self._tasks.items()
            if held.plan.is_due(phase, step) and not (phase == "final" and self._evaluated.get(label) == step)
        ]
        if not due:
            return
        policy, ranks = policy_of(args, given), _ranks(args)
        if self._scoring is None:  # once, so that an opponent that is the starting policy stays it
            tasks = {label: each.task for label, each in self._tasks.items()}
            self._scoring = Scoring(tasks, self._options.scoring, policy)
        tokens = tokens_that_fit(policy.model, policy.device, self._options.engine.max_batch_tokens)
        model = in_process(
            policy,
            NativeEngine(policy.model, policy.tokenizer, max_batch_tokens=tokens),
            tokens_at_once=tokens,
            prompts_at_once=self._tasks[due[0]].settings.batch_size,
            warn=_warn,
            ranks=ranks,
        )
        metrics: dict[str, float] = {}
        for label in due:
            held, moment = self._tasks[label], Moment(phase, step, Path(args.output_dir))
            hooks = EvaluationHooks(warn=_warn)
            evaluation = evaluate_rows(held, held.rows, model, self._scoring[label], hooks)
            if phase == "initial":
                self._initial[label] = evaluation.rates()
            result = entry_of(
                evaluation,
                held,
                label,
                moment if ranks.is_main else None,
                base=None if phase == "initial" else self._initial.get(label),
                names=self._names,
                warn=_warn,
            )
            result["timing"] = evaluation.timing()
            self.results.append((phase, step, label, result))
            self._evaluated[label] = step
            metrics |= evaluation_metrics(label, result)
        self._log(metrics, state, control)

    def _log(self, metrics: dict[str, float], state: Any, control: Any) -> None:
        if self._trainer is None:
            state.log_history.append({**metrics, "step": state.global_step})
        else:
            is_due = control.should_log
            # Not TRL's own log, which would average and clear the metrics that the step has collected so far.
            Trainer.log(self._trainer, metrics)
            control.should_log = is_due  # logging clears the flag, and the step's own metrics are still to be logged


def policy_of(args: Any, given: dict[str, Any]) -> Policy:
    """Return the trainer's model as a policy for our engines."""
    model = given["model"]
    model = getattr(model, "module", model)  # DistributedDataParallel's wrapper
    tokenizer = getattr(given["processing_class"], "tokenizer", given["processing_class"])
    name = str(getattr(model.config, "_name_or_path", ""))
    autocast = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None
    source = ModelSource("folder", name, name, "the trainer's own")
    return Policy(model, tokenizer, source, next(model.parameters()).device, autocast)


def _ranks(args: Any) -> Ranks:
    """Return the trainer's processes as ranks."""
    if args.world_size == 1:
        return Ranks()
    return Ranks(args.process_index, args.local_process_index, args.world_size, args.device)


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)
