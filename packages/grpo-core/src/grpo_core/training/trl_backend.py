"""The optimizer steps of a run by TRL's `GRPOTrainer`: advantages, loss, gradient and accumulation are TRL's.

Around them a run stays what it is: our collector gives TRL the completions of each batch with their rewards, through
TRL's `rollout_func`, so prompts, sampling, stop strings, turns, scores and logs are those of the native backend.
"""

from __future__ import annotations

import logging
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from grpo_core.policy.memory_meter import PhaseMemory
from grpo_core.policy.ranks import Ranks
from grpo_core.policy.reference import MODEL_DIR, copied_as_it_is
from grpo_core.training.batch import TokenBatch, TrainBatch
from grpo_core.training.collect import Collected
from grpo_core.training.random_state import random_state, restore_random_state
from grpo_core.training.setup import Setup
from grpo_core.training.trl_settings import algorithm_arguments, rows_per_pass
from grpo_core.training.update import Updater, mean_metrics
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.episodes.opponents import plays_base
from grpo_sdk.errors import NonFiniteError, UnknownNameError, UserError, near_match

METRICS: Mapping[str, str] = {
    **{name: name for name in ("loss", "grad_norm", "learning_rate", "entropy", "kl")},
    "clip_ratio/low_mean": "clip_ratio/low",
    "clip_ratio/high_mean": "clip_ratio/high",
    "clip_ratio/region_mean": "clip_ratio/region",
    "cispo_clip_ratio": "clip_ratio/high",
}
"""Metrics of TRL -> ours; the others of a step are computed from its rollouts."""

REFERENCE_ADAPTER = "ref"
"""TRL's name of the adapter that is the reference of another one."""

SEEDS = 2**32
"""Number of seeds that NumPy takes, which TRL seeds as well."""


