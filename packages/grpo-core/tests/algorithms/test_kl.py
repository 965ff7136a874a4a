import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grpo_core.algorithms import kl as module
from grpo_core.algorithms.kl import (
    Direction,
    fkl,
    fkl_k3,
    full_kl,
    jeffreys,
    k1,
    k2,
    k3,
    kl_penalty,
    linear_full_kl,
)
from grpo_core.algorithms.losses import importance_ratio

ESTIMATORS = {name: getattr(module, name) for name in ("k1", "k2", "k3", "abs", "fkl", "fkl_k3", "jeffreys")}
NEVER_NEGATIVE = [name for name in ESTIMATORS if name not in ("k1", "fkl")]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def tensor(*values: float | str) -> Tensor:
    return torch.tensor([float(value) for value in values], dtype=torch.float64)


# --- estimators


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("k1", math.log(2)),
        ("k2", math.log(2) ** 2 / 2),
        ("k3", 0.5 - 1 + math.log(2)),
        ("abs", math.log(2)),
        ("fkl", -0.5 * math.log(2)),
        ("fkl_k3", -0.5 * math.log(2) - 0.5 + 1),
        ("jeffreys", -0.5 * -math.log(2) / 2),
    ],
)
def test_values_where_the_policy_is_twice_the_reference(name: str, expected: float) -> None:
    # π = 1/2, π_ref = 1/4: d = log 2, r = 1/2, log r = −log 2.
    assert float(ESTIMATORS[name](tensor(math.log(0.5)), tensor(math.log(0.25)))) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_at_the_reference_every_estimator_is_0(name: str) -> None:
    logp = tensor(-0.3, -12.0, 0.0)
    assert ESTIMATORS[name](logp, logp).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NEVER_NEGATIVE)
@given(logp=st.floats(-60, 0), d=st.one_of(st.floats(-60, 60), st.floats(-1e-6, 1e-6)))
def test_what_cannot_be_negative_never_reads_negative(name: str, dtype: torch.dtype, logp: float, d: float) -> None:
    assert float(ESTIMATORS[name](torch.tensor([logp], dtype=dtype), torch.tensor([logp - d], dtype=dtype))) >= 0


def test_rounding_below_0_is_undone_and_its_gradient_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # An expm1 that is one unit too low, as vectorised ones are allowed to be: without care k3 reads −1e-16.
    monkeypatch.setattr(torch, "expm1", lambda x: x.exp() - 1 - 1e-12)
    logp = tensor(-1.0).requires_grad_()
    value = k3(logp, tensor(-1.0 - 1e-8))
    assert value.item() == 0.0
    assert torch.autograd.grad(value, logp)[0].item() == pytest.approx(1e-8, rel=1e-6)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(("logp", "ref"), [(-900.0, 0.0), (0.0, -900.0), (-1.0, -math.inf)])
def test_absurd_ratios_leave_gradients_finite(name: str, logp: float, ref: float) -> None:
    x = tensor(logp).requires_grad_()
    value = ESTIMATORS[name](x, tensor(ref))
    if math.isfinite(ref):
        assert value.isfinite().all()
    if name != "k2":  # (∞)²/2 has the slope ∞
        assert torch.autograd.grad(value.sum(), x)[0].isfinite().all()


def test_the_clamp_cuts_the_exponential_only_above_and_can_be_off() -> None:
    assert float(k3(tensor(-30.0), tensor(0.0))) == pytest.approx(math.exp(20) - 1 - 20)
    assert float(k3(tensor(-30.0), tensor(0.0), max_log_ratio=None)) == pytest.approx(math.exp(30) - 1 - 30)
    assert float(k3(tensor(0.0), tensor(-30.0))) == pytest.approx(29)  # e^−30 − 1 + 30


def test_the_slope_of_abs_at_0_is_the_one_just_above_it() -> None:
    logp = tensor(-1.0, -2.0, -1.0).requires_grad_()
    distance = ESTIMATORS["abs"](logp, tensor(-2.0, -1.0, -1.0))
    assert torch.autograd.grad(distance.sum(), logp)[0].tolist() == [1.0, -1.0, 1.0]


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "k2"])
def test_straight_through_keeps_the_value_and_has_the_gradient_of_k2(name: str) -> None:
    logp, ref = tensor(-1.0, -0.5).requires_grad_(), tensor(-0.7, -2.0)
    value = ESTIMATORS[name](logp, ref, straight_through=True)
    assert torch.equal(value, ESTIMATORS[name](logp, ref))
    # ∂(d²/2)/∂logp = d
    assert torch.autograd.grad(value.sum(), logp)[0].tolist() == pytest.approx([-0.3, 1.5])


# --- what the estimators estimate, by enumeration of a vocabulary

