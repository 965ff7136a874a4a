"""Settings that follow from the accelerator and the size of the model, by a GPU profile; and a run's memory plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from grpo_core.config.layers import LoadedConfig
from grpo_core.config.models import RunConfig
from grpo_core.config.sources import Profile
from grpo_core.config.trainer import TrainerConfig, divisors
from grpo_core.profiles import accelerator as accelerators
from grpo_core.profiles import gpu, platforms
from grpo_core.profiles.accelerator import GIB, Accelerator
from grpo_core.profiles.estimate import (
    DOUBLE,
    HALF,
    NF4_BYTES,
    SINGLE,
    MemoryEstimate,
    MemoryPlan,
    cached_tokens,
    estimate,
    gib,
    largest_pass,
)
from grpo_core.profiles.model_shape import ModelShape
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.gpu_profile import GpuProfile
from grpo_sdk.plugins.host import PluginHost

MEMORY_SHARE = 0.8
"""Share of the memory that a run's sizes may take by its estimate."""

LENGTHS = ((12.0, 512), (6.0, 384), (0.0, 256))
"""(GiB of memory per 10^9 parameters, tokens of a completion): rl_coding_games' own on a V100 of 16 GB."""

HALF_PRECISIONS = ("bfloat16", "float16")

MIXES = ("cuda", "rocm")
"""Backends on which precision=auto is a mixed one."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The accelerator of a run and the profile that it is configured by.

    Attributes:
        profile: The GPU profile.
        accelerator: The accelerator; where the profile is named on another machine, one of the profile's memory.
        why: Why it is this profile.
    """

    profile: GpuProfile
    accelerator: Accelerator
    why: str


def hardware_of(
    config: RunConfig, host: PluginHost | None = None, accelerator: Accelerator | None = None
) -> Hardware | None:
    """The GPU profile of a run; None where `profile` is null.

    Args:
        config: The run.
        host: Plugin host in which profiles are looked up.
        accelerator: What `device` means here; by default it is detected.

    Raises:
        UnknownNameError: there is no such profile.
    """
    if config.profile is None:
        return None
    found = accelerator or accelerators.detect(config.device)
    if config.profile == "auto":
        profile, why = gpu.matching(found, gpu.profiles(host).values())
        return Hardware(profile, found, why)
    profile = gpu.named(config.profile, host)
    if gpu.fits(profile, found) or not profile.memory_gib:
        return Hardware(profile, found, f"profile={profile.name}, on {found}")
    capability = profile.capabilities[0] if profile.capabilities else ""
    imagined = Accelerator(profile.backend, profile.name, int(profile.memory_gib * GIB), capability)
    return Hardware(profile, imagined, f"profile={profile.name}, for {profile.memory_gib:g} GiB; here is {found}")


def machine_choice(config: RunConfig) -> ResolvedDefault:
    """The platform and the GPU profile of a run, with how they were recognised."""
    platform, hardware = platforms.detect(), hardware_of(config)
    profile = "no GPU profile" if hardware is None else f"GPU profile {hardware.profile.name}"
    why = f"{platform.why}; {'profile=null' if hardware is None else hardware.why}"
    if platform.advice:
        why += f". {platform.advice}"
    is_ordinary = not platform.advice and config.profile == "auto"
    return ResolvedDefault("platform", f"{platform.name}, {profile}", why, is_ordinary)


def hardware_profile(loaded: LoadedConfig, hardware: Hardware, shape: ModelShape | None) -> Profile:
    """The settings that a GPU profile recommends for a run.

    Args:
        loaded: Everything that ranks above the profile, with defaults.
        hardware: Accelerator and GPU profile.
        shape: The model's, where it is known; without it nothing is sized to the memory.
    """
    profile = hardware.profile
    values: dict[str, object] = {} if profile.precision == "auto" else {"precision": profile.precision}
    if shape is not None and profile.max_micro_batch_tokens:
        values |= _sizes(loaded, hardware, shape, values)
    return Profile(profile.name, values, f"{profile.description}; {hardware.why}")


