"""Sampling of the next batch while one is trained on. That a resume is exact is tested in test_resume."""

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from launched_ranks import run_in
from resumed_runs import config, log

from grpo_core import resume, train
from grpo_core.config import RunConfig
from grpo_core.training.batch import Snapshot, TokenBatch, TrainBatch
from grpo_core.training.batches import SamplingAhead
from grpo_core.training.collect import Collected, Collector
from grpo_core.training.forward import ForwardPasses
from grpo_core.training.trainer import Trainer
from grpo_core.training.update import Updater
from grpo_sdk.callbacks import Callback
from grpo_sdk.endpoints.base import StopRequested
from grpo_sdk.errors import NonFiniteError, UserError


@pytest.fixture
def ahead(folder: Path, tmp_path: Path) -> RunConfig:
    return config(folder, tmp_path, "plain", off_policy_steps=1)


def sampling_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("sampling")]


def test_a_batch_is_sampled_by_the_weights_of_one_step_before(
    ahead: RunConfig, straight: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions: list[set[int]] = []
    advantages = Trainer.advantages

    def recording(trainer: Trainer, collected: Collected) -> TrainBatch:
        versions.append({turn.completion.policy_version for each in collected.rollouts for turn in each.turns})
        return advantages(trainer, collected)

    in_turn = log(straight())
    monkeypatch.setattr(Trainer, "advantages", recording)
    steps = log(train(ahead).run_dir)
    assert versions == [{0}, {0}, {1}, {2}, {3}]
    assert steps[0]["sampler_mismatch"] < 1e-5 < steps[1]["sampler_mismatch"] < 0.5
    assert {name: steps[0][name] for name in in_turn[0]} == pytest.approx(in_turn[0], rel=1e-5)  # the mismatch
    assert steps[4]["grad_norm"] != pytest.approx(in_turn[4]["grad_norm"], rel=1e-3)


def test_what_is_compared_with_has_no_dropout(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes, snapshot = list[bool](), ForwardPasses.snapshot

    def recording(passes: ForwardPasses, batch: TokenBatch) -> Snapshot:
        modes.append(passes.policy.model.training)
        return snapshot(passes, batch)

    monkeypatch.setattr(ForwardPasses, "snapshot", recording)
    train(config(folder, tmp_path, "LoRA with dropout, sampled ahead", max_steps=2))
    assert modes == [False, False]


def test_sampling_and_training_run_at_the_same_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=60)
    collect, update = Collector.collect, Updater.update

    def collecting(collector: Collector, step: int) -> Collected:
        if step > 1:
            both.wait()
        return collect(collector, step)

    def updating(updater: Updater, *args: Any, **options: Any) -> dict[str, float]:
        if updater.optimizer.updates < 2:
            both.wait()
        return update(updater, *args, **options)

    monkeypatch.setattr(Collector, "collect", collecting)
    monkeypatch.setattr(Updater, "update", updating)
    assert train(config(folder, tmp_path, "plain", off_policy_steps=1, max_steps=3)).summary["steps"] == 3


def test_what_fails_while_sampling_ends_the_run_after_the_step_that_was_trained(
    ahead: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect, failed = Collector.collect, list[int]()

    def collecting(collector: Collector, step: int) -> Collected:
        if step == 3 and not failed:  # sampled now, it would not fail, but by other weights
            failed.append(step)
            raise UserError("no such weather")
        return collect(collector, step)

    with monkeypatch.context() as patched, pytest.raises(UserError, match="no such weather"):
        patched.setattr(Collector, "collect", collecting)
        train(ahead)
    run = run_in(tmp_path)
    assert [line["step"] for line in log(run)] == [1, 2]
    assert resume(run).summary["steps"] == 5


def test_an_update_that_fails_ends_the_run_at_once(ahead: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> dict[str, float]:
        raise NonFiniteError("all is NaN")

    monkeypatch.setattr(Updater, "update", failing)
    with pytest.raises(NonFiniteError, match="all is NaN"):
        train(ahead)
    assert not sampling_threads()


class Stopped(Callback):
    is_stopped = False

    def on_stop(self, message: str) -> None:
        self.is_stopped = True


def test_a_second_ctrl_c_ends_the_batch_at_its_next_completion(
    ahead: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect, start, ended = Collector.collect, SamplingAhead.start, list[type[BaseException]]()
    stopped, samplers, awaited = Stopped(), list[SamplingAhead](), threading.Event()

    def press_until(condition: Callable[[], bool]) -> None:
        for _ in range(12):  # again after 5 s: CPython misses a signal that falls just before it waits for a lock
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                if condition():
                    return
                time.sleep(0.001)
        raise TimeoutError

    def starting(sampler: SamplingAhead, version: int, collecting: Callable[[], Collected]) -> Future[Collected]:
        samplers.append(sampler)
        batch = start(sampler, version, collecting)
        awaited.set()
        return batch

    def collecting(collector: Collector, step: int) -> Collected:
        assert awaited.wait(60)
        press_until(lambda: stopped.is_stopped)
        press_until(lambda: samplers[0].abandoned)
        try:
            return collect(collector, step)
        except BaseException as error:
            ended.append(type(error))
            raise

    monkeypatch.setattr(SamplingAhead, "start", starting)
    monkeypatch.setattr(Collector, "collect", collecting)
    with pytest.raises(KeyboardInterrupt):
        train(ahead, (stopped,))
    assert ended == [StopRequested]
    assert not sampling_threads()
