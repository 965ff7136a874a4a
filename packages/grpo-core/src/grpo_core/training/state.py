"""The state of a run, written to a checkpoint's folder and read back bit for bit: safetensors and JSON only."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from grpo_core.policy.parts import cut_like, gathered
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.policy.reference import REFERENCE_DIR
from grpo_core.tracking.runs import ENDLESS
from grpo_core.training.advantages import AdvantageEstimator
from grpo_core.training.batches import AheadBatch, Batches, batch_from_json
from grpo_core.training.evaluations import Evaluations
from grpo_core.training.provenance import config_hash, data_hash, versions
from grpo_core.training.random_state import random_state, restore_random_state, restore_rank
from grpo_core.training.report import Report
from grpo_core.training.run_folder import RUN_FORMAT_VERSION
from grpo_core.training.setup import Setup
from grpo_core.training.stop import RunClock
from grpo_core.training.stored_run import read_state
from grpo_core.training.update import Updater

OPTIMIZER_FILE, RNG_FILE = "optimizer.safetensors", "rng.safetensors"

AHEAD_FILE = "sampled_ahead.json"
"""File of a checkpoint that holds a batch that is still to be trained on."""


@dataclass(frozen=True, slots=True)
class StepStart:
    """What a step changes beside weights, moments and the reference, as it was before the step.

    Attributes:
        mixture: State of the prompts.
        baseline: The baseline's running values.
        ahead: The step's batch, where it was sampled already.
        updater: State of the updater.
        random: State of the global generators.
        begun: Optimizer steps that had been begun.
    """

    mixture: Mapping[str, Any]
    baseline: Mapping[str, float]
    ahead: AheadBatch | None
    updater: Mapping[str, Any]
    random: tuple[dict[str, Tensor], dict[str, Any]]
    begun: int


@dataclass(slots=True)
class RunState:
    """The state of a run, as a checkpoint holds it.

    Attributes:
        setup: Configuration, tasks, rows and policy.
        updater: Optimizer, penalty coefficients and probes.
        estimator: The baseline's running values.
        batches: The batches, of which one may be sampled already.
        evaluations: Results of the evaluations so far.
        report: Warnings given so far.
        clock: Time taken.
        ranks: The processes of the run.
        step: Steps done.
        tokens: Completion tokens trained on.
        unfinished: Start of the step whose batch is being trained on.
    """

    setup: Setup
    updater: Updater
    estimator: AdvantageEstimator
    batches: Batches
    evaluations: Evaluations
    report: Report
    clock: RunClock
    ranks: Ranks
    step: int = 0
    tokens: int = 0
    unfinished: StepStart | None = None

    def step_start(self) -> StepStart:
        """The state of now, at the start of a step."""
        return StepStart(
            self.setup.data.mixture.state(),
            dict(self.estimator.state),
            self.batches.ahead,
            self.updater.state(),
            random_state(),
            self.updater.optimizer.begun,
        )

    def undo_step(self) -> bool:
        """Go back to the start of an unfinished step; False if it has changed the weights already."""
        start = self.unfinished
        if start is None:
            return True
        if self.updater.optimizer.begun != start.begun:
            return False
        self.unfinished = None
        self.setup.data.mixture.load_state(start.mixture)
        self.estimator.state = dict(start.baseline)
        self.batches.ahead = start.ahead
        self.updater.load_state(start.updater)
        restore_random_state(*start.random)
        return True

    def as_json(self) -> dict[str, Any]:
        """The part that is no tensor."""
        plan = self.setup.plan
        return {
            "version": RUN_FORMAT_VERSION,
            "step": self.step,
            "planned_steps": ENDLESS if plan.schedule_steps is None else plan.schedule_steps,
            "end_step": plan.total_steps,
            "is_extension": plan.is_extension,
            "tokens": self.tokens,
            "seconds": self.clock.seconds,
            "mixture": self.setup.data.mixture.state(),
            "baseline": dict(self.estimator.state),
            "warned": self.report.state(),
            **self.evaluations.state(),
            "updater": self.updater.state(),
        }

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint whose model the policy already is."""
        state = read_state(folder)
        self.step, self.tokens = int(state["step"]), int(state["tokens"])
        self.clock.resume(float(state["seconds"]))
        self.setup.data.mixture.load_state(state["mixture"])
        self.estimator.state = dict(state["baseline"])
        self.report.load_state(state["warned"])
        self.evaluations.load_state(state)
        if (folder / AHEAD_FILE).exists():
            self.batches.ahead = batch_from_json(orjson.loads((folder / AHEAD_FILE).read_bytes()), self.setup)
        load_optimizer(self.updater.optimizer.adam, folder / OPTIMIZER_FILE)
        self.updater.load_state(state["updater"])
        restore_rank(
            self.ranks.rank,
            load_file(folder / RNG_FILE),
            state["random"],
            seed=self.setup.config.seed,
            step=state["step"],
        )

    def info(self) -> dict[str, Any]:
        """Description of a checkpoint: position, configuration, data, machine, versions."""
        config, setup, tasks = self.setup.config, self.setup, self.setup.tasks
        rows = sum(map(len, setup.data.rows.values()))
        return {
            "command": command_line(),
            "step": self.step,
            "global_step": self.updater.optimizer.updates,
            "epoch": self.step * config.trainer.prompts_per_step / rows,
            "planned_steps": setup.plan.total_steps,
            "model_config": {"model": config.model, "adapter": config.adapter, "lora": config.lora.enabled},
            "training_config": config.model_dump(mode="json"),
            "config_hash": config_hash(config),
            "data_hash": data_hash(setup.data.rows),
            "identities": tasks.identities,
            "ingredients": {task.spec: dict(task.ingredients) for task in tasks.trained.values()},
            "reference": REFERENCE_DIR if setup.policy.anchor is not None or config.trainer.beta else None,
            "distributed_info": {
                "world_size": self.ranks.size,
                "sharding": config.trainer.sharding,
                "shard_size": 1 if setup.policy.shards is None else setup.policy.shards.size,
                "cpu_offload": config.trainer.cpu_offload,
                "rank": self.ranks.rank,
                "local_rank": self.ranks.local_rank,
            },
            "hardware": hardware(setup.policy),
            "precision": setup.policy.precision_name,
            "versions": versions(tasks.every.values()),
            "conditions": tasks.conditions,
        }


