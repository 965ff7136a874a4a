"""Supervised fine-tuning on a task's gold completions, through TRL's SFTTrainer: what GRPO then has to elicit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson
import torch

from grpo_core.algorithms.cpu_matmul import emulates_bfloat16
from grpo_core.engines.compatibility import max_context
from grpo_core.evaluation.evaluate import evaluate
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_core.evaluation.setup import prepare_tasks
from grpo_core.policy import depth
from grpo_core.policy.device import EMULATED, choose_device
from grpo_core.policy.fresh import fresh_model, learned_tokenizer, tokenizer_of
from grpo_core.policy.load import load_policy
from grpo_core.policy.policy import Policy
from grpo_core.policy.quantization import quiet_bitsandbytes
from grpo_core.policy.threads import choose_threads
from grpo_core.profiles.recommended import RECORD, after_warm_start
from grpo_core.training.checks import check_warm_start
from grpo_core.training.examples import dataset_of, examples_of, texts_of, within
from grpo_core.training.model_folder import ModelFolder, write_record
from grpo_core.training.muon import MuonAndAdamW
from grpo_core.training.provenance import versions
from grpo_core.training.solved_target import SolvedTarget
from grpo_core.training.stop import stop_on_signal
from grpo_sdk.callbacks import Callback, Callbacks
from grpo_sdk.errors import UserError, first_line
from grpo_sdk.killable.importing import refuse_in_worker
from grpo_sdk.plugins.models import ModelSource, model_source
from grpo_sdk.plugins.task_objects import Tasks, name_tasks

SaveDtype = Literal["float32", "float16", "bfloat16"]
Precision = Literal["float32", "bfloat16"]
Optimizer = Literal["adamw", "muon"]

LOGGING_STEPS = 10
"""Steps that one logged loss is the mean of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """Settings of the supervised fine-tuning; see `warm_start`."""

    max_steps: int
    batch_size: int
    learning_rate: float
    lr_scheduler_type: Literal["cosine", "constant"]
    warmup_ratio: float
    seed: int
    precision: Precision
    optimizer: Optimizer
    compile: bool
    workers: int

    def optimizer_of(self, model: Any) -> torch.optim.Optimizer | None:
        """The optimizer of a model; None leaves TRL's, which is AdamW."""
        return MuonAndAdamW(model, self.learning_rate) if self.optimizer == "muon" else None

    def as_trl(self) -> dict[str, Any]:
        """Arguments of TRL's `SFTConfig`."""
        return {
            "max_steps": self.max_steps,
            "per_device_train_batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "lr_scheduler_type": "cosine" if self.lr_scheduler_type == "cosine" else "constant_with_warmup",
            "warmup_steps": round(self.warmup_ratio * self.max_steps),
            "seed": self.seed,
            "data_seed": self.seed,
            "bf16": self.precision == "bfloat16",
            "logging_steps": min(LOGGING_STEPS, self.max_steps),
            **({"dataset_num_proc": self.workers, "dataloader_num_workers": self.workers} if self.workers > 1 else {}),
        }

    def as_json(self) -> dict[str, Any]:
        """The settings as the record holds them."""
        names = ("batch_size", "learning_rate", "lr_scheduler_type", "seed", "precision", "optimizer", "compile")
        return {"steps": self.max_steps, **{name: getattr(self, name) for name in names}}


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