logits = st.lists(st.floats(-2, 2), min_size=4, max_size=4).map(lambda values: torch.tensor(values).double())


def expected(
    objective: Callable[[Tensor, Tensor], Tensor], z: Tensor, ref: Tensor, sampler: Tensor
) -> tuple[float, Tensor]:
    """Σ_v sampler(v)·objective(v), and its gradient in z with the samples held fixed."""
    z = z.clone().requires_grad_()
    total = (sampler.softmax(0) * objective(z.log_softmax(0), ref.log_softmax(0))).sum()
    return total.item(), torch.autograd.grad(total, z)[0]


def exact(z: Tensor, ref: Tensor, direction: Direction) -> tuple[float, Tensor]:
    z = z.clone().requires_grad_()
    value = full_kl(z, ref, direction=direction)
    return value.item(), torch.autograd.grad(value, z)[0]


@given(logits, logits)
def test_unbiased_estimators_have_the_kl_as_mean(z: Tensor, ref: Tensor) -> None:
    for estimator, direction in (
        (k1, "reverse"), (k3, "reverse"), (fkl, "forward"), (fkl_k3, "forward"), (jeffreys, "symmetric"),
    ):  # fmt: skip
        assert expected(estimator, z, ref, z)[0] == pytest.approx(exact(z, ref, direction)[0], abs=1e-12)


@given(logits, logits)
def test_on_policy_gradients_in_the_loss(z: Tensor, ref: Tensor) -> None:
    assert expected(k1, z, ref, z)[1].abs().max() < 1e-14, "k1 in the loss is only noise"
    for estimator, direction in ((k2, "reverse"), (k3, "forward")):
        torch.testing.assert_close(expected(estimator, z, ref, z)[1], exact(z, ref, direction)[1], atol=1e-12, rtol=0)


@given(logits, logits, logits)
def test_times_the_ratio_every_unbiased_estimator_has_its_kls_gradient_off_policy_too(
    z: Tensor, ref: Tensor, old: Tensor
) -> None:
    old_logp = old.log_softmax(0)
    for estimator, direction in (
        (k1, "reverse"), (k3, "reverse"), (fkl, "forward"), (fkl_k3, "forward"), (jeffreys, "symmetric"),
    ):  # fmt: skip

        def weighted(logp: Tensor, ref_logp: Tensor, estimator: Callable[..., Tensor] = estimator) -> Tensor:
            return importance_ratio(logp, old_logp) * estimator(logp, ref_logp)

        value, gradient = expected(weighted, z, ref, old)
        assert value == pytest.approx(exact(z, ref, direction)[0], abs=1e-12)
        torch.testing.assert_close(gradient, exact(z, ref, direction)[1], atol=1e-12, rtol=0)


# --- kl_penalty


@given(logits, logits, logits)
@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "k2"])
def test_straight_through_times_the_ratio_has_the_gradient_of_the_kl_off_policy_too(
    name: str, z: Tensor, ref: Tensor, old: Tensor
) -> None:
    mask = torch.ones(4, 1, dtype=torch.bool)

    def penalty(logp: Tensor, ref_logp: Tensor) -> Tensor:
        old_logp = old.log_softmax(0)[:, None]
        columns = (logp[:, None], ref_logp[:, None], mask)
        return kl_penalty(ESTIMATORS[name], *columns, old_logp=old_logp, straight_through=True)[:, 0]

    torch.testing.assert_close(expected(penalty, z, ref, old)[1], exact(z, ref, "reverse")[1], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("padding", [math.nan, -math.inf, math.inf])
def test_padding_has_value_and_gradient_exactly_0(name: str, padding: float) -> None:
    mask = torch.tensor([[True, False]])
    logp = tensor(-1.0, padding)[None].requires_grad_()
    ref, old = tensor(-2.0, padding)[None], tensor(-1.5, padding)[None]
    penalty = kl_penalty(ESTIMATORS[name], logp, ref, mask, old_logp=old)
    alone = tensor(-1.0)[None].requires_grad_()
    clean = kl_penalty(ESTIMATORS[name], alone, ref[:, :1], mask[:, :1], old_logp=old[:, :1])
    assert penalty.tolist() == [[clean.item(), 0.0]]
    (found,), (gradient,) = torch.autograd.grad(penalty.sum(), logp), torch.autograd.grad(clean.sum(), alone)
    assert found.tolist() == [[gradient.item(), 0.0]]


def test_the_penalty_times_the_ratio_and_its_options() -> None:
    logp, ref, mask = tensor(-30.0)[None], tensor(0.0)[None], torch.ones(1, 1, dtype=torch.bool)
    # ρ = e^(−30 + 28) = e^−2, k3 = e^30 − 1 − 30
    found = kl_penalty(k3, logp, ref, mask, old_logp=tensor(-28.0)[None], max_log_ratio=None)
    assert found.item() == pytest.approx(math.exp(-2) * (math.exp(30) - 31))
    far = kl_penalty(k1, logp, ref, mask, old_logp=tensor(-80.0)[None], ratio_clamp=None)
    assert far.item() == pytest.approx(math.exp(50) * -30)


# --- full_kl


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("reverse", 0.5 * math.log(2) + 0.5 * math.log(2 / 3)),
        ("forward", 0.25 * math.log(1 / 2) + 0.75 * math.log(3 / 2)),
        ("symmetric", (0.5 * math.log(2) + 0.5 * math.log(2 / 3) + 0.25 * math.log(1 / 2) + 0.75 * math.log(1.5)) / 2),
    ],
)
def test_full_kl_of_a_fair_and_a_loaded_coin(direction: Direction, expected: float) -> None:
    # π = (1/2, 1/2), π_ref = (1/4, 3/4); logits are log-probs plus any constant.
    z, ref = tensor(7.0, 7.0), tensor(math.log(1), math.log(3))
    assert float(full_kl(z, ref, direction=direction)) == pytest.approx(expected, abs=1e-15)
    assert full_kl(z.expand(2, 3, 2), ref.expand(2, 3, 2), direction=direction).shape == (2, 3)


