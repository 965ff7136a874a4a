"""Everything a run has become, to a checkpoint's folder and back, bit for bit: safetensors and JSON only."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from grpo_core.checkpoints import read_json, write_json
from grpo_core.errors import UserError
from grpo_core.policy.parts import cut_like, gathered
from grpo_core.training.batch import TrainBatch
from grpo_core.training.provenance import conditions_of, config_hash, data_hash, tasks_of, versions
from grpo_core.training.random_state import restore_rank
from grpo_core.training.update import Updater

if TYPE_CHECKING:
    from grpo_core.training.trainer import Trainer

INFO_FILE = "training_info.json"
"""What a checkpoint is of, for people and for the checks of a resume."""

OPTIMIZER_FILE, RNG_FILE, BUFFER_FILE = "optimizer.safetensors", "rng.safetensors", "buffer.safetensors"
STATE_FILE = "trainer_state.json"


@dataclass(slots=True)
class Buffer:
    """A generated batch whose optimizer steps are not all taken.

    Attributes:
        step: Of the batch.
        batch: With advantages.
        metrics: Of its rollouts.
        taken: Metrics of the optimizer steps so far.
    """

    step: int
    batch: TrainBatch
    metrics: Mapping[str, float]
    taken: list[dict[str, float]] = field(default_factory=list)


def save_state(
    folder: Path,
    updater: Updater,
    state: Mapping[str, Any],
    buffer: Buffer | None,
    moments: Mapping[str, Tensor],
    randomness: tuple[dict[str, Tensor], list[dict[str, Any]]],
) -> None:
    """Write optimizer, loss scaler, random numbers, the JSON state and the buffer beside the model's own files.

    Args:
        folder: Of the checkpoint.
        updater: Of the run.
        state: What the run has become otherwise, as JSON.
        buffer: The batch that a stop fell into.
        moments: Of `optimizer_tensors`.
        randomness: Of `gathered_random_state`.
    """
    save_file(dict(moments), folder / OPTIMIZER_FILE)
    tensors, facts = randomness
    save_file(tensors, folder / RNG_FILE)
    document: dict[str, Any] = {**state, "updater": updater.state(), "random": facts, "buffer": None}
    if buffer is not None:
        save_file(_buffer_tensors(buffer.batch), folder / BUFFER_FILE)
        document["buffer"] = {"step": buffer.step, "metrics": dict(buffer.metrics), "taken": buffer.taken}
    write_json(folder / STATE_FILE, document)


def read_state(folder: Path) -> dict[str, Any]:
    """The JSON part of a checkpoint.

    Raises:
        UserError: it is missing or is no JSON object.
    """
    document = read_json(folder / STATE_FILE, "checkpoint state")
    if not isinstance(document, dict):
        raise UserError(f"{folder / STATE_FILE}: not a checkpoint state.")
    return document


def load_state(folder: Path, updater: Updater, state: Mapping[str, Any], *, rank: int, seed: int) -> Buffer | None:
    """Restore what `save_state` wrote; the weights of model and value head are loaded with the model.

    Args:
        folder: The checkpoint.
        updater: Of the policy that was loaded from it.
        state: Of `read_state`.
        rank: Whose random numbers.
        seed: Of the run.
    """
    _load_optimizer(updater.optimizer, folder / OPTIMIZER_FILE)
    updater.load_state(state["updater"])
    restore_rank(rank, load_file(folder / RNG_FILE), state["random"], seed=seed, step=state["step"])
    kept = state["buffer"]
    if kept is None:
        return None
    batch = TrainBatch(**_buffer_fields(load_file(folder / BUFFER_FILE)))  # type: ignore[arg-type] # all are there
    return Buffer(kept["step"], batch, kept["metrics"], list(kept["taken"]))


def training_info(trainer: Trainer) -> dict[str, Any]:
    """What a checkpoint is of: position, configuration, data, machine, versions."""
    config = trainer.config
    rows = sum(map(len, trainer.setup.rows.values()))
    return {
        "command": command_line(),
        "step": trainer.step,
        "global_step": trainer.updater.updates,
        "epoch": trainer.step * config.trainer.prompts_per_step / rows,
        "planned_steps": trainer.setup.total_steps,
        "model_config": {"model": config.model, "adapter": config.adapter, "lora": config.lora.enabled},
        "training_config": config.model_dump(mode="json"),
        "config_hash": config_hash(config),
        "data_hash": data_hash(trainer.setup.rows),
        "identities": dict(trainer.setup.identities),
        "reference": "reference" if trainer.policy.has_reference else None,
        "distributed_info": {
            "world_size": trainer.world.size,
            "sharding": config.trainer.sharding,
            "rank": trainer.world.rank,
            "local_rank": trainer.world.local_rank,
        },
        "hardware": hardware(trainer.policy.device),
        "precision": trainer.policy.precision_name,
        "versions": versions(tasks_of(trainer.setup).values()),
        "conditions": conditions_of(trainer.setup),
    }


def command_line() -> str | None:
    """The words that started this process, if it is the command line."""
    name = Path(sys.argv[0]).name
    return shlex.join([name, *sys.argv[1:]]) if name in ("grpo", "grpo-run") else None


def hardware(device: torch.device) -> dict[str, Any]:
    """What bit-exactness depends on: the kernels' choices go by them."""
    facts: dict[str, Any] = {"device": device.type, "threads": torch.get_num_threads()}
    if device.type == "cuda":
        facts["name"] = torch.cuda.get_device_name(device)
    else:
        facts["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    return facts


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """AdamW's moments by the index of their parameter, whole, on the first rank; every rank takes part."""
    found: dict[str, Tensor] = {}
    for index, parameter in enumerate(_parameters(optimizer)):
        for name, tensor in optimizer.state.get(parameter, {}).items():
            if (full := gathered(tensor)) is not None:
                found[f"{index}.{name}"] = full
    return found


def _load_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    parameters = _parameters(optimizer)
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118 - no mapping: it has no iterator
            index, _, key = name.partition(".")
            parameter, tensor = parameters[int(index)], file.get_tensor(name)
            # AdamW keeps its step count on the CPU, whatever the parameter's device.
            placed = tensor if key == "step" else cut_like(tensor, parameter)
            optimizer.state[parameter][key] = placed.clone()


def _parameters(optimizer: torch.optim.Optimizer) -> Sequence[torch.nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _buffer_tensors(batch: TrainBatch) -> dict[str, Tensor]:
    named = {each.name: getattr(batch, each.name) for each in fields(batch)}
    return {name: tensor.contiguous() for name, tensor in named.items() if tensor is not None}


def _buffer_fields(tensors: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
    return {each.name: tensors.get(each.name) for each in fields(TrainBatch)}