def warm_start(
    task: Tasks,
    out: str | Path,
    *,
    model: str | None = None,
    add_layers: int = 0,
    preset: str | None = None,
    vocab_size: int | None = None,
    tokenizer: str | None = None,
    max_steps: int = 1000,
    until: float | None = None,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    lr_scheduler_type: Literal["cosine", "constant"] = "constant",
    warmup_ratio: float = 0.05,
    seed: int = 0,
    eval_size: int = 512,
    precision: Precision = "float32",
    optimizer: Optimizer = "adamw",
    compile: bool = False,
    save_dtype: SaveDtype = "float32",
    save_every: int | None = None,
    workers: int = 1,
    device: str = "auto",
    command: str = "",
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Fine-tune a model on the demos of one task or a mixture, evaluate it, and write it to a folder.

    A first SIGINT, SIGTERM or SIGHUP ends the training after its step: the model is written, and not evaluated. After a
    kill the folder holds the model of the last save.

    Args:
        task: A task spec, a `Task` object, or a list of these; the weights of a mixture are the shares of examples.
        out: Folder that receives the model; it must not exist, or be empty.
        model: Model to start from; not with `preset`.
        add_layers: Layers that the model gets first; see `policy.depth.add_layers`.
        preset: Start from a new model of this shape (see `policy.fresh.PRESETS`).
        vocab_size: Tokens of a new model: its tokenizer is learned from the demos. By default it reads bytes.
        tokenizer: Model or folder whose tokenizer a new model gets; not with `vocab_size`.
        max_steps: Optimizer steps, at most.
        until: End when this share of completions of held-out rows, sampled at temperature 1, is solved.
        batch_size: Examples per step.
        learning_rate: Peak, after a linear warm-up.
        lr_scheduler_type: `cosine` to 0, or `constant`.
        warmup_ratio: Share of the steps that warm up.
        seed: Seed of the new weights, the order of examples and the evaluation.
        eval_size: Held-out rows per task.
        precision: Precision of the products in training; the weights are float32 in any case.
        optimizer: `adamw`, or `muon` for the matrices of the layers, see `MuonAndAdamW`.
        compile: Compile the layers with torch.compile first, which takes a minute or two.
        save_dtype: Type of the weights that are written and evaluated.
        save_every: Optimizer steps after which the model so far is written, in float32; None means every 10 minutes.
        workers: Processes that make the examples of as many tasks at once, and then put batches together.
        device: `auto`, `cpu`, `cuda`, …
        command: The command line, recorded beside the model.
        callbacks: Notified of progress and of the evaluation.

    Returns:
        The record that is written beside the model.

    Raises:
        UserError: TRL is missing, no model or two are named, a tokenizer is asked for a model that has one, the folder
            is taken, the disk has no room for the model, or rows have no gold.
    """
    refuse_in_worker("warm_start()")
    quiet_bitsandbytes()
    named = name_tasks(task)
    check_warm_start(
        named.spec,
        out,
        model=model,
        add_layers=add_layers,
        preset=preset,
        vocab_size=vocab_size,
        tokenizer=tokenizer,
        eval_size=eval_size,
    )
    folder = Path(out)
    # A task that cannot be evaluated is refused before it is trained on for an hour.
    prepare_tasks(named.spec, {}, EvaluationSettings(size=eval_size, seed=seed))
    callback = Callbacks(callbacks)
    # Layers that a model cannot get are refused before its examples are made, which takes minutes.
    policy = None if model is None else _loaded(model, add_layers, device)
    examples = examples_of(named.spec, max_steps * batch_size, workers, callback.on_progress, seed=seed)
    if policy is None:
        policy = _new_policy(str(preset), seed, device, _new_tokenizer(examples, vocab_size, tokenizer))
    target = None if until is None else SolvedTarget(named.spec, until, policy, seed, callback)
    settings = FineTuning(
        max_steps=max_steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        lr_scheduler_type=lr_scheduler_type,
        warmup_ratio=warmup_ratio,
        seed=seed,
        precision=precision,
        optimizer=optimizer,
        compile=compile,
        workers=workers,
    )
    start = _start_record(model) if model is not None else f"new:{preset}"

    def record_of(made: FineTuned, dtype: str) -> dict[str, Any]:
        return {
            "command": command,
            "task": named.spec,
            "start": start,
            **({"add_layers": add_layers} if add_layers else {}),
            **settings.as_json(),
            "steps": made.steps,
            "interrupted": made.is_interrupted,
            **({} if target is None else {"until": until, "sampled_solved_rate": target.rates}),
            "save_dtype": dtype,
            "loss": made.losses,
            "evaluation": {},
            "recommended": after_warm_start(policy.model.num_parameters()),
            "versions": versions(),
        }

    size = policy.model.num_parameters() * getattr(torch, save_dtype).itemsize
    with ExitStack() as resources:
        saved = ModelFolder(folder, policy, size, save_every, resources, callback.on_warning)

        def save_if_due(so_far: FineTuned) -> None:
            saved.after_step(so_far.steps, lambda: record_of(so_far, "float32"))  # as it is trained

        made = _fine_tuned(policy, examples, settings, target, callback, save_if_due)
        if target is not None and made.steps == max_steps and not target.is_met:
            callback.on_warning(target.missed(max_steps))
        policy.model.to(getattr(torch, save_dtype))
        record = record_of(made, save_dtype)
        saved.write(record)
    if not made.is_interrupted:
        record["evaluation"] = _evaluated(named.spec, folder, eval_size, seed, device, callbacks)
        write_record(folder, record)
    return record


def _loaded(model: str, add_layers: int, device: str) -> Policy:
    """The model to start from, with its further layers."""
    policy = load_policy(model, device=device)
    if add_layers:
        depth.add_layers(policy.model, add_layers)
        choose_threads(policy.model.num_parameters(), policy.device)
    return policy


def _new_policy(preset: str, seed: int, device: str, tokenizer: Any) -> Policy:
    """A new model of a preset's shape, on the device."""
    where, _ = choose_device(device)
    model, processing = fresh_model(preset, seed, tokenizer)
    choose_threads(model.num_parameters(), where)
    return Policy(model.to(where), processing, ModelSource("folder", preset, "", "a new model"), where, None)


def _fine_tuned(
    policy: Policy,
    examples: Sequence[Mapping[str, Any]],
    settings: FineTuning,
    target: SolvedTarget | None,
    callbacks: Callbacks,
    after_step: Callable[[FineTuned], None],
) -> FineTuned:
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

    _speed_up(policy, settings, callbacks)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = RepeatingTrainer(
            passes=ExamplePasses(settings.batch_size, policy.device, callbacks.on_warning),
            model=policy.model,
            processing_class=policy.tokenizer,
            train_dataset=dataset_of(examples, policy.tokenizer, callbacks.on_progress),
            callbacks=[Progress()],
            optimizers=(settings.optimizer_of(policy.model), None),
            args=SFTConfig(
                output_dir=scratch,
                **settings.as_trl(),
                use_cpu=policy.device.type == "cpu",
                gradient_checkpointing=False,
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
                dataloader_pin_memory=policy.device.type == "cuda",
                max_length=None,
            ),
        )
        trainer.train_dataset = _fitting(trainer.train_dataset, policy, callbacks)
        trainer.remove_callback(PrinterCallback)  # our callbacks show the progress
        try:
            with stop_on_signal(lambda: requests.append(True), callbacks.on_stop, what="the model"):
                trainer.train()
        except torch._dynamo.exc.BackendCompilerFailed as error:  # before the first step: there is no compiler
            raise UserError(f"--compile: torch.compile failed: {first_line(error)}. Leave it out.") from None
    steps = trainer.state.global_step
    return FineTuned(losses, steps, bool(requests) and steps < settings.max_steps)


def _fitting(examples: Any, policy: Policy, callbacks: Callbacks) -> Any:
    """The examples that fit the model's context; how many do not is said."""
    context = max_context(policy.model)
    kept = within(examples, context)
    if left_out := len(examples) - len(kept):
        callbacks.on_warning(
            f"{left_out} of {len(examples)} examples are longer than the model's context ({context} tokens): left out"
        )
    return kept


def _speed_up(policy: Policy, settings: FineTuning, callbacks: Callbacks) -> None:
    """Choose the attention that is faster in training, and compile the layers if asked."""
    if policy.device.type == "cpu" and settings.precision == "bfloat16":
        if emulates_bfloat16(policy.device):
            callbacks.on_warning(f"--precision bfloat16: {EMULATED}")
        policy.model.set_attn_implementation("eager")  # torch's own takes 1.3 to 1.5 times as long, with a mask
    if settings.compile:
        policy.model.base_model.compile(dynamic=True)


def _evaluated(
    task: str, folder: Path, size: int, seed: int, device: str, callbacks: Sequence[Callback]
) -> Mapping[str, Any]:
    """Results of the model that was written; the callbacks show the progress."""
    model = str(folder.resolve())
    return evaluate(task, model, size=size, seed=seed, device=device, callbacks=callbacks, progress=False)


def _start_record(model: str) -> Any:
    """The record of the starting model's own warm start, if it had one; else its name."""
    record = Path(model_source(model).location).expanduser() / RECORD
    return orjson.loads(record.read_bytes()) if record.is_file() else model


def _new_tokenizer(examples: Sequence[Mapping[str, Any]], vocab_size: int | None, name: str | None) -> Any:
    """The tokenizer of a new model; None for the one of bytes."""
    if name is not None:
        return tokenizer_of(name)
    if vocab_size is None:
        return None
    return learned_tokenizer((text for example in examples for text in texts_of(example)), vocab_size)
