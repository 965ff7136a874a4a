"""Where a step's batch comes from: sampled when its turn comes, or while the one before is trained on.

With `trainer.off_policy_steps` the next batch is sampled and scored meanwhile:

    sampled with the weights of    W0  W0  W1  W2
    step                            1   2   3   4   …
    weights after it               W1  W2  W3  W4

The lag is always one step, whatever takes longer, so the batches are the same in every repetition and after a resume.
"""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.torch_version import TorchVersion

from grpo_core.engines.native import NativeEngine
from grpo_core.policy.parts import local_part
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.rollouts.rollout import PromptGroup, packed, unpacked
from grpo_core.training.collect import Collected, Collector, groups_of
from grpo_core.training.setup import Setup
from grpo_sdk.errors import GrpoError
from grpo_sdk.task.mixture import Draw

CAPTURES_BESIDE_DROPOUT = TorchVersion(torch.__version__) >= "2.13"
"""Earlier versions mark the process's random generator while a thread captures a graph: others may not use it."""


@dataclass(frozen=True, slots=True)
class AheadBatch:
    """A batch that was sampled before its step.

    Attributes:
        collected: The batch.
        prompts: State of the mixture before its prompts were drawn.
    """

    collected: Collected
    prompts: Mapping[str, Any]


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
            setup, ranks = sampler.setup, sampler.ranks
            should_stop, on_wait = lambda: sampler.abandoned, lambda done, total: None
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


class SamplingAhead:
    """Collects batches in a thread, with the weights that the policy has when it begins.

    Args:
        setup: The run.
        ranks: The processes.

    Attributes:
        setup: The run with a model of its own to sample from, which shares what is not trained.
        ranks: The processes, for what the thread exchanges.
        abandoned: Whether nobody will train on the batch that is sampled, which then ends at its next completion.
    """

    def __init__(self, setup: Setup, ranks: Ranks) -> None:
        self._trained = setup.policy
        self._copies_weights = isinstance(setup.engine, NativeEngine)
        # Without a model of its own, the thread runs no pass of one.
        without = replace(setup, policy=replace(setup.policy, shards=None))
        self.setup = _with_own_model(setup) if self._copies_weights else without
        self.ranks = ranks.beside()
        self._thread = ThreadPoolExecutor(1, "sampling")
        device = setup.policy.device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.abandoned = False
        self._started = self._ended = 0.0

    def close(self) -> None:
        """End the thread, after the batch that it is at."""
        self._thread.shutdown()

    def abandon(self) -> None:
        """End the thread at the next completion of its batch, which nobody trains on; none is begun after it."""
        self.abandoned = True
        self.close()

    def start(self, version: int, collect: Callable[[], Collected]) -> Future[Collected]:
        """Begin a batch; the weights may change at once.

        Args:
            version: Version of the policy's weights, stamped on the completions.
            collect: Collects it with `setup`; called in the thread.
        """
        if self._copies_weights:
            _copy_weights(self._trained, self.setup.policy)
        self.setup.engine.sync(version)
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        self._started = time.perf_counter()
        self._batch = self._thread.submit(self._run, collect)
        return self._batch

    def join(self) -> dict[str, float]:
        """Wait until the batch is there; returns how long trainer and sampler waited, as shares of the time."""
        trained_s = time.perf_counter() - self._started
        self._batch.exception()  # whoever reads the result raises it
        sampled_s = self._ended - self._started
        longest = max(trained_s, sampled_s)
        return {
            "overlap/trainer_idle": 1 - trained_s / longest,
            "overlap/sampler_idle": 1 - sampled_s / longest,
        }

    @property
    def failed_alone(self) -> bool:
        """Whether the batch failed on this rank, and not on all."""
        error = self._batch.exception()
        return self.ranks.size > 1 and error is not None and not (isinstance(error, GrpoError) and error.is_shared)

    def _run(self, collect: Callable[[], Collected]) -> Collected:
        try:
            if self._stream is None:
                return collect()
            with torch.cuda.stream(self._stream):
                collected = collect()
            self._stream.synchronize()
            return collected
        finally:
            self._ended = time.perf_counter()


def _with_own_model(setup: Setup) -> Setup:
    """A setup whose policy is a copy; parameters that are not trained are shared, unless they are in shards."""
    policy, engine = setup.policy, setup.engine
    assert isinstance(engine, NativeEngine)
    options: dict[str, Any] = {}
    if policy.device.type == "cuda" and _drops_out(policy.model) and not CAPTURES_BESIDE_DROPOUT:
        options = {"cuda_graphs": "off"}
        warnings.warn(
            f"sampling ahead goes without CUDA graphs: torch {torch.__version__} cannot capture one beside "
            "dropout; torch 2.13 can.",
            stacklevel=2,
        )
    if policy.sampled is not None:
        return replace(setup, policy=policy.sampled, engine=engine.for_model(policy.sampled.model, **options))
    shared = {id(part): part for part in policy.model.parameters() if not part.requires_grad}
    model = copy.deepcopy(policy.model, shared).eval().requires_grad_(False)
    sampled = Policy(model, policy.tokenizer, policy.source, policy.device, policy.autocast)
    return replace(setup, policy=sampled, engine=engine.for_model(model, **options))


def _drops_out(model: torch.nn.Module) -> bool:
    config = getattr(model, "config", None)
    inside = [module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    return any(share > 0 for share in (*inside, getattr(config, "attention_dropout", 0.0) or 0.0))


@torch.no_grad()
def _copy_weights(trained: Policy, sampled: Policy) -> None:
    for source, target in zip(trained.model.parameters(), sampled.model.parameters(), strict=True):
        if source is not target:
            local_part(target).copy_(local_part(source))
    for source, target in zip(trained.model.buffers(), sampled.model.buffers(), strict=True):
        target.copy_(source)


def batch_to_json(ahead: AheadBatch) -> dict[str, Any]:
    """A batch that was not trained on yet, for a checkpoint."""
    collected, greedy = ahead.collected, ahead.collected.greedy_rewards
    return {
        "prompts": ahead.prompts,
        "groups": [
            [group.draw.label, group.draw.row.id, group.draw.position, group.draw.repeat, group.role]
            for group in collected.groups
        ],
        "rollouts": packed(collected.rollouts, 0).decode("ascii"),
        "rewards": _numbers(collected.rewards),
        "greedy_rewards": None if greedy is None else _numbers(greedy),
        "metrics": dict(collected.metrics),
        "generate_s": collected.generate_s,
    }


def batch_from_json(stored: Mapping[str, Any], setup: Setup) -> AheadBatch:
    """The batch that `batch_to_json` wrote."""
    rows = {label: {row.id: row for row in rows} for label, rows in setup.data.rows.items()}
    groups: list[PromptGroup] = []
    for label, row, position, repeat, role in stored["groups"]:
        draw = Draw(setup.tasks.trained[label], label, rows[label][row], position, repeat)
        groups.append(next(group for group in groups_of(setup, draw) if group.role == role))
    greedy = stored["greedy_rewards"]
    collected = Collected(
        groups=groups,
        rollouts=unpacked(stored["rollouts"].encode("ascii"), groups),
        rewards=_tensor(stored["rewards"]),
        greedy_rewards=None if greedy is None else _tensor(greedy),
        metrics=stored["metrics"],
        started=time.perf_counter(),
        generate_s=stored["generate_s"],
    )
    return AheadBatch(collected, stored["prompts"])


def _numbers(values: torch.Tensor) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _tensor(values: Sequence[float | None]) -> torch.Tensor:
    return torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64)
