"""Training goes on in smaller passes when memory runs out, with the same gradient."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import resumed_runs
import torch
from small_policies import batch, model, policy_of, saved_model, settings, update

from grpo_core import train
from grpo_core.callbacks import Callback
from grpo_core.config import RunConfig
from grpo_core.policy.memory import OutOfMemoryError
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.pass_budget import PassBudget
from grpo_core.training.pass_limits import PassLimits, PassSize
from grpo_core.training.resume import resume
from grpo_core.training.update import Updater

UNLIMITED = 10**9


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the number of tokens above which a forward pass runs out of memory; and those of a backward pass."""
    most = {"forward": UNLIMITED, "backward": UNLIMITED}
    states = Policy.states

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
            return tensor.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore")

    def limited(policy: Policy, ids: torch.Tensor, *rest: Any) -> Any:
        found = states(policy, ids, *rest)
        if ids.numel() > most["forward"]:
            torch.rand(3)  # the failed pass has drawn numbers
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore")
        if ids.numel() > most["backward"] and found.states.requires_grad:
            torch.rand(3)
            object.__setattr__(found, "states", Fails.apply(found.states))
        return found

    monkeypatch.setattr(Policy, "states", limited)

    def set_limit(tokens: int = UNLIMITED, backward: int = UNLIMITED) -> None:
        most.update(forward=tokens, backward=backward)

    return set_limit


def updated(
    warnings: list[str],
    *,
    dropout: float = 0.0,
    steps: int = 2,
    limits: PassLimits | None = None,
    make_room: Callable[[], bool] = lambda: False,
    **options: Any,
) -> tuple[Updater, list[Any]]:
    """Take steps; from the first update on with `limits`, where they are given."""
    network = model(0)
    for layer in network.model.layers:
        layer.self_attn.attention_dropout = dropout
    policy = policy_of(network)
    config = settings(**{"learning_rate": 1e-2, "num_iterations": 2, **options})
    updater = Updater(policy, Algorithm.of(config), total_steps=4, warn=warnings.append)
    updater.forward.budget.make_room = make_room
    if config.beta:
        policy.freeze_reference()
        with torch.no_grad():  # else the KL is 0
            for parameter in policy.parameters():
                parameter *= 1.01
    torch.manual_seed(5)
    metrics = []
    for _ in range(steps):
        network.eval()  # as after sampling
        frozen = updater.forward.freeze(batch())
        if limits is not None:
            updater.forward.budget.limits = limits
        metrics.append(update(updater, frozen))
    weights = [parameter.detach().clone() for parameter in policy.parameters()]
    return updater, [metrics, weights, torch.get_rng_state()]


def assert_equal(one: list[Any], other: list[Any]) -> None:
    assert one[0] == other[0]
    assert all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))
    assert torch.equal(one[2], other[2])


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("extra", [{}, {"dropout": 0.3}, {"beta": 0.2}, {"beta": 0.2, "kl_placement": "reward"}])
@pytest.mark.parametrize(
    ("configured", "halved", "fits"),  # the largest pass has 4 · 7 tokens
    [
        ({"micro_batch_size": 4}, {"micro_batch_size": 2}, 14),
        ({"micro_batch_prompts": 2}, {"micro_batch_prompts": 1}, 7),
        ({"micro_batch_tokens": 1000}, {"micro_batch_tokens": 14}, 14),
    ],
)
def test_the_step_is_that_of_half_the_limit(
    limit: Callable[..., None],
    configured: dict[str, Any],
    halved: dict[str, Any],
    fits: int,
    extra: dict[str, Any],
    where: str,
) -> None:
    if where == "forward":
        expected = updated([], **halved, **extra)[1]
    else:  # the passes without gradient still fit, and some processors round a product of more rows otherwise
        limits = updated([], **halved, steps=0)[0].forward.budget.limits
        expected = updated([], **configured, **extra, limits=limits)[1]
    limit(**{"tokens" if where == "forward" else "backward": fits})
    warnings: list[str] = []
    updater, found = updated(warnings, **configured, **extra)
    assert_equal(found, expected)
    ((name, value),) = halved.items()
    (warning,) = warnings
    assert "out of memory" in warning and f"trainer.{name}={value}" in warning
    assert updater.optimizer.updates == 4 and updater.optimizer.skipped == 0


