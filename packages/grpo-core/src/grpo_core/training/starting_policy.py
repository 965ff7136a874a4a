"""The policy that a run starts or goes on with: loaded, with its reference and value head, and shared among ranks."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from grpo_core.algorithms.causal_lm import causal_lm
from grpo_core.config import RunConfig, TrainerConfig
from grpo_core.policy.first_rank import difference, structure_of, take_generation_settings
from grpo_core.policy.load import WeightsPlace, load_policy
from grpo_core.policy.memory import returning_freed_memory
from grpo_core.policy.policy import Policy
from grpo_core.policy.pretrained import StructureError
from grpo_core.policy.ranks import Ranks
from grpo_core.policy.reference import reference_folder
from grpo_core.policy.sharding import ShardLayout, check_shardable
from grpo_core.policy.value_head import VALUE_HEAD_FILE
from grpo_core.profiles.accelerator import node_process_count
from grpo_core.training.random_state import seed_everything
from grpo_core.training.rank_shares import check_shares, check_sharing, samples_beside, shard_size
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.errors import UserError


def shard_layout(config: RunConfig, ranks: Ranks) -> ShardLayout | None:
    """How the ranks share the model; None where each holds all of it.

    Raises:
        UserError: they cannot share it, or the prompts, as the settings say.
    """
    trainer, node_size = config.trainer, node_process_count()

    def check_own() -> bytes:
        check_shares(trainer, ranks.size, node_size)
        return b""

    ranks.together(check_own)
    if not trainer.is_sharded:
        return None

    def check(sizes: set[int]) -> bytes:
        check_sharing(config, ranks.device.type, config.precision)
        if len(sizes) > 1:
            raise UserError(
                "trainer.sharding=hybrid: machines have different numbers of processes, "
                f"{' and '.join(map(str, sorted(sizes)))}, and groups must be equal. Set trainer.shard_size for all."
            )
        return b""

    size = shard_size(trainer, ranks.size, node_size)
    sizes = {int(each) for each in ranks.gather(str(size).encode())}
    ranks.together(lambda: check(sizes))
    return ShardLayout(size, is_offloaded=trainer.cpu_offload, from_first_rank=True, timeout=ranks.timeout)


def starting_policy(config: RunConfig, checkpoint: Path | None, ranks: Ranks, layout: ShardLayout | None) -> Policy:
    """The starting policy, or the one of a checkpoint with the run's stored reference.

    Args:
        config: Configuration of the run, resolved.
        checkpoint: Folder of the checkpoint.
        ranks: The processes of the run.
        layout: How they share the model, of `shard_layout`.

    Raises:
        UserError: it cannot be loaded, or not be shared.
    """
    with nullcontext() if layout is None else returning_freed_memory():
        policy = _shared(config, checkpoint, ranks, layout)
    if config.trainer.gradient_checkpointing:
        # Its name in newer versions of transformers, and before.
        enable = getattr(policy.model, "activation_checkpointing_enable", policy.model.gradient_checkpointing_enable)
        enable({"use_reentrant": False})
    return policy


def _shared(config: RunConfig, checkpoint: Path | None, ranks: Ranks, layout: ShardLayout | None) -> Policy:
    policy, reason = _loaded(config, checkpoint, ranks, is_sharded=layout is not None)
    _check_precision(policy, ranks)
    if ranks.size > 1:
        backend = "nccl" if ranks.device.type == "cuda" else "gloo"
        policy.choices.append(ResolvedDefault("ranks", f"{ranks.size}, {backend}", "started as several processes"))
    if layout is not None:
        layout = replace(layout, from_first_rank=not reason)
        ranks.together(lambda: _checked(config, policy))
        policy.shard(layout, ranks.beside().group if samples_beside(config) else None)
        policy.choices.append(_sharding_choice(config.trainer, layout, ranks))
        if reason:
            policy.choices.append(ResolvedDefault("loading", "every process reads the whole model", reason))
    return policy


def _loaded(config: RunConfig, checkpoint: Path | None, ranks: Ranks, *, is_sharded: bool) -> tuple[Policy, str]:
    """The policy with reference and value head; of a sharded one the first rank alone has the weights.

    Returns:
        The policy, and why every rank has the weights although it is sharded; empty where they have not.
    """
    policies: list[Policy] = []

    def load(place: WeightsPlace) -> bytes:
        try:
            policies[:] = [_load(config, checkpoint, ranks, place)]
        except StructureError as error:
            return str(error).encode()
        if place == "host":
            check_shardable(policies[0].model)
        return b""

    def attach_own(kind: str) -> bytes:
        if not ranks.is_main:
            _attach(policies[0], config, checkpoint, kind)
        return structure_of(policies[0].model)

    if not is_sharded:
        ranks.together(lambda: load("device"))
        _attach(policies[0], config, checkpoint)
        return policies[0], ""
    reasons = [each.decode() for each in ranks.together(lambda: load("host" if ranks.is_main else "meta")) if each]
    if not reasons:
        kind = ranks.lead(lambda: _attach(policies[0], config, checkpoint))
        structures = ranks.together(lambda: attach_own(kind))
        reasons = [reason for each in structures[1:] if (reason := difference(structures[0], each))]
        if not reasons:
            take_generation_settings(policies[0].model, structures[0])
            return policies[0], ""
    ranks.together(lambda: b"" if ranks.is_main else load("host"))
    ranks.together(lambda: _attach(policies[0], config, checkpoint).encode())
    return policies[0], f"it cannot be made without its weights: {reasons[0]}"


def _load(config: RunConfig, checkpoint: Path | None, ranks: Ranks, place: WeightsPlace) -> Policy:
    assert config.model is not None, "the configuration is resolved"
    model, adapter = config.model, config.adapter
    if checkpoint is not None:
        is_adapter = adapter is not None or config.lora.enabled
        saved = str((checkpoint / "model").resolve())
        model, adapter = (model, saved) if is_adapter else (saved, None)
    seed_everything(config.seed)  # a fresh adapter is drawn here
    policy = load_policy(
        model,
        adapter=adapter,
        lora=config.lora,
        device=config.device if ranks.size == 1 else (ranks.device, ranks.device_why),
        precision=config.precision,
        weights=place,
    )
    if checkpoint is not None:  # the folder of the weights says nothing: name the model that the run started from
        first = policy.choices[0]
        shown = first.value.replace(f"{model} (", f"{config.model} (", 1)
        policy.choices[0] = replace(first, value=shown, why=f"with the weights of {checkpoint.name}")
    return policy


def _attach(policy: Policy, config: RunConfig, checkpoint: Path | None, kind: str | None = None) -> str:
    """Give a policy its reference and value head, where the run has them.

    Args:
        policy: The policy as it was loaded.
        config: Configuration of the run.
        checkpoint: Folder of the checkpoint.
        kind: Kind of a reference that is frozen now, for a policy without weights.

    Returns:
        Kind of the reference; empty where there is none.
    """
    causal_lm(policy.model).head_weight()  # refused now rather than in the first update
    trainer, stored = config.trainer, None if checkpoint is None else reference_folder(checkpoint)
    if stored is not None and stored.exists():
        policy.load_reference(stored)
    elif trainer.beta or trainer.kl_metric:
        policy.freeze_reference(kind)
    if trainer.value_head:
        policy.add_value_head(config.seed)
        if checkpoint is not None and policy.value_head is not None:
            policy.value_head.load(checkpoint / "model" / VALUE_HEAD_FILE)
    return "" if policy.anchor is None else policy.anchor.kind


def _sharding_choice(trainer: TrainerConfig, layout: ShardLayout, ranks: Ranks) -> ResolvedDefault:
    held = f"1 / {layout.size} of the weights in each process"
    if layout.size != ranks.size:
        held += f", {ranks.size // (layout.size or 1)} copies"
    where = ", in host memory" if layout.is_offloaded else ""
    why = f"trainer.sharding={trainer.sharding}: a layer is whole only while it runs"
    return ResolvedDefault("sharding", held + where, why)


def _checked(config: RunConfig, policy: Policy) -> bytes:
    """Check the sharing once more, in the precision that the device has chosen; nothing, for `Ranks.together`."""
    check_sharing(config, policy.device.type, policy.precision_name)
    return b""


def _check_precision(policy: Policy, ranks: Ranks) -> None:
    """Check that all ranks compute alike: each chooses by its own device, and gradients are summed."""
    chosen = [name.decode() for name in ranks.gather(policy.precision_name.encode())]
    if len(set(chosen)) > 1:
        listed = ", ".join(f"rank {rank} {name}" for rank, name in enumerate(chosen))
        common = "float16" if "float16" in chosen else "float32"
        raise UserError(
            f"precision=auto is another one on each kind of device: {listed}. Set one for all: precision={common}."
        )
