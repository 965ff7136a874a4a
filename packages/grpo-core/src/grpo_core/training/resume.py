"""Resuming a run in its own folder: the same reference, data order and random numbers."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from grpo_core.checkpoints import CheckpointStore, check_run
from grpo_core.config import load_config
from grpo_core.display.progress import watched
from grpo_core.policy.ranks import Ranks, in_contact, joined
from grpo_core.tracking.events import EventLog, at_start_of
from grpo_core.tracking.observe import observe
from grpo_core.tracking.presence import working_in
from grpo_core.training.provenance import check_identities, data_hash, versions
from grpo_core.training.result import RunResult
from grpo_core.training.run_folder import RunFolder, SilentFolder, check_shared
from grpo_core.training.setup import Setup, prepare
from grpo_core.training.state import hardware
from grpo_core.training.stored_run import StoredRun, allowed, of_planned, sources_of, stored_config
from grpo_core.training.trainer import Trainer
from grpo_sdk.callbacks import Callback, Callbacks, ResolvedDefault
from grpo_sdk.errors import UserError
from grpo_sdk.killable.importing import refuse_in_worker
from grpo_sdk.paths import user_path
from grpo_sdk.plugins.task_objects import NamedTasks, Tasks, take_names


def resume(
    run_dir: Path | str,
    *,
    task: Tasks | None = None,
    from_step: int | Literal["latest", "final"] = "latest",
    additional_steps: int | None = None,
    stop_after: int | None = None,
    allow: Collection[str] = (),
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> RunResult:
    """Go on with a run to the end that was planned, or for exactly some more steps.

    Where every step is done and the process was killed before the summary, the evaluation of the end and the summary
    are made.

    Args:
        run_dir: The run's folder.
        task: The tasks of the run that are `Task` objects, which its folder does not hold.
        from_step: Which checkpoint.
        additional_steps: Steps from there, which neither the time limit nor patience ends; the learning rate stays at
            its schedule's end beyond the planned ones.
        stop_after: Stop after so many steps of this call.
        allow: What may differ from the checkpoint: dotted settings, `data` or `task`, `hardware`, `versions` or
            `conditions`.
        callbacks: Notified of progress, results and warnings.
        progress: Show progress: in a terminal, a notebook's cell, or as lines on stderr.

    Raises:
        UserError: no run or checkpoint, a damaged one, one in use, nothing left to do, a change that is not allowed, or
            an object of the run is missing.
    """
    refuse_in_worker("resume()")
    path = user_path(os.fspath(run_dir), "RUN")
    check_run(path)
    named = NamedTasks("")
    if task is not None:
        config = load_config(config_file=path / "config.yaml", environ={}, dotenv_path=None).config
        named = take_names(task, ",".join(filter(None, (config.task, config.eval.task))))
    # Unlocked when everything else is closed.
    with at_start_of(path) as (path, directory), ExitStack() as lock, ExitStack() as resources:
        config = stored_config(path, stop_after)
        callbacks = lock.enter_context(watched(callbacks, config, progress=progress))
        ranks = resources.enter_context(joined(config.device, config.trainer.ddp_timeout))
        if ranks.is_main and (warning := lock.enter_context(working_in(path))):
            Callbacks(callbacks).on_warning(warning)
        check_shared(path, ranks)  # and what the others read is what the first one has locked
        stored = StoredRun.read(path, config, from_step, additional_steps=additional_steps, allow=allow)
        checkpoint, end = stored.checkpoint, stored.end
        observers, observed = Callbacks(), list[ResolvedDefault]()
        if ranks.is_main:
            branches = from_step != "latest" or bool(allow)
            sources = sources_of(path, config, stored)
            observers, observed = observe(config, callbacks, resources, sources, branches=branches)
        setup = prepare(config, resources, ranks, stored)
        shared = _other_ranks(setup, ranks, stored.info["distributed_info"])
        _check_surroundings(setup, stored.info, allowed(allow), has_other_ranks=bool(shared))
        total_steps = setup.plan.total_steps
        folder = resources.enter_context(
            closing(_reopened(path, stored, total_steps) if ranks.is_main else SilentFolder(path))
        )
        anchor = "same KL anchor, " if setup.policy.anchor is not None else ""
        why = end.missing or f"{anchor}same data order"
        position = f"step {stored.state['step']}{of_planned(total_steps)} ({checkpoint.name} complete and verified)"
        choices = [ResolvedDefault("resume", position, why), *directory, *shared, *observed]
        resources.enter_context(in_contact(path))
        result = Trainer(setup, folder, observers, choices, resources, ranks).run(checkpoint)
        return replace(result, objects=named.objects)


def _reopened(path: Path, stored: StoredRun, total_steps: int) -> RunFolder:
    """The folder of the run for the first rank, as it was at the checkpoint."""
    store, steps = CheckpointStore(path), stored.state["step"]
    store.clean()
    store.go_back_to(stored.checkpoint)  # before the logs are cut: a kill in between loses no line of the branch
    EventLog.write_resume(path, steps, total_steps)
    return RunFolder.reopen(path, steps, evaluates_end=bool(stored.end.missing))


def _check_surroundings(
    setup: Setup, info: Mapping[str, Any], allow: Collection[str], *, has_other_ranks: bool
) -> None:
    """Refuse what differs from the checkpoint and is not allowed to: tasks, rows, hardware, packages, conditions."""
    machine, then = hardware(setup.policy), dict(info["hardware"])
    if has_other_ranks:  # the launcher gives each of several processes one thread, and sums round differently anyway
        machine["threads"] = then["threads"] = 0
    rows, packages = {"training rows": data_hash(setup.data.rows)}, versions(setup.tasks.every.values())
    check_identities(setup.tasks.trained.values(), info, allow)
    _check_same(allow, "data", rows, {"training rows": info["data_hash"]}, "other rows are left for the training")
    _check_same(allow, "hardware", machine, then, "numbers may differ in their last bits here")
    _check_same(allow, "versions", packages, info["versions"], "numbers may differ with other packages")
    _check_same(allow, "conditions", setup.tasks.conditions, info["conditions"], "the scores may differ here")


def _other_ranks(setup: Setup, ranks: Ranks, then: Mapping[str, Any]) -> list[ResolvedDefault]:
    """A notice where the number of processes or the sharding is not the checkpoint's; the run goes on all the same.

    Every rank draws the same prompts, a completion's numbers are keyed by prompt and token, and denominators are the
    whole step's; whether each rank gets as many prompts as the others is checked before.
    """
    config, shards = setup.config, setup.policy.shards
    now = (ranks.size, 1 if shards is None else shards.size, config.trainer.cpu_offload)
    before = (then["world_size"], then["shard_size"], then["cpu_offload"])
    if now == before:
        return []
    why = "the same prompts, completions and denominators; sums round differently"
    if any(isinstance(module, torch.nn.Dropout) and module.p for module in setup.policy.model.modules()):
        why += ", and dropout leaves out other units"
    if (now[1] > 1) != (before[1] > 1) and setup.policy.precision_name not in ("float32", "float64"):
        why += ", and in mixed precision a sharded model adds up layers in the lower one"
    return [ResolvedDefault("ranks", f"{_ranks(*now)}, where the checkpoint's were {_ranks(*before)}", why)]


def _ranks(size: int, shard_size: int, is_offloaded: bool) -> str:
    sharded = "" if shard_size == 1 else ", sharded" if shard_size == size else f", sharded by {shard_size}"
    return f"{size}{sharded}{', in host memory' if is_offloaded else ''}"


def _check_same(allow: Collection[str], name: str, now: Mapping[str, Any], then: Mapping[str, Any], what: str) -> None:
    changed = [key for key in {**then, **now} if now.get(key) != then.get(key)]
    if changed and name not in allow:
        key = changed[0]
        raise UserError(
            f"{what}: {key} is {now.get(key)} now and was {then.get(key)} when the checkpoint was written. "
            f"Allow it with --allow {name}."
        )
