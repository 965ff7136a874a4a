"""Scoring of a set of tasks: their scorers, and the opponents that answer them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import NamedTuple, Self

from grpo_core.config import ScoringConfig
from grpo_core.engines.compatibility import max_context
from grpo_core.engines.native import NativeEngine
from grpo_core.policy.load import load_policy
from grpo_core.policy.policy import Policy
from grpo_sdk.callbacks import ResolvedDefault
from grpo_sdk.endpoints.base import SampleKey
from grpo_sdk.endpoints.encode import encode_prompt
from grpo_sdk.endpoints.openai import OpenAIEngine
from grpo_sdk.episodes.episodes import BASE, game_opponent, needs_opponent
from grpo_sdk.episodes.opponents import EndpointOpponent, EngineOpponent, OpponentSampler, Unanswered
from grpo_sdk.errors import UserError
from grpo_sdk.scoring.cluster import ray_cluster, use_nodes
from grpo_sdk.scoring.scorer import Scorer
from grpo_sdk.task.bound import BoundTask, scores_by_config
from grpo_sdk.task.opponent import Opponent
from grpo_sdk.task.row import Prompt


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
        cluster=ray_cluster(config.ray_address) if config.executor == "ray" else None,
    )


def prepare_nodes(config: ScoringConfig, tasks: Sequence[BoundTask]) -> list[ResolvedDefault]:
    """Where another machine scores, check that it can; see `use_nodes`."""
    return use_nodes(ray_cluster(config.ray_address), tasks) if config.executor == "ray" else []


class TaskScoring(NamedTuple):
    """Scorer and opponent of one task.

    Attributes:
        scorer: The task's scorer.
        opponent: Sampler of the opponent's answers; None for a task without an opponent.
    """

    scorer: Scorer
    opponent: OpponentSampler | None = None


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
                if task.opponent is not None or needs_opponent(task):
                    opponent = None if shared is None else shared.opponents.get(label)
                    self.opponents[label] = opponent or opponent_sampler(task, policy)
            self._resources = resources.pop_all()

    def __getitem__(self, label: str) -> TaskScoring:
        return TaskScoring(self.scorers[label], self.opponents.get(label))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut down the scorers that were started here."""
        self._resources.close()


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
        """Answer the whole batch; see `OpponentSampler`."""
        playing: AbstractContextManager[Policy] = (
            self._policy.reference() if self._frozen else nullcontext(self._policy)
        )
        with playing as policy, policy.precision():
            engine = NativeEngine(policy.model, policy.tokenizer)
            opponent_of_engine = EngineOpponent(
                engine,
                lambda prompt: encode_prompt(policy.tokenizer, prompt),
                max_context=max_context(policy.model),
            )
            return opponent_of_engine.sample(prompts, opponent, keys)


def opponent_sampler(task: BoundTask, policy: Policy | None) -> OpponentSampler:
    """The sampler that a task's `Opponent.engine` names.

    Args:
        task: A task with an opponent, or a game against one that is no scripted player.
        policy: The policy in training, at its start: `base` freezes it as it is now. None where an endpoint answers.

    Raises:
        UserError: the engine names a model that does not exist, or needs a model in this process.
    """
    opponent = task.opponent or game_opponent(task)
    if OpenAIEngine.is_url(opponent.engine):
        return EndpointOpponent(OpenAIEngine.from_url(opponent.engine))
    if policy is None:
        raise UserError(
            f"task {task.name!r} has an opponent, {opponent.engine!r}, that needs a model in this process; "
            "an endpoint is none. Evaluate with --model."
        )
    if opponent.engine == BASE:
        policy.freeze_reference()
        return PolicyOpponent(policy, frozen=True)
    return PolicyOpponent(load_policy(opponent.engine, device=str(policy.device)), frozen=False)