def test_room_is_made_before_passes_are_halved(limit: Callable[..., None]) -> None:
    expected = updated([], micro_batch_size=4, dropout=0.3)[1]
    limit(7)
    asked: list[None] = []

    def make_room() -> bool:
        asked.append(None)
        limit()
        return True

    warnings: list[str] = []
    updater, found = updated(warnings, micro_batch_size=4, dropout=0.3, make_room=make_room)
    assert_equal(found, expected)
    assert len(asked) == 1 and updater.forward.budget.limits.rows == 4 and not warnings


@pytest.mark.parametrize(("size", "rows"), [(4, 2), (1, 1)])
def test_a_resume_goes_on_with_the_halved_limit_unless_another_is_set(
    limit: Callable[..., None], size: int, rows: int
) -> None:
    limit(14)
    state = updated([], micro_batch_size=4)[0].state()
    resumed = updated([], micro_batch_size=size, steps=0)[0]
    resumed.load_state(state)
    assert resumed.forward.budget.limits.rows == rows


def test_it_is_halved_again_and_said_once(limit: Callable[..., None]) -> None:
    expected = updated([], micro_batch_size=1)[1]
    limit(7)
    warnings: list[str] = []
    updater, found = updated(warnings, micro_batch_size=4)
    assert_equal(found, expected)
    assert updater.forward.budget.limits.rows == 1
    assert len(warnings) == 1


def test_one_completion_that_does_not_fit_ends_the_run_with_advice(limit: Callable[..., None]) -> None:
    limit(3)
    with pytest.raises(OutOfMemoryError, match=r"one completion.*Tried to allocate 20.00 GiB.*gradient_checkpointing"):
        updated([], micro_batch_size=4)


def test_the_noise_scale_is_measured_in_the_smaller_passes_from_the_next_step_on(limit: Callable[..., None]) -> None:
    options: dict[str, Any] = {"gradient_noise_scale": True, "num_iterations": 1, "learning_rate": 0.0}
    expected = [updated([], micro_batch_prompts=size, **options)[1][0] for size in (2, 1)]
    limit(7)
    warnings: list[str] = []
    metrics = updated(warnings, micro_batch_prompts=2, **options)[1][0]
    (warning,) = warnings
    assert (
        "trainer.micro_batch_prompts=1, in which the gradient noise scale is measured from the next step on" in warning
    )
    assert math.isnan(metrics[0].get("gns/g2", math.nan)), "passes of two sizes"
    assert metrics[1]["gns/g2"] == pytest.approx(expected[1][1]["gns/g2"])
    assert metrics[1]["gns/trace"] == pytest.approx(expected[1][1]["gns/trace"])


def test_a_pass_cut_inside_a_prompt_measures_no_noise_scale() -> None:
    warnings: list[str] = []
    config = settings(micro_batch_prompts=1, gradient_noise_scale=True)
    budget = PassBudget(policy_of(model(0)), config, Ranks(), warnings.append)

    def work() -> None:
        if budget.limits.prompts is not None:
            budget.running = PassSize(4, 28, 1)
            raise torch.OutOfMemoryError("full")

    budget.until_it_fits(work)
    assert budget.limits.rows == 2
    assert "trainer.micro_batch_size=2, which cannot measure the gradient noise scale" in warnings[0]


def test_a_sharded_pass_is_not_repeated(limit: Callable[..., None]) -> None:
    policy = policy_of(model(0))
    budget = PassBudget(policy, settings(micro_batch_size=4), Ranks(), lambda message: None)
    policy.shards = object()  # type: ignore[assignment]

    def work() -> None:
        budget.running = PassSize(4, 28, 2)
        raise torch.OutOfMemoryError("full")

    with pytest.raises(OutOfMemoryError, match=r"sharded.*micro_batch_size=2"):
        budget.until_it_fits(work)


def test_other_failures_pass_through() -> None:
    budget = PassBudget(policy_of(model(0)), settings(), Ranks(), lambda message: None)

    def work() -> None:
        budget.running = PassSize(4, 28, 2)
        raise RuntimeError("a kernel is missing")

    with pytest.raises(RuntimeError, match="a kernel is missing"):
        budget.until_it_fits(work)

    def elsewhere() -> None:
        raise torch.OutOfMemoryError("before the first pass")

    with pytest.raises(torch.OutOfMemoryError, match="before the first pass"):
        budget.until_it_fits(elsewhere)


