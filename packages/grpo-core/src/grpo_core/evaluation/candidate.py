"""A model of this process that is evaluated: loaded, sampled from in batches that fit, with room for its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from grpo_core.engines.compatibility import context_of, max_context
from grpo_core.engines.native import MAX_BATCH_TOKENS
from grpo_core.evaluation.answers import EvaluatedModel, evaluate_tasks
from grpo_core.evaluation.held_out import HeldOutTask
from grpo_core.evaluation.results import Certainty, Evaluation
from grpo_core.evaluation.sampling import Question, Sampled, answer_limit
from grpo_core.evaluation.settings import ModelOptions
from grpo_core.policy.load import load_policy
from grpo_core.policy.memory import is_out_of_memory, release, tokens_that_fit
from grpo_core.policy.pass_budget import InferenceBudget, PassSize
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.policy.sampler import bind_engine, open_engine
from grpo_core.rollouts.thinking import think_tokens
from grpo_sdk.callbacks import Callbacks, ResolvedDefault
from grpo_sdk.chat.encode import encode_prompt
from grpo_sdk.endpoints.base import Engine, Request, Sampling
from grpo_sdk.episodes.encoder import EpisodeEncoder
from grpo_sdk.episodes.opponents import plays_base
from grpo_sdk.errors import UserError


class EngineSampler:
    """Samples with an engine of this process. When memory runs out, the rest is sampled in smaller batches.

    Completions depend on their keys alone, so that batches change nothing about them. A completion is as long as its
    prompt leaves room for in the model's context; a prompt that leaves none gets an `error`.

    Args:
        engine: Engine that samples the completions.
        tokenizer: Tokenizer of the model.
        tokens_at_once: Most tokens sampled at once, prompts and longest completions together.
        prompts_at_once: Most different prompts sampled at once; None is as many as tokens allow.
        max_context: Tokens that fit the model's context; None is no limit.
        warn: Receives one warning when memory ran out.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Any,
        *,
        tokens_at_once: int = MAX_BATCH_TOKENS,
        prompts_at_once: int | None = None,
        max_context: int | None = None,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self._engine, self._tokenizer = engine, tokenizer
        self._max_context = max_context
        self._prompts_at_once = prompts_at_once
        self._budget = InferenceBudget(tokens_at_once, "sampling", warn)

    def sample(self, questions: Sequence[Question], sampling: Sampling) -> Iterator[tuple[int, Sampled]]:
        """Yield answers; see `Sampler`.

        Raises:
            OutOfMemoryError: not even one completion fits the memory.
        """
        encoded: dict[int, tuple[int, ...]] = {}  # the completions of a row share its prompt
        requests: dict[int, Request] = {}
        for index, question in enumerate(questions):
            name = id(question.prompt)
            if name not in encoded:
                encoded[name] = self._encoded(question)
            limit = answer_limit(question.max_completion_length, sampling.max_completion_length)
            if self._max_context is not None:
                limit = min(limit, self._max_context - len(encoded[name]))
            if limit > 0:
                requests[index] = Request(encoded[name], question.key, question.stop, limit, question.conversation)
            else:
                yield index, self._overlong(encoded[name])
        # Prompts of like length together, completions of one prompt side by side: they share its prefill.
        waiting = sorted(requests, key=lambda index: (len(requests[index].prompt_ids), index))
        while waiting:
            batch, tokens = self._next_batch(requests, waiting, sampling)
            failed: BaseException | None = None
            done = set()
            try:
                for at, completion in self._engine.generate([requests[index] for index in batch], sampling):
                    done.add(batch[at])
                    is_truncated = completion.finish_reason == "length"
                    token_ids = completion.token_ids
                    prompt_ids = requests[batch[at]].prompt_ids
                    yield (
                        batch[at],
                        Sampled(
                            completion.text,
                            len(token_ids),
                            is_truncated,
                            prompt_ids,
                            token_ids,
                            think_length=think_tokens(self._tokenizer, completion.text, token_ids),
                            sampled=replace(completion, certainties=()),  # their statistics are kept
                            certainty=Certainty.of(completion.certainties) if completion.certainties else None,
                        ),
                    )
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                failed = error.with_traceback(None)  # its frames hold the tensors that are in the way
            if failed is not None:
                self._budget.halve(PassSize(len(batch), tokens, len(batch)), failed)
                release()
            waiting = [index for index in waiting if index not in done]

    def fits(self, question: Question, sampling: Sampling) -> bool:
        """Whether prompt and longest answer together fit the model."""
        if self._max_context is None:
            return True
        limit = answer_limit(question.max_completion_length, sampling.max_completion_length)
        return len(self._encoded(question)) + limit <= self._max_context

    def _encoded(self, question: Question) -> tuple[int, ...]:
        return encode_prompt(self._tokenizer, question.prompt) if question.prompt_ids is None else question.prompt_ids

    def _overlong(self, prompt_ids: tuple[int, ...]) -> Sampled:
        why = f"the prompt has {len(prompt_ids)} tokens, and the model's context is {self._max_context}"
        return Sampled("", 0, False, prompt_ids, error=why, is_too_long=True)

    def _next_batch(
        self, requests: Mapping[int, Request], waiting: Sequence[int], sampling: Sampling
    ) -> tuple[list[int], int]:
        """The next requests that fit together, at least one, and how many tokens they may need."""
        batch: list[int] = []
        prompts: set[tuple[int, ...]] = set()
        tokens = 0
        for index in waiting:
            request = requests[index]
            is_new = request.prompt_ids not in prompts
            needed = request.limit(sampling) + is_new * len(request.prompt_ids)
            is_full = self._prompts_at_once is not None and len(prompts) + is_new > self._prompts_at_once
            if batch and (tokens + needed > self._budget.tokens or is_full):
                break
            batch.append(index)
            prompts.add(request.prompt_ids)
            tokens += needed
        return batch, tokens


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


