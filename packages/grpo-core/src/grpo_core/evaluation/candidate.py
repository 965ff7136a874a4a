"""The model that is evaluated: loaded, with what samples from it, and whether its context has room for the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from grpo_core.engines.compatibility import context_of, max_context
from grpo_core.evaluation.held_out import HeldOutTask
from grpo_core.evaluation.sampling import EngineSampler, Sampler, answer_limit
from grpo_core.evaluation.settings import ModelOptions
from grpo_core.policy.load import load_policy
from grpo_core.policy.memory import tokens_that_fit
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.policy.sampler import bind_engine, open_engine
from grpo_sdk.callbacks import Callbacks, ResolvedDefault
from grpo_sdk.endpoints.base import Engine
from grpo_sdk.episodes.encoder import EpisodeEncoder
from grpo_sdk.episodes.opponents import plays_base
from grpo_sdk.errors import UserError


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """The model that is evaluated.

    Attributes:
        sampler: Generates the completions.
        policy: The sampler's model, where it runs in this process.
        ranks: The processes that share the rows.
        start: The policy of the opponent `base`; None is `policy`.
    """

    sampler: Sampler
    policy: Policy | None = None
    ranks: Ranks = field(default_factory=Ranks)
    start: Policy | None = None


def in_process(
    policy: Policy,
    engine: Engine,
    *,
    tokens_at_once: int,
    prompts_at_once: int | None,
    warn: Callable[[str], None],
    ranks: Ranks | None = None,
    start: Policy | None = None,
) -> EvaluatedModel:
    """A model of this process.

    Args:
        policy: The model.
        engine: Engine that samples from the model.
        tokens_at_once: Most tokens sampled at once, prompts and longest completions together.
        prompts_at_once: Most different prompts sampled at once; None is as many as tokens allow.
        warn: Receives a warning when memory ran out.
        ranks: The processes that share the rows; by default this one alone.
        start: The policy of the opponent `base`; by default the model itself.
    """
    sampler = EngineSampler(
        engine,
        policy.tokenizer,
        tokens_at_once=tokens_at_once,
        prompts_at_once=prompts_at_once,
        max_context=context_of(engine, policy.model),
        warn=warn,
    )
    return EvaluatedModel(sampler, policy, ranks or Ranks(), start)


def load_evaluated(
    model: str,
    adapter: str | None,
    tasks: Mapping[str, HeldOutTask],
    options: ModelOptions,
    callbacks: Callbacks,
    resources: ExitStack,
    *,
    start: tuple[str, str | None] | None = None,
) -> EvaluatedModel:
    """Load a model with its sampler.

    Args:
        model: Embedded name, local folder, GGUF file or hub id.
        adapter: PEFT adapter to put on the model.
        tasks: Tasks that it will be evaluated on, by label.
        options: How it is loaded.
        callbacks: Notified of choices and warnings.
        resources: Closes the sampler.
        start: Model and adapter of the opponent `base`; by default those that are evaluated.

    Raises:
        UserError: the model cannot be loaded, or answers no row of a task.
    """
    bind_engine(options.engine)

    def load(name: str, adapter: str | None) -> Policy:
        return load_policy(name, adapter=adapter, lora=options.lora, device=options.device, precision=options.precision)

    policy = load(model, adapter)
    room = [choice for label, held in tasks.items() for choice in check_room(label, held, policy)]
    tokens = tokens_that_fit(policy.model, policy.device, options.engine.max_batch_tokens)
    policy.model.eval()
    engine, engine_choices = open_engine(options.engine, policy, resources, tokens=tokens)
    callbacks.on_choices([*engine_choices, *room])
    has_other_start = start not in (None, (model, adapter)) and any(plays_base(held.task) for held in tasks.values())
    return in_process(
        policy,
        engine,
        tokens_at_once=tokens,
        prompts_at_once=next((held.settings.batch_size for held in tasks.values()), None),  # the same for all
        warn=callbacks.warn_once,
        start=load(*start) if start is not None and has_other_start else None,
    )


def check_room(label: str, held: HeldOutTask, policy: Policy) -> list[ResolvedDefault]:
    """Compare the lengths of held-out prompts with the model's context, before anything is sampled.

    Args:
        label: Task label.
        held: The task.
        policy: The model that answers.

    Returns:
        Choices to be shown: how tools are called, answers with less room than the settings allow, rows that cannot be
        answered.

    Raises:
        UserError: no row can be answered, or a prompt cannot be encoded.
    """
    task, rows, context = held.task, held.rows, max_context(policy.model)
    encoder, prompts = EpisodeEncoder(task, policy.tokenizer), [task.prompt(row) for row in rows]
    lengths = [len(encoder.first(prompt)) for prompt in prompts]
    choices = encoder.choice(prompts[0]) if prompts else []
    if context is None or not lengths:
        return choices
    if min(lengths) >= context:
        raise UserError(
            f"{label}: none of its {len(rows)} held-out rows can be answered: the shortest prompt has {min(lengths)} "
            f"tokens, and the model's context is {context}. Use a model with a longer context, or options of the "
            f"task that make its prompts shorter (grpo tasks show {task.name} lists them)."
        )
    limit = answer_limit(task.task.max_completion_length, held.settings.max_completion_length)
    overlong = [length for length in lengths if length >= context]
    cramped = [length for length in lengths if context - limit < length < context]
    if cramped:
        value = f"{label}: {len(cramped)} of {len(rows)} answers have room for fewer than {limit} tokens"
        why = f"the model's context is {context}; the longest of these prompts, {max(cramped)}, leaves "
        choices.append(ResolvedDefault("held-out", value, f"{why}{context - max(cramped)}"))
    if overlong:
        value = f"{label}: {len(overlong)} of {len(rows)} rows cannot be answered and are not scored"
        why = f"their prompts, of up to {max(overlong)} tokens, fill the model's context of {context}"
        choices.append(ResolvedDefault("held-out", value, why))
    return choices
