"""Training goes on in smaller passes when memory runs out, with the same gradient."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
import torch
from small_policies import frozen, model, policy_of, settings, update

from grpo_core.policy.memory import OutOfMemoryError
from grpo_core.policy.pass_budget import PassLimits, PassSize, TrainingBudget
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.update import Updater

UNLIMITED = 10**9
FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore")

Limit = Callable[..., None]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Sets the number of tokens above which a forward pass runs out of memory; and those of a backward pass."""
    most = {"forward": UNLIMITED, "backward": UNLIMITED}
    states = Policy.states

    def fail(*_: torch.Tensor) -> None:
        torch.rand(3)  # the failed pass has drawn numbers
        raise FULL

    def limited(policy: Policy, ids: torch.Tensor, *rest: Any) -> Any:
        found = states(policy, ids, *rest)
        if ids.numel() > most["forward"]:
            fail()
        if ids.numel() > most["backward"] and found.states.requires_grad:
            found.states.register_hook(fail)
        return found

    monkeypatch.setattr(Policy, "states", limited)

    def set_limit(forward: int = UNLIMITED, backward: int = UNLIMITED) -> None:
        most.update(forward=forward, backward=backward)

    return set_limit


def updated(
    dropout: float = 0.0,
    steps: int = 2,
    limits: PassLimits | None = None,
    make_room: Callable[[], bool] = lambda: False,
    **options: Any,
) -> tuple[Updater, list[Any], list[str]]:
    """Take steps, from the first update on with `limits`, where they are given; the updater, what it made, warnings."""
    network = model(0)
    for layer in network.model.layers:
        layer.self_attn.attention_dropout = dropout
    policy = policy_of(network)
    config = settings(**{"learning_rate": 1e-2, "num_iterations": 2, **options})
    warnings: list[str] = []
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
        made = frozen(updater)
        if limits is not None:
            updater.forward.budget.limits = limits
        metrics.append(update(updater, made))
    weights = [parameter.detach().clone() for parameter in policy.parameters()]
    return updater, [metrics, weights, torch.get_rng_state()], warnings


def assert_equal(one: list[Any], other: list[Any]) -> None:
    assert one[0] == other[0]
    assert all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))
    assert torch.equal(one[2], other[2])


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("extra", [{"dropout": 0.3}, {"beta": 0.2}, {"beta": 0.2, "kl_placement": "reward"}])
@pytest.mark.parametrize(("name", "configured", "halved", "fits"), [
    ("micro_batch_size", 4, 2, 14),
    ("micro_batch_prompts", 2, 1, 7),
    ("micro_batch_tokens", 1000, 14, 14),
])  # fmt: skip
def test_the_step_is_that_of_half_the_limit(
    limit: Limit, name: str, configured: int, halved: int, fits: int, extra: dict[str, Any], where: str
) -> None:
    whole, half = {name: configured, **extra}, {name: halved, **extra}
    if where == "forward":
        expected = updated(**half)[1]
    else:  # the passes without gradient still fit, and some processors round a product of more rows otherwise
        expected = updated(**whole, limits=updated(**half, steps=0)[0].forward.budget.limits)[1]
    limit(**{where: fits})
    updater, found, warnings = updated(**whole)
    assert_equal(found, expected)
    (warning,) = warnings
    assert "out of memory" in warning and f"trainer.{name}={halved}" in warning
    assert updater.optimizer.updates == 4 and updater.optimizer.skipped == 0


def test_room_is_made_before_passes_are_halved(limit: Limit) -> None:
    options = {"micro_batch_size": 4, "dropout": 0.3}
    expected = updated(**options)[1]
    limit(7)
    asked: list[None] = []

    def make_room() -> bool:
        asked.append(None)
        limit()
        return True

    updater, found, warnings = updated(make_room=make_room, **options)
    assert_equal(found, expected)
    assert len(asked) == 1 and updater.forward.budget.limits.rows == 4 and not warnings