def test_probes_are_repeated_too(limit: Callable[..., None]) -> None:
    options = {"gns_probe_steps": 1, "gns_probe_prompts": 1, "entropy_probe_steps": 1}
    expected = updated([], micro_batch_size=2, **options)[1]
    limit(14)
    assert_equal(updated([], micro_batch_size=4, **options)[1], expected)


def test_limits_are_kept_with_the_state(limit: Callable[..., None]) -> None:
    limit(14)
    first = updated([], micro_batch_size=4)[0]
    state = json.loads(json.dumps(first.state()))
    assert state["limits"] == {"rows": 2, "tokens": first.config.micro_batch_tokens, "prompts": None}
    second = Updater(policy_of(copy.deepcopy(first.policy.model)), Algorithm.of(first.config), total_steps=4)
    second.load_state(state)
    assert second.forward.budget.limits.rows == 2
    second.load_state({name: value for name, value in state.items() if name != "limits"})  # of an older checkpoint


# --- Limits


@pytest.mark.parametrize(
    ("limits", "failed", "halved"),
    [
        (PassLimits(8, 100, None), PassSize(6, 50, 1), PassLimits(3, 100, None)),
        (PassLimits(None, 100, None), PassSize(6, 60, 1), PassLimits(None, 30, None)),
        (PassLimits(None, 100, None), PassSize(2, 300, 1), PassLimits(None, 50, None)),
        (PassLimits(None, 1, None), PassSize(2, 300, 1), PassLimits(None, 1, None)),
        (PassLimits(None, 100, 4), PassSize(12, 60, 3), PassLimits(None, 100, 1)),
        (PassLimits(None, 100, 4), PassSize(5, 60, 1), PassLimits(2, 100, None)),
    ],
)
def test_a_limit_is_halved_from_the_failed_pass(limits: PassLimits, failed: PassSize, halved: PassLimits) -> None:
    assert limits.halved(failed) == halved


def test_ranks_take_the_smallest_limits() -> None:
    assert PassLimits.smallest([PassLimits(None, 100, 2), PassLimits(None, 100, 1)]) == PassLimits(None, 100, 1)
    assert PassLimits.smallest([PassLimits(None, 100, 2), PassLimits(4, 100, None)]) == PassLimits(4, 100, None)
    assert PassLimits.smallest([PassLimits(None, 50, None), PassLimits(None, 100, None)]).tokens == 50


def test_a_rank_takes_the_limit_that_another_had_to_halve() -> None:
    class Two(Ranks):
        def gather(self, data: bytes) -> list[bytes]:
            return [data, orjson.dumps(PassLimits(2, 4096, None).state())]

    warnings: list[str] = []
    budget = PassBudget(policy_of(model(0)), settings(micro_batch_size=4), Two(0, 0, 2), warnings.append)
    for _ in range(2):
        budget.agree()
        assert budget.limits == PassLimits(2, 4096, None)
    (warning,) = warnings
    assert "out of memory on another rank: training goes on with trainer.micro_batch_size=2" in warning


# --- Whole runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("memory")
    saved_model(path / "model")
    (path / "tasks.py").write_text(resumed_runs.TASKS)
    return path


class Warnings(Callback):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def on_warning(self, message: str) -> None:
        self.messages.append(message)


def config(folder: Path, out: Path, **trainer: Any) -> RunConfig:
    return resumed_runs.config(folder, out, "plain", **{"micro_batch_size": 16, "num_iterations": 2, **trainer})


def test_a_resume_goes_on_with_the_halved_limit(folder: Path, tmp_path: Path, limit: Callable[..., None]) -> None:
    limit(100)
    whole = train(config(folder, tmp_path / "whole"), [said := Warnings()]).run_dir
    assert sum("out of memory" in message for message in said.messages) == 1
    parted = train(config(folder, tmp_path / "parted", stop_after=2)).run_dir
    limit()  # as if another process had taken the memory: the limit stays
    resume(parted, callbacks=[again := Warnings()])
    assert not any("out of memory" in message for message in again.messages)
    resumed_runs.assert_same(whole, parted)


def test_a_run_that_does_not_fit_is_saved(folder: Path, tmp_path: Path, limit: Callable[..., None]) -> None:
    limit(2)
    with pytest.raises(OutOfMemoryError, match="smaller model"):
        train(config(folder, tmp_path))
    (run,) = tmp_path.glob("run_*")
    assert (run / "training_state" / "step_0" / "model" / "model.safetensors").is_file()