def command_line() -> str | None:
    """The command that started this process, if it is ours."""
    name = Path(sys.argv[0]).name
    return shlex.join([name, *sys.argv[1:]]) if name in ("grpo", "grpo-run") else None


def hardware(policy: Policy) -> dict[str, Any]:
    """Facts of the machine that bit-exactness depends on, since kernels are chosen by them."""
    device = policy.device
    facts: dict[str, Any] = {"device": device.type, "threads": torch.get_num_threads()}
    if policy.update_threads is not None:
        facts["update_threads"] = policy.update_threads
    if device.type == "cuda":
        facts["name"] = torch.cuda.get_device_name(device)
    else:
        facts["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    return facts


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """AdamW's moments by the index of their parameter, whole, on the first rank; every rank takes part."""
    tensors: dict[str, Tensor] = {}
    for index, parameter in enumerate(_parameters(optimizer)):
        for name, tensor in optimizer.state.get(parameter, {}).items():
            if (full := gathered(tensor)) is not None:
                tensors[f"{index}.{name}"] = full
    return tensors


def load_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Put back AdamW's moments that `optimizer_tensors` gave, from a file."""
    parameters = _parameters(optimizer)
    fused = [bool(group.get("fused")) for group in optimizer.param_groups for _ in group["params"]]
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118 - no mapping: it has no iterator
            index, _, key = name.partition(".")
            parameter, tensor = parameters[int(index)], file.get_tensor(name)
            if key != "step":
                placed = cut_like(tensor, parameter)
            else:  # which AdamW keeps on the CPU, unless it is fused: its kernel reads it on the device
                placed = tensor.to(parameter.device) if fused[int(index)] else tensor
            optimizer.state[parameter][key] = placed.clone()


def _parameters(optimizer: torch.optim.Optimizer) -> Sequence[torch.nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def store_reference(policy: Policy, run: Path, ranks: Ranks) -> None:
    """Store the frozen reference with the run, unless it is there already."""
    folder = run / REFERENCE_DIR
    is_stored = bool(ranks.from_main(b"stored" if folder.exists() else b""))
    if policy.anchor is not None and not is_stored:
        weights = policy.anchor.gathered_weights()
        if ranks.is_main:
            policy.anchor.save(folder, policy.source.name, weights)
