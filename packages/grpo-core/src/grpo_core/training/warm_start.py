"""A warm start: supervised fine-tuning on a task's gold completions, which makes what GRPO then has to elicit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import torch

from grpo_core.display.progress import watched
from grpo_core.evaluation.evaluate import evaluate
from grpo_core.policy import depth
from grpo_core.policy.device import choose_device
from grpo_core.policy.fresh import fresh_model, learned_tokenizer, tokenizer_of
from grpo_core.policy.load import load_policy
from grpo_core.policy.policy import Policy
from grpo_core.policy.quantization import quiet_bitsandbytes
from grpo_core.policy.threads import choose_threads
from grpo_core.profiles.recommended import RECORD, after_warm_start
from grpo_core.training.examples import examples_of, texts_of, warn_of_cut
from grpo_core.training.fine_tuning import FineTuned, fine_tune
from grpo_core.training.model_folder import ModelFolder, write_record
from grpo_core.training.provenance import versions
from grpo_core.training.solved_target import SolvedTarget
from grpo_core.training.warm_start_options import WarmStartOptions
from grpo_sdk.callbacks import Callback, Callbacks
from grpo_sdk.killable.importing import refuse_in_worker
from grpo_sdk.plugins.models import ModelSource, model_source
from grpo_sdk.plugins.task_objects import NamedTasks, Tasks, name_tasks


def warm_start(
    task: Tasks, out: str | Path, *, callbacks: Sequence[Callback] = (), progress: bool = True, **settings: Any
) -> dict[str, Any]:
    """Fine-tune a model on the demos or golds of tasks, evaluate it, and write it to a folder.

    A first SIGINT, SIGTERM or SIGHUP ends the training after its step: the model is written, and not evaluated. After a
    kill the folder holds the model of the last save.

    Args:
        task: A task spec, a `Task` object, or a list of these; the weights of a mixture are the shares of examples.
        out: Folder that receives the model; it must not exist, or be empty.
        callbacks: Notified of progress and of the evaluation.
        progress: Show progress: in a terminal, a notebook's cell, or as lines on stderr.
        settings: The attributes of `WarmStartOptions`, by name.

    Returns:
        The record that is written beside the model.

    Raises:
        UserError: TRL is missing, no model or two are named, a tokenizer is asked for a model that has one, the folder
            is taken, the disk has no room for the model, or rows have no gold.
    """
    refuse_in_worker("warm_start()")
    quiet_bitsandbytes()
    with watched(callbacks, progress=progress) as watching:
        return _warm_start(name_tasks(task), Path(out), WarmStartOptions(**settings), watching)


def _warm_start(
    named: NamedTasks, folder: Path, options: WarmStartOptions, callbacks: Sequence[Callback]
) -> dict[str, Any]:
    options.check(named.spec, folder)
    seed, callback = options.seed, Callbacks(callbacks)
    # Layers that a model cannot get are refused before its examples are made, which takes minutes.
    policy = None if options.model is None else _loaded(options.model, options)
    examples = examples_of(
        named.spec, options.max_steps * options.batch_size, options.workers, callback.on_progress, seed=seed
    )
    policy = policy or _new_policy(options, examples)
    warn_of_cut(named.spec, examples, policy.tokenizer, callback)
    until, dtype = options.until, getattr(torch, options.save_dtype)
    target = None if until is None else SolvedTarget(named.spec, until, policy, seed, callback)
    start = f"new:{options.preset}" if options.model is None else _start_record(options.model)

    def record_of(made: FineTuned, save_dtype: str) -> dict[str, Any]:
        return {
            "command": options.command,
            "task": named.spec,
            "start": start,
            **({"add_layers": options.add_layers} if options.add_layers else {}),
            "steps": made.steps,
            **options.as_json(),
            "interrupted": made.is_interrupted,
            **({} if target is None else {"until": until, "sampled_solved_rate": target.rates}),
            "save_dtype": save_dtype,
            "loss": made.losses,
            "evaluation": {},
            "recommended": after_warm_start(policy.model.num_parameters()),
            "versions": versions(),
        }

    with ExitStack() as resources:
        size = policy.model.num_parameters() * dtype.itemsize
        saved = ModelFolder(folder, policy, size, options.save_every, resources, callback.on_warning)

        def save_if_due(so_far: FineTuned) -> None:
            saved.after_step(so_far.steps, lambda: record_of(so_far, "float32"))  # as it is trained

        made = fine_tune(policy, examples, options, target, callback, save_if_due)
        if target is not None and made.steps == options.max_steps and not target.is_met:
            callback.on_warning(target.missed(options.max_steps))
        policy.model.to(dtype)
        record = record_of(made, options.save_dtype)
        saved.write(record)
    if not made.is_interrupted:
        record["evaluation"] = evaluate(
            named.spec, str(folder.resolve()), size=options.eval_size, seed=seed, device=options.device,
            callbacks=callbacks, progress=False,
        )  # fmt: skip
        write_record(folder, record)
    return record


def _loaded(model: str, options: WarmStartOptions) -> Policy:
    """The model to start from, with its further layers."""
    policy = load_policy(model, device=options.device)
    if options.add_layers:
        depth.add_layers(policy.model, options.add_layers)
        choose_threads(policy.model.num_parameters(), policy.device)
    return policy


def _new_policy(options: WarmStartOptions, examples: Sequence[Mapping[str, Any]]) -> Policy:
    """A new model of a preset's shape, on the device; by default it reads bytes."""
    tokenizer, preset = None, str(options.preset)
    if options.tokenizer is not None:
        tokenizer = tokenizer_of(options.tokenizer)
    elif options.vocab_size is not None:
        texts = (text for example in examples for text in texts_of(example))
        tokenizer = learned_tokenizer(texts, options.vocab_size)
    where, _ = choose_device(options.device)
    model, processing = fresh_model(preset, options.seed, tokenizer)
    choose_threads(model.num_parameters(), where)
    return Policy(model.to(where), processing, ModelSource("folder", preset, "", "a new model"), where, None)


def _start_record(model: str) -> Any:
    """The record of the starting model's own warm start, if it had one; else its name."""
    record = Path(model_source(model).location).expanduser() / RECORD
    return orjson.loads(record.read_bytes()) if record.is_file() else model
