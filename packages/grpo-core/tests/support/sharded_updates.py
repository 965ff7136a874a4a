"""Updates of a model in shards beside the same ones whole; called by every rank of `rank_runs`, judged by `test_ranks`.

Each case is a few steps on fixed rollouts, taken by this rank's whole model alone and by the ranks' sharded one.
"""

import copy
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from small_policies import ADVANTAGES, frozen, settings
from transformers import LlamaConfig, LlamaForCausalLM

from grpo_core.config import TrainerConfig
from grpo_core.policy.parts import gathered_state, local_part
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks, joined
from grpo_core.policy.sharding import ShardLayout
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import TrainBatch
from grpo_core.training.state import optimizer_tensors
from grpo_core.training.update import Updater
from grpo_sdk.plugins.models import ModelSource

STEPS = 2


@dataclass(frozen=True)
class Case:
    """A case: settings of the trainer, and what the model is like."""

    trainer: dict[str, Any] = field(default_factory=dict)
    lora: dict[str, Any] | None = None
    tied: bool = False
    autocast: torch.dtype | None = None
    advantages: tuple[float, ...] | None = None
    scale: float | None = None


CASES = {
    "plain": Case(),
    "tied": Case(tied=True),
    "micro-batches": Case({"micro_batch_size": 1}),
    "one rank has nothing to do": Case({"micro_batch_size": 1}, advantages=(0.5, -1.0, 0.0, 0.0)),
    "nobody has": Case(advantages=(0.0, 0.0, 0.0, 0.0)),
    "KL against a copy": Case({"beta": 0.1, "num_iterations": 2}),
    "full KL": Case({"beta": 0.1, "kl": "full", "kl_placement": "loss"}, advantages=(0.5, -1.0, 0.0, 0.0)),
    "LoRA": Case({"beta": 0.1, "gradient_checkpointing": True}, lora={"r": 1}),
    "value head": Case({"value_head": True, "baseline": "value", "entropy_coef": 0.01}),
    "one rank's loss is infinite": Case(advantages=(math.inf, -1.0, 0.75, 0.25)),
    "clipped": Case({"max_grad_norm": 1e-3}),
    "probes": Case({"gns_probe_steps": 1, "gns_probe_prompts": 2, "entropy_probe_steps": 1}),
    "bfloat16": Case(autocast=torch.bfloat16),
    "float16": Case(autocast=torch.float16),
    "float16 that overflows": Case(autocast=torch.float16, scale=2.0**60),
}


def policy_of(case: Case) -> Policy:
    torch.manual_seed(0)
    # 13 tokens and 3 key-value heads: no dimension divides evenly.
    config = LlamaConfig(
        vocab_size=13, hidden_size=18, intermediate_size=25, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=3, max_position_embeddings=32, tie_word_embeddings=case.tied,
    )  # fmt: skip
    network: Any = LlamaForCausalLM(config)
    if case.autocast is None:
        network = network.double()
    if case.lora is not None:
        from peft import LoraConfig, get_peft_model

        lora = LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", **case.lora)
        network = get_peft_model(network, lora, autocast_adapter_dtype=False)
        network = network.double()
    trainer = trainer_of(case)
    if trainer.gradient_checkpointing:
        network.gradient_checkpointing_enable({"use_reentrant": False})
    policy = Policy(network, None, ModelSource("folder", "x", "x", ""), torch.device("cpu"), case.autocast)
    if trainer.beta:
        policy.freeze_reference()
    if trainer.value_head:
        policy.add_value_head(0)
    return policy


def trainer_of(case: Case) -> TrainerConfig:
    return settings(prompts_per_step=4, learning_rate=1e-2, **{"max_grad_norm": 1e9, **case.trainer})


def batch_of(case: Case, updater: Updater) -> TrainBatch:
    advantages = ADVANTAGES if case.advantages is None else torch.tensor(case.advantages, dtype=torch.float64)
    returns = torch.ones(4, 5, dtype=torch.float64) if case.trainer.get("value_head") else None
    return frozen(updater, advantages=advantages, returns=returns)


def updated(policy: Policy, case: Case, ranks: Ranks) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    """Metrics of a few updates; weights and optimizer after them."""
    updater = Updater(policy, Algorithm.of(trainer_of(case)), STEPS, ranks=ranks)
    if case.scale is not None:
        updater.optimizer.scaler.load_state_dict({**updater.optimizer.scaler.state_dict(), "scale": case.scale})
    metrics = []
    for _ in range(STEPS):
        taken = updater.update(batch_of(case, updater))
        metrics.append({name: value for name, value in taken.items() if name != "update_s"})
    scales = set(ranks.gather(str(updater.optimizer.scaler.get_scale()).encode()))
    assert len(scales) == 1, f"ranks scale differently: {scales}"
    state = {f"model.{name}": tensor for name, tensor in gathered_state(policy.model).items()}
    if policy.value_head is not None:
        state |= {f"value.{name}": tensor for name, tensor in gathered_state(policy.value_head).items()}
    return metrics, state | {
        f"adam.{name}": tensor for name, tensor in optimizer_tensors(updater.optimizer.adam).items()
    }


def difference(case: Case, ranks: Ranks, layout: ShardLayout) -> dict[str, Any]:
    """What sharding changes."""
    sharded = policy_of(case)
    whole = copy.deepcopy(sharded)
    sharded.shard(layout)
    metrics, state = updated(sharded, case, ranks)
    expected_metrics, expected = updated(whole, case, Ranks())
    assert [one.keys() for one in metrics] == [one.keys() for one in expected_metrics]
    if not ranks.is_main:
        return {}
    assert state.keys() == expected.keys()
    held = [local_part(parameter).numel() / parameter.numel() for parameter in sharded.model.parameters()]
    weights = {name: float((tensor.double() - expected[name].double()).abs().max()) for name, tensor in state.items()}
    return {"sharded": metrics, "whole": expected_metrics, "weights": weights, "held": held}


def main(out: str, layout: ShardLayout, cases: Sequence[str]) -> None:
    with joined("cpu", 60) as ranks:
        found = {name: difference(CASES[name], ranks, layout) for name in cases}
        if ranks.is_main:
            Path(out).write_text(json.dumps(found))
