import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grpo_core.algorithms import kl as module
from grpo_core.algorithms.kl import Direction, full_kl, k3, kl_penalty, linear_full_kl, ratio_factor
from grpo_core.algorithms.losses import importance_ratio

ESTIMATORS = {name: getattr(module, name) for name in ("k1", "k2", "k3", "abs", "fkl", "fkl_k3", "jeffreys")}
NEVER_NEGATIVE = [name for name in ESTIMATORS if name not in ("k1", "fkl")]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def tensor(*values: float | str) -> Tensor:
    return torch.tensor([float(value) for value in values], dtype=torch.float64)


# --- estimators


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NEVER_NEGATIVE)
@given(logp=st.floats(-60, 0), d=st.one_of(st.floats(-60, 60), st.floats(-1e-6, 1e-6)))
def test_what_cannot_be_negative_never_reads_negative(name: str, dtype: torch.dtype, logp: float, d: float) -> None:
    assert float(ESTIMATORS[name](torch.tensor([logp], dtype=dtype), torch.tensor([logp - d], dtype=dtype))) >= 0


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


UNBIASED = {"k1": "reverse", "k3": "reverse", "fkl": "forward", "fkl_k3": "forward", "jeffreys": "symmetric"}


@pytest.mark.parametrize(("name", "direction"), UNBIASED.items())
@given(logits, logits, logits)
def test_times_the_ratio_every_unbiased_estimator_has_its_kl_as_mean_and_its_gradient_off_policy_too(
    name: str, direction: Direction, z: Tensor, ref: Tensor, old: Tensor
) -> None:
    old_logp = old.log_softmax(0)

    def weighted(logp: Tensor, ref_logp: Tensor) -> Tensor:
        return importance_ratio(logp, old_logp) * ESTIMATORS[name](logp, ref_logp)

    value, gradient = expected(weighted, z, ref, old)
    assert value == pytest.approx(exact(z, ref, direction)[0], abs=1e-12)
    torch.testing.assert_close(gradient, exact(z, ref, direction)[1], atol=1e-12, rtol=0)


# --- kl_penalty


@given(logits, logits, logits)
@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "k2"])
def test_straight_through_has_the_gradient_of_the_kl_off_policy_too(
    name: str, z: Tensor, ref: Tensor, old: Tensor
) -> None:
    mask = torch.ones(4, 1, dtype=torch.bool)

    def penalty(logp: Tensor, ref_logp: Tensor) -> Tensor:
        kl = kl_penalty(ESTIMATORS[name], logp[:, None], ref_logp[:, None], mask, straight_through=True)[:, 0]
        return ratio_factor(logp, old.log_softmax(0), is_constant=True) * kl

    torch.testing.assert_close(expected(penalty, z, ref, old)[1], exact(z, ref, "reverse")[1], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("padding", [math.nan, -math.inf, math.inf])
def test_padding_has_value_and_gradient_exactly_0(name: str, padding: float) -> None:
    def penalty_and_gradient(width: int) -> list[list[float]]:
        logp = tensor(-1.0, padding)[None, :width].requires_grad_()
        ref = tensor(-2.0, padding)[None, :width]
        penalty = kl_penalty(ESTIMATORS[name], logp, ref, torch.tensor([[True, False]])[:, :width])
        (gradient,) = torch.autograd.grad(penalty.sum(), logp)
        return [*penalty.tolist(), *gradient.tolist()]

    assert penalty_and_gradient(2) == [[*each, 0.0] for each in penalty_and_gradient(1)]


# --- full_kl


@given(logits, st.lists(st.floats(-1e-9, 1e-9), min_size=4, max_size=4), st.sampled_from(DIRECTIONS))
def test_full_kl_never_reads_negative(z: Tensor, noise: list[float], direction: Direction) -> None:
    for dtype in (torch.float32, torch.float64):
        value = full_kl(z.to(dtype), (z + torch.tensor(noise, dtype=torch.float64)).to(dtype), direction=direction)
        assert float(value) >= 0


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("z", "ref"), [
    (tensor(1.0, "-inf", 0.5), tensor(0.0, "-inf", 2.0)),  # impossible for both
    (tensor(0.3, "-inf", "-inf"), tensor(0.0, "-inf", "-inf")),  # one survivor
    (tensor(1.0, "-inf", 0.5), tensor(0.0, 1.0, 2.0)),  # impossible for the policy alone
    (tensor(1.0, 0.0, 0.5), tensor(0.0, "-inf", 2.0)),  # impossible for the reference alone
])  # fmt: skip
def test_impossible_tokens_leave_the_kl_finite_without_gradient(z: Tensor, ref: Tensor, direction: Direction) -> None:
    z, ref = z.clone().requires_grad_(), ref.clone().requires_grad_()
    value = full_kl(z, ref, direction=direction)
    value.backward()
    assert value.isfinite() and value.item() >= 0 and z.grad.isfinite().all()
    assert not z.grad[z == -math.inf].any()
    assert ref.grad is None, "the reference is a constant"