def _sizes(
    loaded: LoadedConfig, hardware: Hardware, shape: ModelShape, values: Mapping[str, object]
) -> dict[str, object]:
    """What is sized to the memory, where `values` are recommended, too."""
    config, trainer, accelerator = loaded.config, loaded.config.trainer, hardware.accelerator
    values = {**values, "engine.name": "native"}
    per_billion = accelerator.memory_gib / (shape.parameters / 1e9)
    length = next(tokens for least, tokens in LENGTHS if per_billion >= least)
    if shape.context is None or length <= shape.context - trainer.max_prompt_length:
        values["trainer.max_completion_length"] = length
    kept = {name: value for name, value in values.items() if loaded.sources[name].kind == "default"}
    plan = memory_plan(with_values(config, kept), shape, accelerator)
    memory = MEMORY_SHARE * accelerator.memory
    row = plan.prompt_tokens + plan.completion_tokens
    is_open = loaded.sources["trainer.gradient_checkpointing"].kind == "default"
    if is_open and trainer.micro_batch_size is None and trainer.micro_batch_prompts is None:
        fitting = largest_pass(plan, memory, hardware.profile.max_micro_batch_tokens)
        tokens, checkpointing = fitting or (row, True)
        values |= {"trainer.gradient_checkpointing": checkpointing, "trainer.micro_batch_tokens": tokens}
    room = max(0.0, memory - estimate(plan).fixed - plan.server_weights) / 2
    cached = cached_tokens(shape, plan.compute_bytes, room)
    cached = 1 << (cached.bit_length() - 1) if cached else 0  # a power of two
    return {**values, "engine.max_batch_tokens": max(cached, row), "eval.batch_size": max(1, cached // row)}


def memory_plan(
    config: RunConfig, shape: ModelShape, accelerator: Accelerator, prompt_tokens: int | None = None
) -> MemoryPlan:
    """The sizes of a run that its memory depends on.

    Args:
        config: The run.
        shape: The model's.
        accelerator: What it runs on.
        prompt_tokens: Tokens of a prompt; by default the longest that is allowed.
    """
    trainer, lora = config.trainer, config.lora
    prompt = trainer.max_prompt_length if prompt_tokens is None else prompt_tokens
    is_adapter = lora.enabled or config.adapter is not None
    weight = NF4_BYTES if lora.quantization else DOUBLE if config.precision == "float64" else SINGLE
    is_half = config.precision in HALF_PRECISIONS or (config.precision == "auto" and accelerator.backend in MIXES)
    rows = trainer.rows_per_pass
    if trainer.micro_batch_prompts is not None:
        rows = trainer.micro_batch_prompts * trainer.num_generations
    server_share, server_stays = _server(config, accelerator)
    plan = MemoryPlan(
        shape=shape,
        weight_bytes=weight,
        compute_bytes=HALF if is_half else SINGLE if weight != DOUBLE else DOUBLE,
        trained=shape.lora_parameters(lora.r) if is_adapter else shape.parameters,
        has_reference=(trainer.beta > 0 or trainer.kl_metric) and not is_adapter,
        prompt_tokens=prompt,
        completion_tokens=trainer.max_completion_length,
        generations=trainer.num_generations,
        prompts=max(1, trainer.prompts_per_step // accelerators.process_count()),
        pass_tokens=trainer.micro_batch_tokens if rows is None else _tokens_of(rows, prompt, trainer),
        checkpointing=trainer.gradient_checkpointing,
        cached_tokens=config.engine.max_batch_tokens,
        on_accelerator=accelerator.backend != "cpu",
        overlaps=bool(trainer.off_policy_steps) or server_stays,
        shards=_shards(trainer),
        is_offloaded=trainer.cpu_offload,
        server_share=server_share,
    )
    if trainer.micro_batch_size != "auto":
        return plan
    fitting = _rows_that_fit(plan, trainer, trainer.micro_batch_memory * accelerator.memory)
    return replace(plan, pass_tokens=_tokens_of(fitting[-1] if fitting else 1, prompt, trainer))


def needs(need: MemoryEstimate, accelerator: Accelerator) -> str:
    """An estimate in words: `needs about 21.0 GiB of 24.0: weights 3.1, optimizer 12.3, …`."""
    missing = "; that is more than there is" if need.total > accelerator.memory else ""
    return f"needs about {gib(need.total)} GiB of {accelerator.memory_gib:.1f}: {need}{missing}"


def check_fits(loaded: LoadedConfig, hardware: Hardware, shape: ModelShape) -> None:
    """Check what can be known of a run's memory before the model is loaded.

    Raises:
        UserError: weights, gradients and moments alone need more than there is, or a preset's forward pass does; with
            the arithmetic and what would fit.
    """
    config, accelerator = loaded.config, hardware.accelerator
    if config.trainer.is_sharded or accelerator.backend == "cpu":
        return
    plan = memory_plan(config, shape, accelerator)
    need = estimate(plan)
    bare = _bare(need)
    if bare.total > accelerator.memory:
        raise UserError(
            f"model {config.model} needs {gib(bare.total)} GiB before its first activation, of "
            f"{accelerator.memory_gib:.1f} on {accelerator.name}: {bare}, for {shape.parameters / 1e9:.2f} x 10^9 "
            f"parameters. {_alternatives(config, shape, accelerator)}"
        )
    source = loaded.sources["trainer.micro_batch_size"]
    rows = config.trainer.rows_per_pass
    if rows is None or source.kind != "preset" or need.total <= accelerator.memory:
        return
    fitting = _rows_that_fit(plan, config.trainer, accelerator.memory)
    advice = f"trainer.micro_batch_size={fitting[-1]}" if fitting else "trainer.gradient_checkpointing=true"
    raise UserError(
        f"the preset {source.where} has {rows} completions of up to {plan.prompt_tokens} + {plan.completion_tokens} "
        f"tokens in a forward pass, which needs about {gib(need.total)} GiB of {accelerator.memory_gib:.1f} on "
        f"{accelerator.name}: {need}. Use {advice}, or another preset."
    )


def _bare(need: MemoryEstimate) -> MemoryEstimate:
    """Weights, gradients and moments alone."""
    return replace(need, activations=0.0, sampling=0.0)


def _server(config: RunConfig, accelerator: Accelerator) -> tuple[float | None, bool]:
    """The share of `MemoryPlan` of the server that samples, and whether it keeps its memory while the model trains.

    By default its memory is freed in training on an accelerator alone.
    """
    engine = config.engine
    if engine.name != "vllm":
        return None, False
    if engine.url is not None:
        return 0.0, False
    sleep, devices = engine.args.get("sleep"), engine.args.get("tensor_parallel_size", 1)
    stays = not sleep if isinstance(sleep, bool) else accelerator.backend == "cpu"
    return (1 / devices if isinstance(devices, int) and devices > 0 else 1.0), stays


def _shards(trainer: TrainerConfig) -> int:
    """Processes that share one copy of the weights."""
    if trainer.sharding == "hybrid":
        return trainer.shard_size or accelerators.node_process_count()
    return accelerators.process_count() if trainer.is_sharded else 1


def _rows_that_fit(plan: MemoryPlan, trainer: TrainerConfig, memory: float) -> list[int]:
    """Completions of a forward pass, by the estimate: ascending divisors of a rank's part of an optimizer step."""
    sizes = divisors(max(1, trainer.rows_per_step // accelerators.process_count()))
    passes = {size: _tokens_of(size, plan.prompt_tokens, trainer) for size in sizes}
    return [size for size, tokens in passes.items() if estimate(replace(plan, pass_tokens=tokens)).total <= memory]


def _tokens_of(rows: int, prompt_tokens: int, trainer: TrainerConfig) -> int:
    """Tokens of a forward pass of so many completions; those of one prompt share it."""
    prompts = -(-rows // trainer.num_generations)
    return prompts * prompt_tokens + rows * trainer.max_completion_length


def with_values(config: RunConfig, values: Mapping[str, object]) -> RunConfig:
    """The configuration with some values in place of others; they were checked when they were made."""
    sections: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        section, _, key = name.rpartition(".")
        sections.setdefault(section, {})[key] = value
    changed = {name: getattr(config, name).model_copy(update=keys) for name, keys in sections.items() if name}
    return config.model_copy(update={**sections.get("", {}), **changed})


def _alternatives(config: RunConfig, shape: ModelShape, accelerator: Accelerator) -> str:
    tried: dict[str, dict[str, object]] = {
        "lora.enabled=true": {"lora.enabled": True},
        "lora.enabled=true lora.quantization=nf4": {"lora.enabled": True, "lora.quantization": "nf4"},
    }
    for words, values in tried.items():
        bare = _bare(estimate(memory_plan(with_values(config, values), shape, accelerator)))
        if bare.total < accelerator.memory:
            return f"Use {words}, which needs {gib(bare.total)}, or a smaller model."
    return "Use a smaller model, or trainer.sharding=full in several processes."
