"""Checks that a model and the prompts of a step divide among ranks, and a rank's prompts among its forward passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_core.config import RunConfig, TrainerConfig
from grpo_core.config.section import either
from grpo_core.config.trainer import divisors
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.errors import UserError

if TYPE_CHECKING:
    from grpo_core.policy.ranks import Ranks


def check_shares(trainer: TrainerConfig, size: int, node_size: int) -> None:
    """Check that every rank gets as many prompts as the others, and whole micro-batches of them.

    Args:
        trainer: Settings of the run.
        size: Number of ranks.
        node_size: Number of ranks on each machine.

    Raises:
        UserError: with the arithmetic, and what would do.
    """
    prompts = trainer.prompts_per_optimizer_step
    if trainer.is_sharded:
        shard_size(trainer, size, node_size)
    if trainer.is_sharded and trainer.micro_batch_size == "auto":
        raise UserError(
            f"trainer.micro_batch_size=auto with trainer.sharding={trainer.sharding}: ranks run the passes of a shared "
            "model together, so none can try alone what fits. Give a number, or leave it out to pack by tokens."
        )
    if prompts % size:
        steps = trainer.steps_per_generation
        choices = either([number for number in divisors(prompts) if number <= size])
        of = f"{trainer.prompts_per_step} prompts_per_step / {steps} steps_per_generation = " if steps > 1 else ""
        raise UserError(
            f"{size} ranks cannot share the {prompts} prompts of an optimizer step: {of}{prompts} / {size} = "
            f"{prompts / size:.4g}. Use {choices} of them, or let "
            f"trainer.prompts_per_step / steps_per_generation be a multiple of {size}."
        )
    own = prompts // size
    per_pass = trainer.micro_batch_prompts
    if per_pass is not None and own % per_pass:
        raise UserError(
            f"trainer.micro_batch_prompts={per_pass} does not divide a rank's prompts of an optimizer step: "
            f"{prompts} / {size} ranks = {own}, {own} / {per_pass} = {own / per_pass:.4g}. "
            f"Use {either(divisors(own))}."
        )
    per_pass, rows = trainer.rows_per_pass, trainer.rows_per_step // size
    if per_pass is not None and rows % per_pass:
        raise UserError(
            f"trainer.micro_batch_size={per_pass} does not divide a rank's completions of an optimizer step: {prompts} "
            f"prompts x {trainer.num_generations} generations / {size} ranks = {rows}, {rows} / {per_pass} = "
            f"{rows / per_pass:.4g}. Use {either(divisors(rows))}, or leave it out to pack by micro_batch_tokens."
        )


def shard_size(trainer: TrainerConfig, size: int, node_size: int) -> int:
    """Ranks that share one copy of a sharded model: all, or the neighbours of a group.

    Args:
        trainer: Settings of the run, with sharding.
        size: Number of ranks.
        node_size: Number of ranks on each machine.

    Raises:
        UserError: they cannot be grouped so; says what would do.
    """
    if size == 1:
        raise UserError(
            f"trainer.sharding={trainer.sharding} shares a model among processes, and this is the only one. Start "
            "several (--nproc N, or torchrun), or use trainer.sharding=none, which holds it whole."
        )
    if trainer.sharding == "full":
        return size
    shared = node_size if trainer.shard_size is None else trainer.shard_size
    fitting = [number for number in divisors(size) if 1 < number < size]
    if shared in fitting:
        return shared
    given = f"the {shared} of each machine" if trainer.shard_size is None else f"trainer.shard_size={shared}"
    if shared == 1:
        problem = "one process shares with nobody, which is trainer.sharding=none"
    elif shared == size:
        problem = f"it is one group of all {size} processes, which is trainer.sharding=full"
    else:
        problem = f"{size} processes cannot be divided into groups of {shared}: {size} / {shared} = {size / shared:.4g}"
    advice = f"trainer.shard_size={either(fitting)}, or sharding=full" if fitting else "trainer.sharding=full"
    raise UserError(f"trainer.sharding=hybrid with {given}: {problem}. Use {advice}.")


def check_sharing(config: RunConfig, backend: str, precision: str) -> None:
    """Check that the device can do what is asked of a sharded model; a model that is not sharded passes.

    Args:
        config: The run.
        backend: Torch's backend on which it computes.
        precision: Name of the dtype in which it computes; `auto` where that is not known yet.

    Raises:
        UserError: it cannot; says what would do.
    """
    trainer = config.trainer
    if trainer.is_sharded and samples_beside(config) and backend in ("cuda", "rocm"):
        raise UserError(
            f"trainer.off_policy_steps=1 with trainer.sharding={trainer.sharding}: on GPUs two threads cannot gather "
            "weights at once (NCCL). Sample from a server (engine.name=vllm), or leave one out."
        )
    if trainer.cpu_offload and backend == "cpu":
        raise UserError(
            "trainer.cpu_offload=true: this run computes on the CPU, whose memory holds the shards already, so there "
            "is nothing to offload. Leave it out."
        )
    if trainer.cpu_offload and precision == "float16":
        raise UserError(
            "trainer.cpu_offload=true with precision=float16: the loss is scaled on the GPU, where its gradients are "
            "not. Use precision=bfloat16 or float32."
        )


def samples_beside(config: RunConfig) -> bool:
    """Whether a thread samples from a copy of the model while it trains."""
    return bool(config.trainer.off_policy_steps) and "native" in (config.engine.name, config.engine.fallback)


def accumulation(trainer: TrainerConfig, ranks: Ranks) -> list[ResolvedDefault]:
    """The number of micro-batches of an optimizer step, where the configuration fixes it."""
    shared = f" / {ranks.size} ranks" if ranks.size > 1 else ""
    if trainer.micro_batch_prompts is not None:
        total, size = trainer.prompts_per_optimizer_step, trainer.micro_batch_prompts
        why = f"{total} prompts of an optimizer step{shared} / micro_batch_prompts {size}"
    elif trainer.rows_per_pass is not None:
        total, size = trainer.rows_per_step, trainer.rows_per_pass
        why = f"{total} completions of an optimizer step{shared} / micro_batch_size {size}"
    else:
        return []
    return [ResolvedDefault("gradient accumulation", f"{total // ranks.size // size} micro-batches", why)]
