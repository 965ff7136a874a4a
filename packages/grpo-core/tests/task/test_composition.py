from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.errors import UserError
from grpo_core.task.composition import (
    GRADUATED_LEVELS,
    Composer,
    RewardSpec,
    explain_composition,
    graduated,
    ladder,
    reward,
    reward_specs,
    shape,
    weighted_sum,
)
from grpo_core.task.group_rewards import group_reward
from grpo_core.task.identity import meaning_of

QUALITY = st.floats(0, 1)
COMPOSERS = [
    weighted_sum(),
    graduated(),
    graduated(shaping="linear"),
    graduated(shaping="binary"),
    graduated(shaping="binary", binary_from=0.9),
    graduated(shaping="continuous"),
]


def spec(name: str, weight: float = 1.0, maximum: float = 1.0) -> RewardSpec:
    return RewardSpec(name, lambda: 0.0, weight, None, maximum, ())


FORM, EXACT, LENGTH = spec("form", 0.25), spec("exact", 0.75), spec("length", 1.0, maximum=0.0)


def test_weighted_sum_is_not_normalised() -> None:
    # 2 · 0.5 + 3 · 1 = 4
    assert weighted_sum()((spec("a", 2.0), spec("b", 3.0)), {"a": 0.5, "b": 1.0}, True) == 4.0


def test_an_invalid_completion_earns_the_base_value_and_what_does_not_need_an_answer() -> None:
    # −1 + 0.25 · 1 (form) + 1 · (−0.1) (length); `exact` was never asked and has no part.
    value = weighted_sum(invalid=-1.0)((FORM, EXACT, LENGTH), {"form": 1.0, "length": -0.1}, False)

    assert value == pytest.approx(-0.85)


@pytest.mark.parametrize(
    ("quality", "level"),
    [(0.0, 0.2), (0.39, 0.2), (0.4, 0.4), (0.59, 0.4), (0.6, 0.6), (0.8, 0.8), (0.949, 0.8), (0.95, 1.0), (1.0, 1.0)],
)
def test_graduated_levels_begin_at_their_thresholds(quality: float, level: float) -> None:
    assert shape(quality) == graduated()((spec("a"),), {"a": quality}, True) == level


def test_a_threshold_is_not_missed_by_one_rounding() -> None:
    quality = 1.1 - 0.7  # 0.40000000000000013 above, 0.7 − 0.3 = 0.39999999999999997 below
    assert shape(quality) == shape(0.7 - 0.3) == 0.4


def test_graduated_quality_is_normalised_by_weights_and_maxima() -> None:
    # (1 · 2 + 3 · 0) / (1 · 4 + 3 · 0.5) = 2 / 5.5 = 0.36: the first level
    specs = (spec("a", 1.0, maximum=4.0), spec("b", 3.0, maximum=0.5))
    assert graduated(shaping="continuous")(specs, {"a": 2.0, "b": 0.0}, True) == pytest.approx(2 / 5.5)
    assert graduated()(specs, {"a": 2.0, "b": 0.0}, True) == 0.2


def test_graduated_clips_the_quality_of_signed_parts() -> None:
    assert graduated(shaping="continuous")((spec("a"),), {"a": -1.0}, True) == 0.0


@pytest.mark.parametrize(
    ("shaping", "quality", "expected"),
    [
        ("linear", 0.5, 0.35),  # −0.3 + 1.3 · 0.5
        ("linear", 1.0, 1.0),
        ("linear", 0.0, -0.2),  # −0.3 + 0.1 for being valid
        ("linear", 0.2, 0.0),  # −0.04 + 0.1, held at 0
        ("binary", 0.5, -0.2),
        ("binary", 0.51, 1.0),
        ("continuous", 0.37, 0.37),
    ],
)
def test_shapings(shaping: str, quality: float, expected: float) -> None:
    assert graduated(shaping=shaping)((spec("a"),), {"a": quality}, True) == pytest.approx(expected)


def test_binary_pays_from_its_threshold() -> None:
    compose = graduated(shaping="binary", binary_from=0.6)
    rounded = 0.6 - 1e-16
    values = [compose((spec("a"),), {"a": quality}, True) for quality in (0.59, rounded, 0.6, 1.0)]
    assert values == pytest.approx([-0.2, 1, 1, 1])
    assert explain_composition(compose, (spec("a"),), {"a": 0.6}, True).rule.startswith("binary value 1 of quality 0.6")
    assert shape(0.6, "binary", binary_from=1.0) == -0.3 and shape(0.6, "binary") == 1.0


