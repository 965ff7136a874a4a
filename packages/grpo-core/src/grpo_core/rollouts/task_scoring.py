"""Scoring of a set of tasks: their scorers, and the models that answer the policy or play against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Self

from grpo_core.config import ScoringConfig
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.chat.encode import encode_prompt
from grpo_sdk.endpoints.base import Engine, Request, SampleKey
from grpo_sdk.endpoints.openai import OpenAIEngine
from grpo_sdk.episodes.opponents import (
    BASE,
    EndpointOpponent,
    OpponentSampler,
    Unanswered,
    opponent_key,
    opponent_of,
    sampling_of,
)
from grpo_sdk.episodes.player import Player
from grpo_sdk.errors import EmptyPromptError, UserError
from grpo_sdk.scoring.cluster import ray_cluster, use_nodes
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.bound import BoundTask, scores_by_config
from grpo_sdk.task.opponent import Opponent
from grpo_sdk.task.row import Prompt

if TYPE_CHECKING:
    from grpo_core.policy.policy import Policy


def scorer_of(task: BoundTask, config: ScoringConfig) -> Scorer:
    """The scorer of a task.

    Raises:
        UserError: the task cannot be sent to the processes that score, or Ray is not installed.
    """
    return Scorer(
        task,
        workers=config.workers,
        timeout_s=config.timeout_s,
        memory_mib=config.memory_mib,
        tool_workers=config.tool_workers,
        cluster=ray_cluster(config.ray_address) if config.executor == "ray" else None,
    )


def prepare_nodes(config: ScoringConfig, tasks: Sequence[BoundTask]) -> list[ResolvedDefault]:
    """Where another machine scores, check that it can; see `use_nodes`."""
    return use_nodes(ray_cluster(config.ray_address), tasks) if config.executor == "ray" else []


class Scoring:
    """The scorers and opponents of a set of tasks, closed together.

    Args:
        tasks: Tasks by label.
        config: The scorers' worker processes.
        policy: Policy that opponents of this process are made from, frozen as it is now; None where there is none.
        shared: Scorers and opponents of tasks with the same labels, used again where they serve these tasks.

    Attributes:
        scorers: Task label -> scorer.
        opponents: Task label -> opponent, of the tasks that have one.

    Raises:
        UserError: an opponent's model does not exist, or there is no policy to make it from.
    """

    def __init__(
        self,
        tasks: Mapping[str, BoundTask],
        config: ScoringConfig,
        policy: Policy | None,
        *,
        shared: Scoring | None = None,
    ) -> None:
        self.scorers: dict[str, Scorer] = {}
        self.opponents: dict[str, OpponentSampler] = {}
        with ExitStack() as resources:
            for label, task in tasks.items():
                scorer = None if shared is None else shared.scorers.get(label)
                if scorer is None or (scores_by_config(task) and scorer.task.config != task.config):
                    scorer = resources.enter_context(scorer_of(task, config))
                self.scorers[label] = scorer
            for label, task in tasks.items():
                if own := opponent_of(task):
                    sampler = None if shared is None else shared.opponents.get(label)
                    self.opponents[label] = sampler or opponent_sampler(task.name, own, policy)
            tokenizer = None if policy is None else policy.tokenizer
            self._players = {
                label: Player(scorer, self.opponents.get(label), tokenizer) for label, scorer in self.scorers.items()
            }
            self._resources = resources.pop_all()

    def __getitem__(self, label: str) -> Player:
        return self._players[label]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut down the scorers that were started here."""
        self._resources.close()


def opponent_sampler(task: str, opponent: Opponent, policy: Policy | None) -> OpponentSampler:
    """The sampler that an opponent's `engine` names.

    Args:
        task: Name of its task, for messages.
        opponent: The opponent.
        policy: The policy in training, at its start: `base` freezes it as it is now. None where an endpoint answers.

    Raises:
        UserError: the engine names a model that does not exist, or needs a model in this process.
    """
    if OpenAIEngine.is_url(opponent.engine):
        return EndpointOpponent(OpenAIEngine.from_url(opponent.engine))
    if policy is None:
        raise UserError(
            f"task {task!r} has an opponent, {opponent.engine!r}, that needs a model in this process; "
            "an endpoint is none. Evaluate with --model."
        )
    if opponent.engine == BASE:
        policy.freeze_reference()
        return PolicyOpponent(policy, frozen=True)
    from grpo_core.policy.load import load_policy  # it imports torch

    return PolicyOpponent(load_policy(opponent.engine, device=str(policy.device)), frozen=False)


class PolicyOpponent:
    """An opponent played by a policy of this process.

    Args:
        policy: The policy.
        frozen: Whether its frozen reference plays, in place of its current weights.
    """

    def __init__(self, policy: Policy, *, frozen: bool) -> None:
        self._policy, self._frozen = policy, frozen

    def sample(
        self, prompts: Sequence[Prompt], opponent: Opponent, keys: Sequence[SampleKey]
    ) -> list[tuple[str, ...] | Unanswered]:
        """Answer the whole batch in one call of the engine; see `OpponentSampler`."""
        from grpo_core.engines.compatibility import max_context  # they import torch
        from grpo_core.engines.native import NativeEngine

        playing: AbstractContextManager[Policy] = (
            self._policy.reference() if self._frozen else nullcontext(self._policy)
        )
        with playing as policy, policy.precision():
            engine, limit = NativeEngine(policy.model, policy.tokenizer), max_context(policy.model)
            return engine_answers(
                engine, lambda prompt: encode_prompt(policy.tokenizer, prompt), limit, prompts, opponent, keys
            )


def engine_answers(
    engine: Engine,
    encode: Callable[[Prompt], Sequence[int]],
    max_context: int | None,
    prompts: Sequence[Prompt],
    opponent: Opponent,
    keys: Sequence[SampleKey],
) -> list[tuple[str, ...] | Unanswered]:
    """Sample an opponent's answers from an engine of this process; see `OpponentSampler`.

    Args:
        engine: Engine that samples.
        encode: A prompt -> its tokens.
        max_context: Tokens of prompt and answer that the model can read, if they are limited.
        prompts: The opponent's prompts of a whole batch.
        opponent: How many answers, and how they are sampled.
        keys: Names the random numbers of each prompt's completion.
    """
    texts: list[list[str] | Unanswered] = []
    requests: list[Request] = []
    places: list[tuple[int, int]] = []
    longest = opponent.max_completion_length
    for place, (prompt, key) in enumerate(zip(prompts, keys, strict=True)):
        try:
            ids = tuple(encode(prompt))
        except EmptyPromptError as error:
            texts.append(Unanswered(str(error), is_unreadable=True))
            continue
        if max_context is not None and len(ids) + longest > max_context:
            why = f"a prompt of {len(ids)} tokens and {longest} for the answer; the opponent's context is {max_context}"
            texts.append(Unanswered(why, is_unreadable=True))
            continue
        texts.append([""] * opponent.samples)
        for sample in range(opponent.samples):
            requests.append(Request(ids, opponent_key(key, sample), stop=opponent.stop))
            places.append((place, sample))
    for index, completion in engine.generate(requests, sampling_of(opponent)):
        place, sample = places[index]
        answers = texts[place]
        assert not isinstance(answers, Unanswered)
        answers[sample] = completion.text
    return [answers if isinstance(answers, Unanswered) else tuple(answers) for answers in texts]
