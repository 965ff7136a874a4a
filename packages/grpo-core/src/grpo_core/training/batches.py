"""Where a step's batch comes from: sampled when its turn comes, or while the one before is trained on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

from grpo_core.policy.ranks import Ranks
from grpo_core.training.collect import Collected, Collector
from grpo_core.training.overlap import AheadBatch, SamplingAhead
from grpo_core.training.setup import Setup


class Batches:
    """The batches of a run.

    Args:
        setup: Engine, tasks, scorers, prompts and opponents of the run.
        ranks: The processes; each completes its share of the prompts.
        resources: Closes what is opened here.
        greedy: Whether each prompt also gets a greedy completion, whose reward is a baseline.
        should_stop: Called while a batch is sampled that is waited for; one that is sampled ahead is finished.
        on_wait: Told of scores that such a batch waits for: how many there are, and will be.

    Attributes:
        ahead: The next step's batch, where it was sampled already.
    """

    def __init__(
        self,
        setup: Setup,
        ranks: Ranks,
        resources: ExitStack,
        *,
        greedy: bool,
        should_stop: Callable[[], bool],
        on_wait: Callable[[int, int], None],
    ) -> None:
        self._setup = setup
        self._sampler: SamplingAhead | None = None
        if setup.config.trainer.off_policy_steps:
            sampler = self._sampler = resources.enter_context(closing(SamplingAhead(setup, ranks)))
            self._collector = Collector(
                sampler.setup, sampler.ranks, greedy=greedy, should_stop=lambda: sampler.abandoned
            )
        else:
            self._collector = Collector(setup, ranks, greedy=greedy, should_stop=should_stop, on_wait=on_wait)
        self.ahead: AheadBatch | None = None
        self._failure: BaseException | None = None

    def next(self, step: int, version: int) -> Collected:
        """The batch of a step.

        Args:
            step: 1 for the first.
            version: Version of the policy's weights, stamped on completions that are sampled now.

        Raises:
            StopRequested: the user asked to stop.
            BaseException: what sampling ahead has failed with, since a batch of now would have another lag.
        """
        if self._failure is not None:
            raise self._failure
        self._setup.policy.model.eval()  # also for a batch that is here: old log-probs are without dropout
        if self.ahead is not None:
            collected, self.ahead = replace(self.ahead.collected, started=time.perf_counter()), None
            return collected
        if self._sampler is not None:
            try:  # also around the start: a second Ctrl-C may come while it returns
                return self._sampler.start(version, partial(self._collector.collect, step)).result()
            except BaseException:
                self._sampler.abandon()
                raise
        self._setup.engine.sync(version)
        return self._collector.collect(step)

    def while_training(self, step: int, version: int, update: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        """Run an update; with `trainer.off_policy_steps`, sample the next batch meanwhile.

        Args:
            step: The one that is trained.
            version: Version of the weights before the update.
            update: Takes the optimizer steps; returns metrics.

        Returns:
            The update's metrics, and how sampling and training overlapped.
        """
        if self._sampler is None or step >= self._setup.plan.total_steps:
            return update()
        prompts = self._setup.data.mixture.state()
        try:
            sampled = self._sampler.start(version, partial(self._collector.collect, step + 1))
            metrics = update()
        except BaseException:
            self._sampler.abandon()
            raise
        idle = self._sampler.join()
        self._failure = sampled.exception()
        if self._failure is None:
            self.ahead = AheadBatch(sampled.result(), prompts)
        else:
            self._setup.data.mixture.load_state(prompts)
        if self._sampler.failed_alone:  # the other ranks wait for it
            sampled.result()
        return {**metrics, **idle}