@pytest.mark.parametrize("threshold", [0.0, 1.1, float("nan")])
def test_a_binary_threshold_is_a_quality(threshold: float) -> None:
    with pytest.raises(UserError, match="binary_from="):
        graduated(shaping="binary", binary_from=threshold)


def test_a_binary_threshold_changes_no_other_identity() -> None:
    assert meaning_of(graduated(binary_from=0.9)) == meaning_of(graduated())
    assert "0.9" in meaning_of(graduated(shaping="binary", binary_from=0.9))


@pytest.mark.parametrize("compose", COMPOSERS)
@given(a=QUALITY, b=QUALITY)
def test_a_better_part_never_earns_less(compose: Composer, a: float, b: float) -> None:
    worse, better = sorted((a, b))

    def value(quality: float) -> float:
        return compose((spec("a"),), {"a": quality}, True)

    assert value(worse) <= value(better)


@pytest.mark.parametrize("compose", [*COMPOSERS[1:], ladder(levels=(0.0, 1.0))])
@given(quality=QUALITY, penalty=st.floats(-1, 0))
def test_valid_is_worth_more_than_invalid(compose: Composer, quality: float, penalty: float) -> None:
    specs, parts = (spec("a"), LENGTH), {"a": quality, "length": penalty}
    refused = compose(specs, {"length": penalty}, False)

    assert compose(specs, parts, True) > refused == pytest.approx(-0.3 + penalty)


@pytest.mark.parametrize("compose", [*COMPOSERS[1:], ladder(levels=(0.2, 0.6, 1.0))])
@given(weight=st.floats(0.01, 5), form=QUALITY)
def test_what_does_not_take_the_answer_counts_for_invalid_ones_without_paying(
    compose: Composer, weight: float, form: float
) -> None:
    specs, parts = (spec("form", weight), EXACT), {"form": form, "exact": 0.0}
    refused = compose(specs, parts, False)

    assert -0.3 <= refused <= compose(specs, parts, True)
    assert refused == pytest.approx(min(-0.3 + weight * form, compose(specs, parts, True)))


@pytest.mark.parametrize("compose", [*COMPOSERS, ladder(levels=(0.2, 1.0))])
def test_the_gold_earns_one(compose: Composer) -> None:
    assert compose((spec("a"), LENGTH), {"a": 1.0, "length": 0.0}, True) == 1.0


def test_penalties_are_added_after_the_level() -> None:
    assert graduated()((EXACT, LENGTH), {"exact": 1.0, "length": -0.1}, True) == pytest.approx(0.9)
    assert ladder(levels=(0.2, 1.0))((EXACT, LENGTH), {"exact": 1.0, "length": -0.1}, True) == pytest.approx(0.9)


def test_where_nothing_can_be_earned_a_valid_completion_gets_the_first_level() -> None:
    assert graduated()((LENGTH,), {"length": 0.0}, True) == 0.2


def test_a_ladder_stops_at_the_first_criterion_that_fails() -> None:
    rungs = tuple(spec(f"rung{number}") for number in range(4))
    compose = ladder()
    for passed in itertools.product((0.0, 1.0), repeat=4):
        climbed = list(itertools.takewhile(lambda raw: raw == 1.0, passed))
        parts = {rung.name: raw for rung, raw in zip(rungs, passed, strict=True)}
        assert compose(rungs, parts, True) == GRADUATED_LEVELS[len(climbed)]


def test_a_criterion_is_reached_only_at_its_maximum() -> None:
    assert ladder(levels=(0.2, 1.0))((spec("a", maximum=2.0),), {"a": 1.9}, True) == 0.2


@pytest.mark.parametrize(
    "bad",
    [
        lambda: graduated(levels=(0.2, 0.2), thresholds=(0.5,)),
        lambda: graduated(thresholds=(0.4, 0.6, 0.95, 0.8)),
        lambda: graduated(thresholds=(0.4, math.nan, 0.8, 0.95)),
        lambda: ladder(levels=(1.0, 0.0)),
        lambda: ladder(levels=()),
        lambda: ladder(levels=(0.0, math.inf)),
    ],
)
def test_levels_and_thresholds_must_rise(bad: Callable[[], Composer]) -> None:
    with pytest.raises(UserError, match=r"must be numbers between .* that rise from the first to the last"):
        bad()