@given(logits, st.lists(st.floats(-1e-9, 1e-9), min_size=4, max_size=4), st.sampled_from(DIRECTIONS))
def test_full_kl_never_reads_negative(z: Tensor, noise: list[float], direction: Direction) -> None:
    for dtype in (torch.float32, torch.float64):
        value = full_kl(z.to(dtype), (z + torch.tensor(noise, dtype=torch.float64)).to(dtype), direction=direction)
        assert float(value) >= 0


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("z", "ref"),
    [
        (tensor(1.0, "-inf", 0.5), tensor(0.0, "-inf", 2.0)),  # impossible for both
        (tensor(0.3, "-inf", "-inf"), tensor(0.0, "-inf", "-inf")),  # one survivor
        (tensor(1.0, "-inf", 0.5), tensor(0.0, 1.0, 2.0)),  # impossible for the policy alone
        (tensor(1.0, 0.0, 0.5), tensor(0.0, "-inf", 2.0)),  # impossible for the reference alone
    ],
)
def test_impossible_tokens_leave_the_kl_finite_with_gradient_0_there(
    z: Tensor, ref: Tensor, direction: Direction
) -> None:
    z = z.clone().requires_grad_()
    value = full_kl(z, ref, direction=direction)
    (gradient,) = torch.autograd.grad(value, z)
    assert value.isfinite() and value.item() >= 0 and gradient.isfinite().all()
    assert not gradient[z == -math.inf].any()


def test_tokens_impossible_for_both_do_not_count() -> None:
    with_them = full_kl(tensor(1.0, "-inf", 0.5), tensor(0.0, "-inf", 2.0))
    assert float(with_them) == pytest.approx(float(full_kl(tensor(1.0, 0.5), tensor(0.0, 2.0))), abs=1e-15)


def test_full_kl_of_large_logits_and_of_half_precision() -> None:
    # Only differences count: 10,000 more on every logit changes nothing, in float32 too.
    far = full_kl(torch.tensor([10000.0, 10001.0]), torch.tensor([0.0, -1.0]))
    assert float(far) == pytest.approx(float(full_kl(tensor(0.0, 1.0), tensor(0.0, -1.0))), rel=1e-6)
    half = full_kl(torch.tensor([0.0, 1.0], dtype=torch.bfloat16), torch.tensor([0.0, -1.0], dtype=torch.bfloat16))
    assert half.dtype == torch.float32


def test_the_reference_is_a_constant() -> None:
    z, ref = tensor(0.0, 1.0).requires_grad_(), tensor(1.0, 0.0).requires_grad_()
    full_kl(z, ref).backward()
    assert ref.grad is None and z.grad is not None


# --- linear_full_kl


