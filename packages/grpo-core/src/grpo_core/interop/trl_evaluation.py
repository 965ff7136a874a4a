"""Held-out evaluation of any task while a `transformers` or TRL trainer trains: a `TrainerCallback`.

from grpo_core.interop.trl import EvaluationCallback
trainer.add_callback(EvaluationCallback("math.gsm8k", interval_steps=50, trainer=trainer))
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import Any

import torch  # noqa: TID253 - this module is imported only to be used inside a trainer, which has both
from transformers import Trainer, TrainerCallback  # noqa: TID253 - likewise; its class is what a trainer takes

from grpo_core.binding import BoundTask
from grpo_core.engines.native import NativeEngine
from grpo_core.engines.opponent import opponent_sampler
from grpo_core.errors import UserError
from grpo_core.evaluation.answers import evaluate_rows
from grpo_core.evaluation.evaluate import Loading, bound_tasks
from grpo_core.evaluation.memory import tokens_that_fit
from grpo_core.evaluation.output import flat
from grpo_core.evaluation.results import RowRates
from grpo_core.evaluation.rows import subset
from grpo_core.evaluation.sampling import EngineSampler
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.model_source import ModelSource
from grpo_core.opponents import OpponentSampler
from grpo_core.policy.policy import Policy


class EvaluationCallback(TrainerCallback):
    """Evaluates the model on held-out rows when training begins, every `interval_steps` steps and when it ends.

    It samples with our engine from the trainer's own weights and draws no random number of the trainer's, so that
    training is the same with it and without. Numbers are logged as `eval/TASK/solved_rate` and so on: through the
    trainer to every tracker if it is given, else to `state.log_history` alone. Only the main process evaluates.
    Weights that are sharded over processes (FSDP, DeepSpeed ZeRO-3) cannot be sampled from so.

    Args:
        task: Spec of one task or several; also other ones than those trained.
        interval_steps: Evaluate every so many steps, too.
        at_start: Evaluate before the first step: the control of the differences.
        at_end: Evaluate after the last step.
        trainer: Through which to log.
        settings: Rows and sampling; by default one greedy completion for each of 512 test rows.
        loading: Of the scorers.

    Attributes:
        results: (phase, step, label, entry of `summary.json`) of every evaluation so far.

    Raises:
        UserError: no such task, or one with several turns.
    """

    def __init__(
        self,
        task: str,
        *,
        interval_steps: int | None = None,
        at_start: bool = True,
        at_end: bool = True,
        trainer: Any = None,
        settings: EvaluationSettings | None = None,
        loading: Loading | None = None,
    ) -> None:
        if interval_steps is not None and interval_steps < 1:
            raise UserError(f"interval_steps={interval_steps} must be at least 1, or None.")
        self._settings, self._loading = settings or EvaluationSettings(), loading or Loading()
        self._interval_steps, self._at_start, self._at_end, self._trainer = interval_steps, at_start, at_end, trainer
        self._tasks: dict[str, BoundTask] = bound_tasks(task, self._settings)
        self._base: dict[str, RowRates] = {}
        self._evaluated: int | None = None
        self._resources = ExitStack()
        self._opponents: dict[str, OpponentSampler] = {}
        self.results: list[tuple[str, int, str, dict[str, Any]]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Evaluate the starting model; a training that is resumed has none."""
        if self._at_start and state.global_step == 0:
            self._evaluate("base", args, state, control, given)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Evaluate where an interval ends."""
        if self._interval_steps is not None and state.global_step % self._interval_steps == 0:
            self._evaluate("interval", args, state, control, given)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Evaluate the trained model, unless an interval has just ended."""
        if self._at_end and self._evaluated != state.global_step:
            self._evaluate("final", args, state, control, given)
        self._resources.close()
        self._opponents.clear()

    def _evaluate(self, phase: str, args: Any, state: Any, control: Any, given: dict[str, Any]) -> None:
        if not state.is_world_process_zero:
            return
        policy = _policy(args, given)
        self._make_opponents(policy)
        tokens = tokens_that_fit(policy.model, policy.device, self._loading.max_batch_tokens)
        sampler = EngineSampler(
            NativeEngine(policy.model, policy.tokenizer, max_batch_tokens=tokens),
            policy.tokenizer,
            tokens_at_once=tokens,
            prompts_at_once=self._settings.batch_size,
            warn=_warn,
        )
        metrics: dict[str, float] = {}
        for label, task in self._tasks.items():
            with self._loading.scorer(task) as scorer, policy.precision():
                evaluation = evaluate_rows(
                    task,
                    subset(task.rows(), self._settings.subset_frac),
                    sampler=sampler,
                    scorer=scorer,
                    sampling=self._settings.sampling,
                    seed=self._settings.seed,
                    n=self._settings.n,
                    opponent=self._opponents.get(label),
                    measured=policy if self._settings.surprisal else None,
                )
            result = {**evaluation.summary(seed=self._settings.seed), "timing": evaluation.timing()}
            if phase == "base":
                self._base[label] = evaluation.rates()
            elif label in self._base:
                result |= evaluation.paired_delta(self._base[label], seed=self._settings.seed)
            self.results.append((phase, state.global_step, label, result))
            metrics |= {
                f"eval/{label}/{name}": float(value)
                for name, value in flat(result).items()
                if isinstance(value, int | float)
            }
        self._evaluated = state.global_step
        if self._trainer is None:
            state.log_history.append({**metrics, "step": state.global_step})
        else:
            is_due = control.should_log
            # Not TRL's own log: it would average and forget what the step has gathered so far.
            Trainer.log(self._trainer, metrics)
            control.should_log = is_due  # logging clears it, and the step's own numbers are still to come

    def _make_opponents(self, policy: Policy) -> None:
        """Once, so that an opponent that is the starting policy stays it."""
        for label, task in self._tasks.items():
            if task.task.opponent is not None and label not in self._opponents:
                self._opponents[label] = opponent_sampler(task, policy, self._resources)


def _policy(args: Any, given: dict[str, Any]) -> Policy:
    """The trainer's model as our engines take it."""
    model = given["model"]
    model = getattr(model, "module", model)  # DistributedDataParallel's wrapper
    tokenizer = getattr(given["processing_class"], "tokenizer", given["processing_class"])
    name = str(getattr(model.config, "_name_or_path", ""))
    autocast = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None
    source = ModelSource("folder", name, name, "the trainer's own")
    return Policy(model, tokenizer, source, next(model.parameters()).device, autocast)


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)
