import hashlib
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from grpo_core.engines.sampling import UniformStream, filter_probabilities, sample
from grpo_sdk.endpoints.base import Request, SampleKey, Sampling
from grpo_sdk.errors import NonFiniteError, UserError

ALMOST_ONE = 1 - 2.0**-53
KEY = SampleKey(seed=1, step=2, prompt_id="row 3", sample=4)


def f64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def drawn(logits: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return sample(logits, u, Sampling())


# --- uniforms


def test_uniforms_are_those_of_philox_keyed_by_the_canonical_key() -> None:
    canonical = b'[1, 1, 2, "row 3", 4]'  # the version of the stream, then the key
    key = int.from_bytes(hashlib.blake2b(canonical, digest_size=16).digest(), "little")
    expected = np.random.Generator(np.random.Philox(key=key)).random(100)
    stream = UniformStream(KEY)
    assert [number for n in (1, 36, 63) for number in stream.take(n).tolist()] == expected.tolist(), "in pieces"
    # Recorded once: other numbers here would change every seeded run.
    assert UniformStream(KEY).take(3).tolist() == [0.6790811837235783, 0.15393682970770717, 0.19541641379977726]


def test_every_field_of_the_key_counts_and_keys_do_not_run_together() -> None:
    # 1|23 and 12|3 would be one text without separators, and so would a quote in the id without escapes.
    fields = ((2, 2, "row 3", 4), (1, 3, "row 3", 4), (1, 2, "row 30", 4), (1, 2, "row 3", 5))
    alike = ((1, 23, "a", 0), (12, 3, "a", 0), (1, 2, '3, "a', 0), (1, 2, "\ud800", 0))  # the last is a lone surrogate
    keys = [KEY, *(SampleKey(*each) for each in (*fields, *alike))]
    assert len({UniformStream(key).take(1)[0] for key in keys}) == len(keys)
    of_numpy = SampleKey(np.int64(1), np.int32(2), "row 3", np.int64(4))  # type: ignore[arg-type]  # what a sampler may hold
    assert UniformStream(of_numpy).take(2).tolist() == UniformStream(KEY).take(2).tolist()


# --- the kernel


def test_a_token_is_the_first_whose_cdf_exceeds_u() -> None:
    # p = 1/2, 1/8, 3/8: the CDF is 0.5, 0.625, 1.
    logits = f64(0.5, 0.125, 0.375).log().expand(5, 3)
    token, logprob = drawn(logits, f64(0.0, 0.49, 0.5, 0.62, 0.63))
    assert token.tolist() == [0, 0, 1, 1, 2]
    assert logprob.exp().tolist() == pytest.approx([0.5, 0.5, 0.125, 0.125, 0.375], abs=1e-15)
    # u is below 1, but the sums of a device need not be exact: u = 1 stands for the worst that rounding can do.
    for last in (0, 200, 599):
        logits = torch.zeros(1, 600)
        logits[0, last + 1 :] = -math.inf
        assert drawn(logits, f64(1.0))[0].item() == last, "the last possible token"


logit = st.floats(-30, 30) | st.just(-math.inf)


@given(st.lists(logit, min_size=1, max_size=600).filter(lambda row: max(row) > -math.inf), st.data())
@settings(max_examples=60)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_laws_of_the_drawn(dtype: torch.dtype, row: list[float], data: st.DataObject) -> None:
    below_one = st.floats(0, ALMOST_ONE)
    u = [0.0, *sorted(data.draw(st.lists(below_one, max_size=5))), ALMOST_ONE]
    logits = torch.tensor(row, dtype=dtype)
    token, logprob = drawn(logits.expand(len(u), -1), f64(*u))
    exact = logits.double().log_softmax(-1)
    cdf = exact.exp().cumsum(-1)
    slack = 1e-5 if dtype == torch.float32 else 1e-12
    assert token.tolist() == sorted(token.tolist()), "monotone in u"
    for each_u, index, each_logprob in zip(u, token.tolist(), logprob.tolist(), strict=True):
        assert row[index] > -math.inf, "an impossible token is never drawn"
        assert each_logprob == pytest.approx(float(exact[index]), abs=slack, rel=slack)
        assert float(cdf[index]) > each_u - slack
        assert (float(cdf[index - 1]) if index else 0.0) <= each_u + slack


def test_a_long_tail_is_not_lost_in_float32() -> None:
    # One token has half of the mass, 2^17 tokens share the rest: 2^-18 each. A float32 running sum past 0.5 has steps
    # of 6e-8, an error of 1.6 % for each tail token; in float64 the drawn index is right to a token.
    vocabulary = 2**17 + 1
    logits = torch.zeros(1, vocabulary)
    logits[0, 0] = math.log(2**17)
    for index in (1, 1000, 2**16, 2**17):
        u = 0.5 + (index - 0.5) * 2.0**-18  # the middle of that token's interval
        assert abs(int(drawn(logits, f64(u))[0]) - index) <= 1


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_logits_are_an_error_that_counts_rows(bad: float) -> None:
    logits = torch.zeros(3, 300)
    logits[1, 7] = bad
    for sampling in (Sampling(), Sampling(temperature=0)):
        with pytest.raises(NonFiniteError, match=r"1 of 3 rows \(first: row 1\)"):
            sample(logits, f64(0, 0, 0), sampling)
    with pytest.raises(NonFiniteError, match="all −inf in 2 of 2 rows"):
        drawn(torch.full((2, 5), -math.inf), f64(0, 0.5))


# --- temperature, greedy, filters


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_greedy_takes_the_first_of_the_likeliest_with_the_logprob_at_temperature_one(dtype: torch.dtype) -> None:
    token, logprob = sample(f64(0.0, 2.0, 2.0)[None].to(dtype), None, Sampling(temperature=0))
    assert token.item() == 1
    assert logprob.item() == pytest.approx(-math.log(2 + math.exp(-2)))  # 2 - log(e^0 + 2e^2)
    _, drawn_logprob = sample(f64(0.0, 2.0, 2.0)[None].to(dtype), f64(0.99), Sampling())
    assert drawn_logprob.item() == pytest.approx(logprob.item())


@pytest.mark.parametrize(("sampling", "kept"), [
    (Sampling(top_k=2), [0, 1, 2]),  # 1 and 2 tie for the second place
    (Sampling(top_k=9), [0, 1, 2, 3]),
    (Sampling(top_p=0.4), [0]),  # 0.4 alone is at least 0.4
    (Sampling(top_p=0.5), [0, 1]),  # of the tied ones the first
    (Sampling(min_p=1.0), [0]),
    # Top-k leaves 0.4, 0.25, 0.25; of that 0.9, the first two are 0.72, and 0.7 needs both.
    (Sampling(top_k=2, top_p=0.7), [0, 1]),
])  # fmt: skip
def test_filters(sampling: Sampling, kept: list[int]) -> None:
    probabilities = f64(0.4, 0.25, 0.25, 0.1)[None]
    left = filter_probabilities(probabilities, sampling)
    assert left.nonzero()[:, 1].tolist() == kept
    assert torch.equal(left[left > 0], probabilities[left > 0]), "what is kept is not changed"


@given(
    st.lists(st.integers(-80, 80), min_size=2, max_size=40, unique=True),  # without ties, whose order is anybody's
    st.integers(0, 45),
    st.floats(0.01, 1),
    st.floats(0, 1),
)
@settings(max_examples=60)
def test_filters_agree_with_transformers(tenths: list[int], top_k: int, top_p: float, min_p: float) -> None:
    logits = torch.tensor([tenths], dtype=torch.float64) / 10
    expected = logits
    for warper in (TopKLogitsWarper(top_k or len(tenths)), TopPLogitsWarper(top_p), MinPLogitsWarper(min_p)):
        expected = warper(None, expected)
    p = logits.softmax(-1)
    left = filter_probabilities(p, Sampling(top_k=top_k, top_p=top_p, min_p=min_p))
    ordered = p[0].sort(descending=True).values[: top_k or None]
    margins = torch.cat((ordered.cumsum(0) / ordered.sum() - top_p, ordered / ordered[0] - min_p))
    assume(bool((margins.abs() > 1e-9).all()))  # exactly on an edge, rounding decides
    assert torch.equal(left > 0, expected > -math.inf)


@pytest.mark.parametrize(("kind", "given", "message"), [
    (Sampling, {"temperature": -1.0}, "temperature=-1.0 must be 0 "),
    (Sampling, {"temperature": math.nan}, "temperature=nan"),
    (Sampling, {"top_k": -1}, "top_k=-1"),
    (Sampling, {"top_p": 0.0}, "top_p=0.0 must be above 0"),
    (Sampling, {"min_p": 1.1}, "min_p=1.1"),
    (Sampling, {"max_completion_length": 0}, "max_completion_length=0 .*at least 1"),
    (partial(Request, key=KEY), {"prompt_ids": ()}, "empty prompt"),
    (partial(Request, (1,), KEY), {"stop": "END"}, r"stop='END' must be a tuple of strings, e.g. \('END',\)"),
    (partial(Request, (1,), KEY), {"stop": ("a", "")}, "empty stop string"),
    (partial(Request, (1,), KEY), {"max_completion_length": 0}, "max_completion_length=0"),
])  # fmt: skip
def test_what_cannot_be_sampled_is_refused(kind: Any, given: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        kind(**given)
