"""Scoring of a set of tasks: their scorers, and the opponents that answer them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Self

from grpo_core.callbacks import ResolvedDefault
from grpo_core.config import ScoringConfig
from grpo_core.policy.policy import Policy
from grpo_core.rollouts.episodes import needs_opponent
from grpo_core.rollouts.model_opponents import opponent_sampler
from grpo_core.rollouts.opponents import OpponentSampler
from grpo_core.scoring.cluster import ray_cluster, use_nodes
from grpo_core.scoring.scorer import Scorer
from grpo_core.task.bound import BoundTask, scores_by_config


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
