"""Opens the engine that a configuration names for a policy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from grpo_core.config.models import EngineConfig, RunConfig
from grpo_core.config.trainer import TrainerConfig
from grpo_core.policy.parts import gathered_state
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.endpoints.base import ONE_PROCESS, Engine, Processes, Sampling
from grpo_sdk.errors import EngineError, UserError
from grpo_sdk.plugins import variants as registry


def sampling_of(trainer: TrainerConfig) -> Sampling:
    """How a run samples completions."""
    return Sampling(
        temperature=trainer.temperature,
        top_k=trainer.top_k,
        top_p=trainer.top_p,
        min_p=trainer.min_p,
        max_completion_length=trainer.max_completion_length,
    )


def engine_of_run(
    config: RunConfig, policy: Policy, resources: ExitStack, ranks: Ranks
) -> tuple[Engine, list[ResolvedDefault]]:
    """Open the engine of a run; see `open_engine`."""
    engine, sampling = config.engine, sampling_of(config.trainer)
    return open_engine(engine, policy, resources, tokens=engine.max_batch_tokens, sampling=sampling, processes=ranks)


def open_engine(
    config: EngineConfig,
    policy: Policy,
    resources: ExitStack,
    *,
    tokens: int,
    sampling: Sampling | None = None,
    processes: Processes = ONE_PROCESS,
) -> tuple[Engine, list[ResolvedDefault]]:
    """Open an engine that samples from a policy.

    Args:
        config: Engine, its arguments, and what to do where it cannot be opened.
        policy: The model.
        resources: Receives what must be closed.
        tokens: Most tokens cached at once.
        sampling: How completions are sampled that are trained on; None where none are.
        processes: The ranks of the run, which share a server.

    Returns:
        The engine, and the choices made for the user.

    Raises:
        UserError: an argument that does not exist or does not fit, or what the engine needs is not there.
        EngineError: it cannot be started, and there is no `fallback`.
    """
    variant = bind_engine(config)  # a wrong argument is no reason to fall back
    offered = {
        "max_batch_tokens": tokens,
        "precision": policy.precision_name,
        "sampling": sampling,
        "is_quantized": policy.quantization is not None,
        "processes": processes,
        "gather": None if policy.shards is None else gathered_state,
    }
    try:
        engine = _open(variant, policy, resources, offered)
    except (EngineError, UserError) as error:
        if config.fallback is None or config.fallback == config.name:
            raise
        fallback = EngineConfig(name=config.fallback, max_batch_tokens=config.max_batch_tokens)
        engine = _open(bind_engine(fallback), policy, resources, offered)
        said = [ResolvedDefault("engine", config.fallback, f"engine.fallback, since {error}")]
    else:
        description = getattr(engine, "description", None)
        said = [] if description is None else [ResolvedDefault("engine", config.name, description)]
    said += [ResolvedDefault(*choice) for choice in getattr(engine, "choices", ())]
    return engine, said


def bind_engine(config: EngineConfig) -> registry.BoundVariant:
    """The engine that a configuration names, with its arguments.

    Raises:
        UserError: an argument that does not exist or has a wrong type.
    """
    variant = registry.bind("engine", config.name, config.args, "engine.args", {"url": config.url})
    if config.url is not None and "url" not in variant.arguments:
        raise UserError(f"engine.url has no effect: engine.name={config.name} takes no address. Leave it out.")
    return variant


def _open(variant: registry.BoundVariant, policy: Policy, resources: ExitStack, offered: Mapping[str, Any]) -> Engine:
    provided = {name: value for name, value in offered.items() if name in variant.provided}
    engine: Engine = variant(policy.model, policy.tokenizer, **provided)
    if hasattr(engine, "close"):
        resources.callback(engine.close)
    return engine
