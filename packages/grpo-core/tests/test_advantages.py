import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.algorithms.advantages import ema, group_mean, leave_one_out, scale_advantages, zero_std_fraction

NAN = math.nan


def rewards(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_group_mean_centres_each_group_by_itself() -> None:
    # means: (0 + 1)/2 = 0.5 and (2 + 4)/2 = 3
    out = group_mean(rewards(0, 1, 2, 4), torch.tensor([0, 0, 1, 1]))
    assert out.tolist() == [-0.5, 0.5, -1.0, 1.0]


def test_an_abstention_leaves_the_baseline_and_gets_no_advantage() -> None:
    # the mean of the two that were scored is 0.5
    out = group_mean(rewards(0, NAN, 1), torch.tensor([0, 0, 0]))
    assert out.tolist() == [-0.5, 0.0, 0.5]


@pytest.mark.parametrize("baseline", [group_mean, leave_one_out])
def test_a_lone_survivor_has_advantage_zero(baseline) -> None:
    assert baseline(rewards(1, NAN, NAN), torch.tensor([0, 0, 0])).tolist() == [0.0, 0.0, 0.0]


def test_equal_rewards_give_exactly_zero_whatever_the_rounding() -> None:
    # the mean of three times 0.1 is not 0.1 in floating point
    assert group_mean(rewards(0.1, 0.1, 0.1), torch.tensor([0, 0, 0])).tolist() == [0.0, 0.0, 0.0]


def test_leave_one_out_is_the_mean_of_the_others() -> None:
    # 3 − (1 + 2)/2 = 1.5, 1 − (2 + 3)/2 = −1.5, 2 − (1 + 3)/2 = 0
    out = leave_one_out(rewards(1, 2, 3), torch.tensor([0, 0, 0]))
    assert out.tolist() == pytest.approx([-1.5, 0.0, 1.5])


def test_ema_is_read_before_its_update_and_kept_per_key() -> None:
    state: dict[str, float] = {}
    groups = torch.tensor([0, 0])
    first = ema(rewards(0, 1), groups, keys=["a", "a"], state=state, alpha=0.1)
    assert first.tolist() == [-0.5, 0.5]  # the first batch initialises: b = 0.5
    second = ema(rewards(1, 1), groups, keys=["a", "b"], state=state, alpha=0.1)
    assert second.tolist() == [0.5, 0.0]
    assert state == {"a": pytest.approx(0.9 * 0.5 + 0.1), "b": 1.0}


def test_scaling_rewards_scales_dr_grpo_and_leaves_grpo_unchanged() -> None:
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    given_rewards = rewards(0, 1, 1, 2, 3, 7) * 1e3  # far above the ε of the standard deviation
    centred = group_mean(given_rewards, groups)
    assert torch.allclose(group_mean(10 * given_rewards, groups), 10 * centred)
    one = scale_advantages(centred, given_rewards, groups, "group")
    ten = scale_advantages(group_mean(10 * given_rewards, groups), 10 * given_rewards, groups, "group")
    assert torch.allclose(one, ten, rtol=1e-5)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8), st.floats(-5, 5))
def test_a_shift_of_all_rewards_changes_no_advantage(values: list[float], shift: float) -> None:
    groups = torch.zeros(len(values), dtype=torch.long)
    before = group_mean(rewards(*values), groups)
    after = group_mean(rewards(*values) + shift, groups)
    assert torch.allclose(before, after, atol=1e-9)
    assert abs(float(before.sum())) < 1e-9


def test_zero_std_fraction_counts_groups_of_equal_rewards() -> None:
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    assert zero_std_fraction(rewards(1, 1, 0, 1, NAN, 1), groups) == pytest.approx(2 / 3)


def golden(*operations: str) -> list[dict]:
    here = Path(__file__).resolve()
    for parent in here.parents:
        file = parent / "shared" / "golden" / "algorithms.json"
        if file.is_file():
            return [case for case in json.loads(file.read_text())["cases"] if case["op"] in operations]
    return []


GOLDEN = golden("adv_dr_grpo", "adv_rloo", "adv_grpo")


@pytest.mark.skipif(not GOLDEN, reason="the shared golden cases are not beside this checkout")
def test_golden_cases_of_baselines() -> None:
    checked = 0
    for case in GOLDEN:
        given_inputs = case["inputs"]
        if (
            "singleton_verl" in case["tags"]
            or given_inputs.get("eps", 1e-4) != 1e-4
            or given_inputs.get("ddof", 1) != 1
        ):
            continue
        r = rewards(*[float(value) for value in given_inputs["rewards"]])
        names = given_inputs["groups"]
        g = torch.tensor([names.index(name) for name in names])
        out = leave_one_out(r, g) if case["op"] == "adv_rloo" else group_mean(r, g)
        if case["op"] == "adv_grpo":
            out = scale_advantages(out, r, g, "group")
        assert out.tolist() == pytest.approx([float(value) for value in case["expected"]["adv"]], abs=1e-9), case["id"]
        checked += 1
    assert checked >= 10