def evaluate_model(
    model: str,
    adapter: str | None,
    tasks: Mapping[str, HeldOutTask],
    options: ModelOptions,
    callbacks: Callbacks,
    *,
    start: tuple[str, str | None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Evaluation]:
    """Load a model and evaluate it on tasks.

    Args:
        model: Embedded name, local folder, GGUF file or hub id.
        adapter: PEFT adapter to put on the model.
        tasks: Tasks by label.
        options: How the model is loaded.
        callbacks: Notified of progress, choices and warnings.
        start: Model and adapter of the opponent `base`; by default those that are evaluated.
        should_stop: Whether to stop; called after every completion.

    Returns:
        Task label -> evaluation.

    Raises:
        StopRequested: `should_stop` is true.
        UserError: the model cannot be loaded, or answers no row of a task.
    """
    bind_engine(options.engine)

    def load(name: str, adapter: str | None) -> Policy:
        return load_policy(name, adapter=adapter, lora=options.lora, device=options.device, precision=options.precision)

    policy = load(model, adapter)
    room = [choice for label, held in tasks.items() for choice in check_room(label, held, policy)]
    tokens = tokens_that_fit(policy.model, policy.device, options.engine.max_batch_tokens)
    policy.model.eval()
    has_other_start = start not in (None, (model, adapter)) and any(plays_base(held.task) for held in tasks.values())
    with ExitStack() as resources:
        engine, engine_choices = open_engine(options.engine, policy, resources, tokens=tokens)
        callbacks.on_choices([*engine_choices, *room])
        evaluated = in_process(
            policy,
            engine,
            tokens_at_once=tokens,
            prompts_at_once=next((held.settings.batch_size for held in tasks.values()), None),  # the same for all
            warn=callbacks.warn_once,
            start=load(*start) if start is not None and has_other_start else None,
        )
        return evaluate_tasks(tasks, evaluated, options, callbacks, should_stop)


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
