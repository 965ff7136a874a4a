"""The supervised training of a warm start, by TRL's SFTTrainer."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from grpo_core.algorithms.cpu_matmul import emulates_bfloat16
from grpo_core.engines.compatibility import max_context
from grpo_core.policy.device import EMULATED
from grpo_core.policy.policy import Policy
from grpo_core.training.examples import dataset_of, within
from grpo_core.training.muon import MuonAndAdamW
from grpo_core.training.solved_target import SolvedTarget
from grpo_core.training.stop import stop_on_signal
from grpo_core.training.warm_start_options import WarmStartOptions
from grpo_sdk.callbacks import Callbacks
from grpo_sdk.errors import UserError, first_line

LOGGING_STEPS = 10
"""Steps that one logged loss is the mean of."""


class FineTuned(NamedTuple):
    """What the supervised fine-tuning has done.

    Attributes:
        losses: Optimizer step -> logged loss.
        steps: Optimizer steps taken.
        is_interrupted: Whether it did not come to its end.
    """

    losses: dict[str, float]
    steps: int
    is_interrupted: bool


def fine_tune(
    policy: Policy,
    examples: Sequence[Mapping[str, Any]],
    options: WarmStartOptions,
    target: SolvedTarget | None,
    callbacks: Callbacks,
    after_step: Callable[[FineTuned], None],
) -> FineTuned:
    """Train a model on examples, to the end of its steps, to its target or until a signal.

    Args:
        policy: The model.
        examples: Prompts with their completions, in order.
        options: Options of the warm start.
        target: Ends the training when it is reached.
        callbacks: Notified of progress.
        after_step: Called after each optimizer step.
    """
    from transformers import PrinterCallback, TrainerCallback
    from trl import SFTConfig

    from grpo_core.training.supervised import ExamplePasses, RepeatingTrainer

    losses: dict[str, float] = {}
    requests: list[bool] = []  # a signal handler may take no lock

    class Progress(TrainerCallback):
        """Passes TRL's progress on to our callbacks, and keeps the losses."""

        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if "loss" in kwargs["logs"]:  # the last log is of the whole training, and holds none
                losses[str(state.global_step)] = kwargs["logs"]["loss"]

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            loss = f", loss {next(reversed(losses.values())):.3f}" if losses else ""
            callbacks.on_progress(f"supervised fine-tuning{loss}", state.global_step, state.max_steps)
            after_step(FineTuned(losses, state.global_step, is_interrupted=True))
            if requests or (target is not None and target.is_reached(state.global_step)):
                control.should_training_stop = True

    _speed_up(policy, options, callbacks)
    muon = MuonAndAdamW(policy.model, options.learning_rate) if options.optimizer == "muon" else None
    with tempfile.TemporaryDirectory() as scratch:
        trainer = RepeatingTrainer(
            passes=ExamplePasses(options.batch_size, policy.device, callbacks.on_warning),
            model=policy.model,
            processing_class=policy.tokenizer,
            train_dataset=dataset_of(examples, policy.tokenizer, callbacks.on_progress),
            callbacks=[Progress()],
            optimizers=(muon, None),  # else TRL's, which is AdamW
            args=SFTConfig(output_dir=scratch, **_trl_arguments(options, policy.device)),
        )
        trainer.train_dataset = _fitting(trainer.train_dataset, policy, callbacks)
        trainer.remove_callback(PrinterCallback)  # our callbacks show the progress
        try:
            with stop_on_signal(lambda: requests.append(True), callbacks.on_stop, what="the model"):
                trainer.train()
        except torch._dynamo.exc.BackendCompilerFailed as error:  # before the first step: there is no compiler
            raise UserError(f"--compile: torch.compile failed: {first_line(error)}. Leave it out.") from None
    steps = trainer.state.global_step
    return FineTuned(losses, steps, bool(requests) and steps < options.max_steps)


def _trl_arguments(options: WarmStartOptions, device: torch.device) -> dict[str, Any]:
    """Arguments of TRL's `SFTConfig`."""
    workers = options.workers
    return {
        "max_steps": options.max_steps,
        "per_device_train_batch_size": options.batch_size,
        "learning_rate": options.learning_rate,
        "lr_scheduler_type": "cosine" if options.lr_scheduler_type == "cosine" else "constant_with_warmup",
        "warmup_steps": round(options.warmup_ratio * options.max_steps),
        "seed": options.seed,
        "data_seed": options.seed,
        "bf16": options.precision == "bfloat16",
        "logging_steps": min(LOGGING_STEPS, options.max_steps),
        **({"dataset_num_proc": workers, "dataloader_num_workers": workers} if workers > 1 else {}),
        "use_cpu": device.type == "cpu",
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": device.type == "cuda",
        "max_length": None,
    }


def _fitting(examples: Any, policy: Policy, callbacks: Callbacks) -> Any:
    """The examples that fit the model's context; how many do not is said."""
    context = max_context(policy.model)
    kept = within(examples, context)
    if left_out := len(examples) - len(kept):
        callbacks.on_warning(
            f"{left_out} of {len(examples)} examples are longer than the model's context ({context} tokens): left out"
        )
    return kept


def _speed_up(policy: Policy, options: WarmStartOptions, callbacks: Callbacks) -> None:
    """Choose the attention that is faster in training, and compile the layers if asked."""
    if policy.device.type == "cpu" and options.precision == "bfloat16":
        if emulates_bfloat16(policy.device):
            callbacks.on_warning(f"--precision bfloat16: {EMULATED}")
        policy.model.set_attn_implementation("eager")  # torch's own takes 1.3 to 1.5 times as long, with a mask
    if options.compile:
        policy.model.base_model.compile(dynamic=True)