def test_levels_and_thresholds_must_fit() -> None:
    with pytest.raises(UserError, match=r"graduated\(\): 3 levels need 2 thresholds, got 4"):
        graduated(levels=(0.1, 0.5, 1.0))


@pytest.mark.parametrize("composer", [graduated, ladder])
def test_invalid_must_be_below_every_level(composer: Callable[..., Composer]) -> None:
    with pytest.raises(UserError, match=r"invalid=0\.2 must be below the first level 0\.2"):
        composer(invalid=0.2)
    with pytest.raises(UserError, match="invalid=nan must be a number between"):
        weighted_sum(invalid=math.nan)


def test_a_misspelt_shaping_names_the_near_one() -> None:
    with pytest.raises(UserError, match=r"shaping 'graduate' does not exist; .*Did you mean 'graduated'\?"):
        graduated(shaping="graduate")


def test_a_mark_leaves_the_function_as_it_is() -> None:
    def exact(answer, row):
        return float(answer == row)

    marked = reward(0.5)(exact)

    assert marked is exact and marked(1, 1) == 1.0


def test_reward_specs_read_the_marks_in_order() -> None:
    @reward(0.25)
    def form(text):
        return 1.0

    @reward(2.0, needs="form", maximum=3.0)
    def exact(answer, row, config):
        return 3.0

    def unmarked(predictions):
        return 1.0

    assert reward_specs("t", (form, exact, unmarked)) == (
        RewardSpec("form", form, 0.25, None, 1.0, ("text",)),
        RewardSpec("exact", exact, 2.0, "form", 3.0, ("answer", "row", "config")),
        RewardSpec("unmarked", unmarked, 1.0, None, 1.0, ("predictions",)),
    )


def test_settings_with_defaults_are_left_alone() -> None:
    def penalty(text, *, free_chars=50):
        return 0.0

    assert reward_specs("t", (penalty,))[0].arguments == ("text",)


@pytest.mark.parametrize(("weight", "maximum", "penalty"), [(1, 1, False), (-1, 1, True), (0, 1, False), (1, 0, True)])
def test_penalties_can_only_take_away(weight: float, maximum: float, penalty: bool) -> None:
    assert spec("a", weight, maximum).is_penalty is penalty


@pytest.mark.parametrize(
    ("maximum", "raw", "reached"),
    [
        (1.0, 0.1 + 0.2 + 0.7, True),
        (1.0, 0.999999, False),
        (1e6, 1e6 - 1e-5, True),
        (0.0, -1e-12, True),
        (-2.0, -2.0, True),
    ],
)
def test_a_maximum_is_reached_up_to_rounding(maximum: float, raw: float, reached: bool) -> None:
    assert spec("a", maximum=maximum).reached_by(raw) is reached


@pytest.mark.parametrize("marks", [{"weight": math.nan}, {"weight": math.inf}, {"maximum": 1e31}, {"weight": "1"}])
@pytest.mark.parametrize("mark", [reward, group_reward])
def test_marks_are_numbers_in_bounds(mark: Callable[..., Any], marks: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=rf"^{mark.__name__}\(.*both must be numbers between -1e\+30 and 1e\+30\."):
        mark(**marks)


@pytest.mark.parametrize("mark", [reward, group_reward])
def test_a_mark_without_parentheses_is_explained(mark: Callable[..., Any]) -> None:
    name = mark.__name__
    with pytest.raises(UserError, match=rf"@{name} without parentheses on exact\(\); write @{name}\(\)"):

        @mark
        def exact(answer):
            return 1.0


def test_a_second_mark_does_not_change_the_first_tasks_reward() -> None:
    def shared(text):
        return 1.0

    reward(1.0)(reward(1.0)(shared))
    with pytest.raises(UserError, match=r"shared\(\) is marked with another @reward already"):
        reward(2.0)(shared)


@pytest.mark.parametrize("compose", [*COMPOSERS, ladder(levels=(0.2, 0.5, 1.0))])
@pytest.mark.parametrize("valid", [True, False])
def test_a_fact_of_weight_0_changes_no_value(compose: Composer, valid: bool) -> None:
    parts, fact = {"form": 1.0, "exact": 0.5}, spec("seconds", 0.0)
    for known in (-3.0, 0.0, 1e9):
        with_fact = compose((FORM, fact, EXACT), {**parts, "seconds": known}, valid)
        assert with_fact == compose((FORM, EXACT), parts, valid)
    assert (fact.is_fact, fact.is_penalty, fact.is_criterion) == (True, False, False)