@dataclass(slots=True)
class TrlBackend:
    """Trains a run's policy with TRL.

    Attributes:
        setup: Configuration, tasks, policy and planned steps.
        updater: Holds the optimizer, which TRL steps, and counts its steps.
        ranks: The processes of the run.
        memory: Peak memory of the phases of a step.
        collect: Gives the completions of the next step.
        advantages: Makes a batch of them, with the advantages that are logged; TRL computes its own.
        finish: Called with the completions of a step, their batch and TRL's metrics.
        is_over: Whether no step follows; asked once before each.
        time_share: Share of the time limit that has passed, for a learning rate that follows it.
        reference: Folder with the run's stored reference.
    """

    setup: Setup
    updater: Updater
    ranks: Ranks
    memory: PhaseMemory
    collect: Callable[[], Collected]
    advantages: Callable[[Collected], TrainBatch]
    finish: Callable[[Collected, TrainBatch, Mapping[str, float]], None]
    is_over: Callable[[], bool]
    time_share: Callable[[], float]
    reference: Path
    _step: tuple[Collected, TrainBatch] | None = None
    _started: float = 0.0
    _updates: list[dict[str, float]] = field(default_factory=list)
    _update_phase: ExitStack = field(default_factory=ExitStack)

    def train(self, done: int) -> None:
        """Train until the run is over.

        Args:
            done: Steps taken before.

        Raises:
            UserError: TRL has no such argument.
            NonFiniteError: the model broke down.
        """
        import datasets
        from transformers import PrinterCallback, TrainerCallback
        from trl import GRPOConfig, GRPOTrainer

        _check_names(self._config.backend_args, [each.name for each in fields(GRPOConfig)])
        if self.is_over():
            return
        backend = self

        class Steps(TrainerCallback):
            """Tells the backend of each optimizer step."""

            def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if "loss" in kwargs["logs"]:  # the last log is of the whole training, and holds none
                    control.should_training_stop = backend._updated(kwargs["logs"])

        logger = logging.getLogger("trl.trainer.grpo_trainer")
        with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings(), ExitStack() as resources:
            warnings.filterwarnings("ignore", "You are using 'rollout_func'", UserWarning)
            logger.addFilter(_is_no_abstention)
            resources.callback(logger.removeFilter, _is_no_abstention)
            generators = random_state()
            with self._stored_reference():
                trainer = GRPOTrainer(
                    model=self.setup.policy.model,
                    processing_class=self.setup.policy.tokenizer,
                    reward_funcs=[task_reward],
                    rollout_func=self._rollouts,
                    # TRL draws a batch of prompts before it asks for their completions, which bring their own.
                    train_dataset=datasets.Dataset.from_dict({"prompt": [""] * self._config.prompts_per_step}),
                    args=GRPOConfig(output_dir=scratch, **self._arguments(done)),
                    callbacks=[Steps()],
                    optimizers=(self.updater.optimizer.adam, self._schedule()),
                )
            restore_random_state(*generators)  # GRPOTrainer has seeded them, and a resumed run goes on with its own
            check_whole(trainer)
            trainer.remove_callback(PrinterCallback)  # our callbacks show the progress
            trainer.train()

    @property
    def _config(self) -> Any:
        return self.setup.config.trainer

    @contextmanager
    def _stored_reference(self) -> Iterator[None]:
        """Have the `GRPOTrainer` that is made in this context take the run's stored reference, also in a resumed run.

        By itself it takes the adapter as it is then, or the weights that the model's configuration names.
        """
        policy = self.setup.policy
        if not self._config.beta:
            yield
        elif policy.is_adapter:
            with copied_as_it_is(policy.model):
                yield
            assert policy.anchor is not None, "beta is above 0"
            policy.anchor.into_adapter(REFERENCE_ADAPTER)
        else:
            self.ranks.from_main(b"")  # which has stored it by then
            tasks = self.setup.tasks.every.values()
            if not any(map(plays_base, tasks)):
                policy.anchor = None  # one copy is enough
            settings, name = policy.model.config, policy.model.config._name_or_path
            settings._name_or_path = str(self.reference / MODEL_DIR)
            try:
                yield
            finally:
                settings._name_or_path = name

    @property
    def _updates_per_step(self) -> int:
        return int(self._config.num_iterations * self._config.steps_per_generation)

    def _arguments(self, done: int) -> dict[str, Any]:
        """Arguments of `GRPOConfig`."""
        config, policy = self.setup.config, self.setup.policy
        size, accumulated, _ = _passes(self.setup, self.ranks)
        return {
            **algorithm_arguments(config.trainer),
            "max_steps": (self.setup.plan.total_steps - done) * self._updates_per_step,
            "max_completion_length": self.setup.tasks.max_turns * config.trainer.max_completion_length,
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": accumulated,
            "steps_per_generation": accumulated * config.trainer.steps_per_generation,
            "bf16": policy.autocast is torch.bfloat16,
            "fp16": policy.autocast is torch.float16,
            "use_cpu": policy.device.type == "cpu",
            "seed": config.seed % SEEDS,
            "logging_steps": 1,
            "report_to": "none",
            "save_strategy": "no",
            "disable_tqdm": True,
            "dataloader_pin_memory": policy.device.type == "cuda",
            **config.trainer.backend_args,
        }

    def _schedule(self) -> torch.optim.lr_scheduler.LambdaLR:
        """The run's learning rate, which TRL asks for after each optimizer step."""
        optimizer = self.updater.optimizer
        before = optimizer.updates

        def factor(updates: int) -> float:
            return optimizer.schedule.factor(before + updates, self.time_share())

        for group in optimizer.adam.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["peak"])
        return torch.optim.lr_scheduler.LambdaLR(optimizer.adam, factor)

    def _rollouts(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """TRL's `rollout_func`: the completions of the next step, this process's share."""
        with self.memory.phase("generate"):
            collected = self.collect()
        batch = self.advantages(collected)
        self._step, self._started = (collected, batch), time.perf_counter()
        self._update_phase.enter_context(self.memory.phase("update"))
        self.setup.policy.model.train()  # TRL computes a loss for training only where it is
        first = self.ranks.rank * len(prompts)
        own = range(first, first + len(prompts))
        rewards = [None if math.isnan(reward) else reward for reward in collected.rewards.tolist()]
        return {**completion_fields(batch, own), "task_reward": [rewards[row] for row in own]}

    def _updated(self, logs: Mapping[str, float]) -> bool:
        """Take TRL's metrics of an optimizer step; returns whether the run is over."""
        metrics = {name: float(logs[theirs]) for theirs, name in METRICS.items() if logs.get(theirs) is not None}
        self.updater.optimizer.updates += 1
        if not (math.isfinite(metrics["loss"]) and math.isfinite(metrics["grad_norm"])):
            raise NonFiniteError(
                f"loss or gradient was not finite in optimizer step {self.updater.optimizer.updates}, and TRL skips "
                f"none: lower trainer.learning_rate ({self._config.learning_rate:g}), use precision=float32, or "
                "trainer.backend=native, which skips such steps."
            )
        self._updates.append(metrics)
        if len(self._updates) < self._updates_per_step:
            return False
        assert self._step is not None, "completions come before their loss"
        self._update_phase.close()
        metrics = {**mean_metrics(self._updates), "update_s": time.perf_counter() - self._started}
        self._updates.clear()
        self.finish(*self._step, metrics)
        return self.is_over()


def completion_fields(batch: TokenBatch, rows: Sequence[int]) -> dict[str, Any]:
    """Rows of a batch as TRL's `rollout_func` returns them; its mask leaves out what is not to be trained.

    Args:
        batch: The rollouts of all processes.
        rows: Those of this one.

    Raises:
        UserError: a rollout has several rows, and TRL trains one sequence for each completion.
    """
    if len(batch) != len(batch.rollouts.unique()):
        raise UserError(
            "TRL trains one sequence for each completion, and the turns of a rollout are several here: the chat "
            "template changes earlier turns. Choose another template, or train with our own trainer."
        )
    fields: dict[str, list[Any]] = {"prompt_ids": [], "completion_ids": [], "env_mask": [], "logprobs": []}
    for row in rows:
        start, length = int(batch.prompt_lens[row]), int(batch.completion_lens[row])
        fields["prompt_ids"].append(batch.input_ids[row, :start].tolist())
        fields["completion_ids"].append(batch.input_ids[row, start : start + length].tolist())
        fields["env_mask"].append(batch.mask[row, :length].int().tolist())
        fields["logprobs"].append(batch.sampler_logprobs[row, :length].tolist())
    return fields


def check_whole(trainer: Any) -> None:
    """Check that each process of a `GRPOTrainer` holds the whole model, from which our engine samples.

    Raises:
        UserError: it is sharded.
    """
    plugin = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    stage = 0 if plugin is None else plugin.zero_stage
    if trainer.is_fsdp_enabled or stage == 3:
        kind = "DeepSpeed's ZeRO-3" if stage == 3 else "FSDP"
        raise UserError(
            f"{kind} leaves no process with a whole model, and completions are sampled from it: use ZeRO-1 or ZeRO-2, "
            "or our own trainer with trainer.sharding=full."
        )


def task_reward(completions: Sequence[str], task_reward: Sequence[float | None], **unused: Any) -> list[float | None]:
    """The rewards that came with the completions, as TRL's reward function."""
    return list(task_reward)


def _is_no_abstention(record: logging.LogRecord) -> bool:
    """Whether it isn't TRL's warning of completions without a reward: ours names the reason, and is given once."""
    return "All reward functions returned None" not in record.getMessage()


def _check_names(arguments: Iterable[str], known: Sequence[str]) -> None:
    for name in arguments:
        if name not in known:
            hint = near_match(name, known)
            raise UnknownNameError(f"trainer.backend_args.{name}: TRL's GRPOConfig has no such argument.{hint}")


def trl_choices(setup: Setup, ranks: Ranks) -> list[ResolvedDefault]:
    """What TRL is given that no setting says; nothing with the native backend."""
    trainer = setup.config.trainer
    if trainer.backend != "trl":
        return []
    size, accumulated, why = _passes(setup, ranks)
    name = f"TRL {metadata.version('trl')}"
    batches = f"per_device_train_batch_size={size}, gradient_accumulation_steps={accumulated}"
    choices = [ResolvedDefault("backend", f"{name}, {batches}", f"trainer.backend=trl; {why}")]
    if trainer.entropy_coef:
        why = f"{name} adds the bonus as a mean over tokens, whatever denominator the loss has"
        choices.append(ResolvedDefault("trainer.entropy_coef", f"{trainer.entropy_coef:g}", why))
    return choices


def _passes(setup: Setup, ranks: Ranks) -> tuple[int, int, str]:
    """Completions of a forward pass, passes of an optimizer step, and why."""
    trainer = setup.config.trainer
    rows = trainer.rows_per_step // ranks.size
    longest = max(len(ids) for prompts in setup.data.prompt_ids.values() for ids in prompts.values())
    size, why = rows_per_pass(trainer, rows, longest + setup.tasks.max_turns * trainer.max_completion_length)
    return size, rows // size, why