# --- linear_full_kl


def heads(
    n: int = 7, vocabulary: int = 11, *, with_bias: bool = True, forbidden_by: tuple[str, ...] = ()
) -> dict[str, Tensor]:
    """Two heads, of width 5 and 3: the reference need not be as wide as the policy. Biases may forbid token 2."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"hidden": (n, 5), "weight": (vocabulary, 5), "ref_hidden": (n, 3), "ref_weight": (vocabulary, 3)}
    shapes |= {"bias": (vocabulary,), "ref_bias": (vocabulary,)} if with_bias else {}
    found = {name: torch.randn(*shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    for name in forbidden_by:
        found[name][2] = -math.inf
    return {name: value.requires_grad_(not name.startswith("ref_")) for name, value in found.items()}


def whole(given: dict[str, Tensor], direction: Direction, temperature: float, softcap: float | None) -> Tensor:
    """The same on logits of all positions."""

    def capped(x: Tensor) -> Tensor:
        return (x if softcap is None else softcap * torch.tanh(x / softcap)) / temperature

    z = capped(F.linear(given["hidden"], given["weight"], given.get("bias")))
    ref = capped(F.linear(given["ref_hidden"], given["ref_weight"], given.get("ref_bias")))
    return full_kl(z, ref, direction=direction)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("given", "chunk", "temperature", "softcap"), [
    (heads(), 1, 1.0, None),
    (heads(), 3, 0.7, 1.5),
    (heads(with_bias=False), 7, 1.0, None),
    (heads(0), None, 1.3, None),
    (heads(forbidden_by=("bias", "ref_bias")), 3, 1.0, None),
    (heads(forbidden_by=("bias",)), 3, 1.0, None),
    (heads(forbidden_by=("ref_bias",)), 3, 1.0, None),
])  # fmt: skip
def test_chunks_give_the_kl_of_whole_logits_and_its_gradient(
    direction: Direction, given: dict[str, Tensor], chunk: int | None, temperature: float, softcap: float | None
) -> None:
    mine = linear_full_kl(**given, direction=direction, temperature=temperature, softcap=softcap, chunk=chunk)
    theirs = whole(given, direction, temperature, softcap)
    torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=1e-12)
    upstream = torch.randn(len(mine), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    trained = [value for value in given.values() if value.requires_grad]
    found, expected = (torch.autograd.grad((kl * upstream).sum(), trained) for kl in (mine, theirs))
    assert all(each.isfinite().all() for each in found)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-12)


def test_no_logits_of_all_positions_are_held_for_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    given = heads(n=40, vocabulary=50)
    saved, projected, linear = [], [], F.linear

    def recording(x: Tensor, *rest: Tensor | None) -> Tensor:
        projected.append(len(x))
        return linear(x, *rest)

    monkeypatch.setattr(F, "linear", recording)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        total = linear_full_kl(**given, chunk=8).sum()
        held = sum(saved)
        total.backward()
    assert held == sum(x.numel() for x in given.values()) < 40 * 50, "the inputs, and nothing else"
    assert set(projected) == {8}, "a chunk at a time, of either model, forward and backward"


def test_autocast_and_half_precision_give_float32() -> None:
    given = {name: value.detach().float() for name, value in heads().items()}
    given["weight"].requires_grad_()  # and only it gets a gradient
    exact_value = linear_full_kl(**given).detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = linear_full_kl(**given)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.detach(), exact_value, atol=0.1, rtol=0.05)
    value.sum().backward()
    assert given["weight"].grad is not None and given["weight"].grad.dtype == torch.float32
    # Only differences count: 10,000 more on every logit changes nothing, in float32 too.
    far, near = (full_kl(torch.tensor([c, c + 1]), torch.tensor([0.0, -1.0])) for c in (10000.0, 0.0))
    assert float(far) == pytest.approx(float(near), rel=1e-6)