def test_it_is_halved_again_and_said_once_also_for_probes(limit: Limit) -> None:
    probes = {"gns_probe_steps": 1, "gns_probe_prompts": 1, "entropy_probe_steps": 1}
    expected = updated(micro_batch_size=1, **probes)[1]
    limit(7)
    updater, found, warnings = updated(micro_batch_size=4, **probes)
    assert_equal(found, expected)
    assert updater.forward.budget.limits.rows == 1 and len(warnings) == 1


@pytest.mark.parametrize(("size", "rows"), [(4, 2), (1, 1)])
def test_a_resume_goes_on_with_the_halved_limit_unless_another_is_set(limit: Limit, size: int, rows: int) -> None:
    limit(14)
    state = orjson.loads(orjson.dumps(updated(micro_batch_size=4)[0].state()))
    resumed = updated(micro_batch_size=size, steps=0)[0]
    resumed.load_state(state)
    assert resumed.forward.budget.limits.rows == rows


def test_one_completion_that_does_not_fit_ends_the_run_with_advice(limit: Limit) -> None:
    limit(3)
    with pytest.raises(OutOfMemoryError, match=r"one completion.*Tried to allocate 20.00 GiB.*gradient_checkpointing"):
        updated(micro_batch_size=4)


@pytest.mark.parametrize(("size", "is_sharded", "error", "message"), [
    (PassSize(4, 28, 2), True, FULL, r"sharded.*micro_batch_size=2"),
    (PassSize(4, 28, 2), False, RuntimeError("a kernel is missing"), "a kernel is missing"),
    (None, False, torch.OutOfMemoryError("before the first pass"), "before the first pass"),
])  # fmt: skip
def test_what_is_no_lack_of_memory_ends_a_run(
    size: PassSize | None, is_sharded: bool, error: Exception, message: str
) -> None:
    policy = policy_of(model(0))
    budget = TrainingBudget(policy, settings(micro_batch_size=4), Ranks(), pytest.fail)
    policy.shards = object() if is_sharded else None  # type: ignore[assignment]

    def work() -> None:
        budget.running = size  # of the pass, or none before the first one
        raise error

    with pytest.raises(OutOfMemoryError if is_sharded else type(error), match=message):
        budget.until_it_fits(work)


# --- Limits


@pytest.mark.parametrize(("limits", "failed", "halved"), [
    (PassLimits(8, 100, None), PassSize(6, 50, 1), PassLimits(3, 100, None)),
    (PassLimits(None, 100, None), PassSize(6, 60, 1), PassLimits(None, 30, None)),
    (PassLimits(None, 100, None), PassSize(2, 300, 1), PassLimits(None, 50, None)),
    (PassLimits(None, 1, None), PassSize(2, 300, 1), PassLimits(None, 1, None)),
    (PassLimits(None, 100, 4), PassSize(12, 60, 3), PassLimits(None, 100, 1)),
    (PassLimits(None, 100, 4), PassSize(5, 60, 1), PassLimits(2, 100, None)),
])  # fmt: skip
def test_a_limit_is_halved_from_the_failed_pass(limits: PassLimits, failed: PassSize, halved: PassLimits) -> None:
    assert limits.halved(failed) == halved


@pytest.mark.parametrize(("own", "other", "said"), [
    ({"micro_batch_size": 4}, PassLimits(2, 4096, None), "micro_batch_size=2"),
    ({"micro_batch_prompts": 2}, PassLimits(4, 4096, None), "micro_batch_size=4"),
    ({"micro_batch_tokens": 100}, PassLimits(None, 50, None), "micro_batch_tokens=50"),
])  # fmt: skip
def test_a_rank_takes_the_limit_that_another_had_to_halve(own: dict[str, int], other: PassLimits, said: str) -> None:
    class Two(Ranks):
        def gather(self, data: bytes) -> list[bytes]:
            return [data, orjson.dumps(other)]

    warnings: list[str] = []
    budget = TrainingBudget(policy_of(model(0)), settings(**own), Two(0, 0, 2), warnings.append)
    for _ in range(2):
        budget.agree()
        assert budget.limits == other
    (warning,) = warnings
    assert f"out of memory on another rank: training goes on with trainer.{said}" in warning