def heads(n: int = 7, vocabulary: int = 11, with_bias: bool = True) -> dict[str, Tensor]:
    """Two heads, of width 5 and 3: the reference need not be as wide as the policy."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    found = {
        "hidden": normal(n, 5).requires_grad_(),
        "weight": normal(vocabulary, 5).requires_grad_(),
        "ref_hidden": normal(n, 3),
        "ref_weight": normal(vocabulary, 3),
    }
    if with_bias:
        found |= {"bias": normal(vocabulary).requires_grad_(), "ref_bias": normal(vocabulary)}
    return found


def whole(
    given: dict[str, Tensor], direction: Direction, temperature: float = 1.0, softcap: float | None = None
) -> Tensor:
    """The same on logits of all positions."""

    def capped(x: Tensor) -> Tensor:
        return (x if softcap is None else softcap * torch.tanh(x / softcap)) / temperature

    z = capped(F.linear(given["hidden"], given["weight"], given.get("bias")))
    ref = capped(F.linear(given["ref_hidden"], given["ref_weight"], given.get("ref_bias")))
    return full_kl(z, ref, direction=direction)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("chunk", "temperature", "softcap", "with_bias"),
    [(1, 1.0, None, True), (3, 0.7, 1.5, True), (7, 1.0, None, False), (None, 1.3, None, True)],
)
def test_chunks_give_the_kl_of_whole_logits_and_its_gradient(
    direction: Direction, chunk: int | None, temperature: float, softcap: float | None, with_bias: bool
) -> None:
    given = heads(with_bias=with_bias)
    mine = linear_full_kl(**given, direction=direction, temperature=temperature, softcap=softcap, chunk=chunk)
    theirs = whole(given, direction, temperature, softcap)
    torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=0)
    upstream = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    trained = [value for value in given.values() if value.requires_grad]
    for a, b in zip(
        torch.autograd.grad((mine * upstream).sum(), trained),
        torch.autograd.grad((theirs * upstream).sum(), trained),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_gradcheck(direction: Direction) -> None:
    given = heads(n=3, vocabulary=4)

    def of_trained(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        trained = {"hidden": hidden, "weight": weight, "bias": bias}
        return linear_full_kl(**{**given, **trained}, direction=direction, temperature=0.8, softcap=1.5, chunk=2)

    assert torch.autograd.gradcheck(of_trained, (given["hidden"], given["weight"], given["bias"]))


def test_no_logits_of_all_positions_are_held_for_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    given = heads(n=40, vocabulary=50)
    saved, projected, linear = [], [], F.linear

    def keep(x: Tensor) -> Tensor:
        saved.append(x.numel())
        return x

    def recording(x: Tensor, *rest: Tensor | None) -> Tensor:
        projected.append(len(x))
        return linear(x, *rest)

    monkeypatch.setattr(F, "linear", recording)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        total = linear_full_kl(**given, chunk=8).sum()
        held = sum(saved)
        total.backward()
    assert held == sum(x.numel() for x in given.values()), "the inputs, and nothing else"
    assert held < 40 * 50
    assert set(projected) == {8}, "a chunk at a time, of either model, forward and backward"


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("forbidden_by", [("bias", "ref_bias"), ("bias",), ("ref_bias",)])
def test_a_token_that_a_bias_forbids_is_as_in_full_kl(forbidden_by: tuple[str, ...], direction: Direction) -> None:
    given = heads()
    for name in forbidden_by:
        given[name] = given[name].detach().clone()
        given[name][2] = -math.inf
    given["bias"] = given["bias"].detach().requires_grad_()
    trained = [given[name] for name in ("hidden", "weight", "bias")]
    mine, theirs = linear_full_kl(**given, direction=direction, chunk=3), whole(given, direction)
    torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=1e-12)
    for a, b in zip(torch.autograd.grad(mine.sum(), trained), torch.autograd.grad(theirs.sum(), trained), strict=True):
        assert a.isfinite().all()
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-12)


def test_only_what_needs_a_gradient_gets_one_and_nothing_is_allowed() -> None:
    given = heads()
    given["weight"] = given["weight"].detach()
    (gradient,) = torch.autograd.grad(linear_full_kl(**given).sum(), given["hidden"])
    expected = torch.autograd.grad(whole(given, "reverse").sum(), given["hidden"])[0]
    torch.testing.assert_close(gradient, expected, atol=1e-10, rtol=0)
    empty = heads(n=0)
    linear_full_kl(**empty).sum().backward()
    assert empty["weight"].grad is not None and not empty["weight"].grad.any()


def test_autocast_and_half_precision_give_float32() -> None:
    given = {name: value.detach().float() for name, value in heads().items()}
    given["weight"].requires_grad_()
    exact_value = linear_full_kl(**given).detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = linear_full_kl(**given)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.detach(), exact_value, atol=0.1, rtol=0.05)
    value.sum().backward()
    assert given["weight"].grad is not None and given["weight"].grad.dtype == torch.float32


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9), st.sampled_from(DIRECTIONS))
def test_any_chunk_gives_the_same(chunk: int, direction: Direction) -> None:
    given = heads()
    torch.testing.assert_close(
        linear_full_kl(**given, direction=direction, chunk=chunk), whole(given, direction), atol=1e-10, rtol=0
    )
