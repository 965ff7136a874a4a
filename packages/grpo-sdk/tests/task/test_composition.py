import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_sdk import UserError, graduated, group_reward, ladder, reward, weighted_sum
from grpo_sdk.task.composition import (
    GRADUATED_LEVELS,
    Composer,
    RewardSpec,
    explain_composition,
    reward_specs,
    shape,
    value_bounds,
)
from grpo_sdk.task.identity import meaning_of

QUALITY = st.floats(0, 1)
SHAPED = [
    graduated(),
    graduated(shaping="linear"),
    graduated(shaping="binary"),
    graduated(shaping="binary", binary_from=0.9),
    graduated(shaping="continuous"),
]
COMPOSERS = [weighted_sum(), *SHAPED]


def spec(name: str, weight: float = 1.0, maximum: float = 1.0) -> RewardSpec:
    return RewardSpec(name, lambda: 0.0, weight, None, maximum, ())


A, FORM, EXACT, LENGTH = spec("a"), spec("form", 0.25), spec("exact", 0.75), spec("length", 1.0, maximum=0.0)
RUNGS = tuple(spec(f"rung{number}") for number in range(4))


@pytest.mark.parametrize(("compose", "specs", "parts", "value"), [
    (weighted_sum(), (spec("a", 2.0), spec("b", 3.0)), (0.5, 1.0), 4.0),  # 2 · 0.5 + 3 · 1: not normalised
    # Quality: (1 · 2 + 3 · 0) / (1 · 4 + 3 · 0.5) = 2 / 5.5 = 0.36: the first level.
    (graduated(shaping="continuous"), (spec("a", 1.0, 4.0), spec("b", 3.0, 0.5)), (2.0, 0.0), 2 / 5.5),
    (graduated(shaping="continuous"), (A,), (-1.0,), 0.0),  # the quality of signed parts is clipped
    (graduated(shaping="linear"), (A,), (0.5,), 0.35),  # −0.3 + 1.3 · 0.5
    (graduated(shaping="linear"), (A,), (0.2,), 0.0),  # −0.04 + 0.1, held at 0
    (graduated(shaping="binary"), (A,), (0.5,), -0.2),
    (graduated(shaping="binary", binary_from=0.6), (A,), (0.6 - 1e-16,), 1.0),
    (graduated(), (EXACT, LENGTH), (1.0, -0.1), 0.9),  # penalties are added after the level
    (graduated(), (LENGTH,), (0.0,), 0.2),  # nothing can be earned
    (ladder(levels=(0.2, 1.0)), (spec("a", maximum=2.0),), (1.9,), 0.2),  # reached at its maximum only
])  # fmt: skip
def test_what_a_valid_completion_earns(compose: Composer, specs: Any, parts: Any, value: float) -> None:
    given_parts = {each.name: part for each, part in zip(specs, parts, strict=True)}
    assert compose(specs, given_parts, True) == pytest.approx(value)


def test_an_invalid_completion_earns_the_base_value_and_what_does_not_need_an_answer() -> None:
    # −1 + 0.25 · 1 (form) + 1 · (−0.1) (length); `exact` was never asked and has no part.
    value = weighted_sum(invalid=-1.0)((FORM, EXACT, LENGTH), {"form": 1.0, "length": -0.1}, False)
    assert value == pytest.approx(-0.85)


@pytest.mark.parametrize(
    ("quality", "level"),
    [
        (0.0, 0.2), (0.39, 0.2), (0.4, 0.4), (0.59, 0.4), (0.6, 0.6), (0.8, 0.8), (0.949, 0.8), (0.95, 1.0), (1.0, 1.0),
        (1.1 - 0.7, 0.4), (0.7 - 0.3, 0.4),  # above and below 0.4 by one rounding
    ],
)  # fmt: skip
def test_graduated_levels_begin_at_their_thresholds(quality: float, level: float) -> None:
    assert shape(quality) == graduated()((A,), {"a": quality}, True) == level


def test_binary_says_from_where_it_pays_and_no_other_shaping_has_that_in_its_identity() -> None:
    assert shape(0.6, "binary", binary_from=1.0) == -0.3 and shape(0.6, "binary") == 1.0
    compose = graduated(shaping="binary", binary_from=0.6)
    assert explain_composition(compose, (A,), {"a": 0.6}, True).rule.startswith("binary value 1 of quality 0.6")
    assert meaning_of(graduated(binary_from=0.9)) == meaning_of(graduated())
    assert "0.6" in meaning_of(compose)


@pytest.mark.parametrize("compose", COMPOSERS)
@given(a=QUALITY, b=QUALITY)
def test_a_better_part_never_earns_less(compose: Composer, a: float, b: float) -> None:
    worse, better = (compose((A,), {"a": quality}, True) for quality in sorted((a, b)))
    assert worse <= better


@pytest.mark.parametrize("compose", [*SHAPED, ladder(levels=(0.0, 1.0))])
@given(quality=QUALITY, penalty=st.floats(-1, 0))
def test_valid_is_worth_more_than_invalid(compose: Composer, quality: float, penalty: float) -> None:
    refused = compose((A, LENGTH), {"length": penalty}, False)
    assert compose((A, LENGTH), {"a": quality, "length": penalty}, True) > refused == pytest.approx(-0.3 + penalty)


@pytest.mark.parametrize("compose", [*SHAPED, ladder(levels=(0.2, 0.6, 1.0))])
@given(weight=st.floats(0.01, 5), form=QUALITY)
def test_what_does_not_take_the_answer_counts_for_invalid_ones_without_paying(compose, weight, form):
    specs, parts = (spec("form", weight), EXACT), {"form": form, "exact": 0.0}
    refused = compose(specs, parts, False)
    assert -0.3 <= refused <= compose(specs, parts, True)
    assert refused == pytest.approx(min(-0.3 + weight * form, compose(specs, parts, True)))


@pytest.mark.parametrize("compose", [*COMPOSERS, ladder(levels=(0.2, 1.0))])
def test_the_gold_earns_one(compose: Composer) -> None:
    assert compose((A, LENGTH), {"a": 1.0, "length": 0.0}, True) == 1.0


@pytest.mark.parametrize("compose", [*COMPOSERS, ladder(levels=(0.2, 0.5, 1.0))])
@pytest.mark.parametrize("valid", [True, False])
def test_a_fact_of_weight_0_changes_no_value(compose: Composer, valid: bool) -> None:
    parts, fact = {"form": 1.0, "exact": 0.5}, spec("seconds", 0.0)
    for known in (-3.0, 0.0, 1e9):
        with_fact = compose((FORM, fact, EXACT), {**parts, "seconds": known}, valid)
        assert with_fact == compose((FORM, EXACT), parts, valid)
    assert (fact.is_fact, fact.is_penalty, fact.is_criterion) == (True, False, False)


@pytest.mark.parametrize("passed", list(itertools.product((0.0, 1.0), repeat=4)))
def test_a_ladder_stops_at_the_first_criterion_that_fails(passed: tuple[float, ...]) -> None:
    climbed = list(itertools.takewhile(lambda raw: raw == 1.0, passed))
    parts = {rung.name: raw for rung, raw in zip(RUNGS, passed, strict=True)}
    assert ladder()(RUNGS, parts, True) == GRADUATED_LEVELS[len(climbed)]


def exact(answer):
    return 1.0


@pytest.mark.parametrize(("bad", "message"), [
    (lambda: graduated(levels=(0.2, 0.2), thresholds=(0.5,)), "rise from the first to the last"),
    (lambda: graduated(thresholds=(0.4, math.nan, 0.8, 0.95)), "must be numbers between"),
    (lambda: graduated(levels=(0.1, 0.5, 1.0)), r"graduated\(\): 3 levels need 2 thresholds, got 4"),
    (lambda: graduated(shaping="graduate"), "shaping 'graduate' does not exist; .*mean 'graduated'"),
    (lambda: graduated(shaping="binary", binary_from=0.0), "binary_from="),
    (lambda: graduated(invalid=0.2), r"invalid=0\.2 must be below the first level 0\.2"),
    (lambda: weighted_sum(invalid=math.nan), "invalid=nan must be a number between"),
    (lambda: reward(exact), r"@reward without parentheses on exact\(\); write @reward\(\)"),
    (lambda: reward(math.nan), r"^reward\(.*must be numbers between -1e\+30 and 1e\+30"),
    (lambda: reward("1"), r"^reward\(.*must be numbers"),
    (lambda: group_reward(maximum=1e31), r"^group_reward\(.*must be numbers"),
    (lambda: reward(2.0)(reward(1.0)(exact)), r"exact\(\) is marked with another @reward"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(bad: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        bad()


def test_a_mark_is_read_and_leaves_the_function_as_it_is() -> None:
    def right(answer, row, *, free_chars=50):
        return 1.0

    mark = reward(2.0, maximum=3.0)
    assert mark(mark(right)) is right and right(1, 1) == 1.0
    assert reward_specs("t", (right,)) == (RewardSpec("right", right, 2.0, None, 3.0, ("answer", "row")),)


@pytest.mark.parametrize(
    ("maximum", "raw", "reached"),
    [
        (1.0, 0.1 + 0.2 + 0.7, True), (1.0, 0.999999, False), (1e6, 1e6 - 1e-5, True), (0.0, -1e-12, True),
        (-2.0, -2.0, True),
    ],
)  # fmt: skip
def test_a_maximum_is_reached_up_to_rounding(maximum: float, raw: float, reached: bool) -> None:
    assert spec("a", maximum=maximum).reached_by(raw) is reached


@pytest.mark.parametrize(("compose", "parts", "bounds"), [
    (weighted_sum(), [(1, 1)], (0, 1)),
    (weighted_sum(invalid=-0.5), [(0.25, 1), (1, 2)], (-0.5, 2.25)),
    (weighted_sum(), [(1, 1), (-0.5, 1), (0, 9)], (-0.5, 1)),  # a penalty of up to 1, and a fact
    (weighted_sum(), [(1, 1), (1, 0)], (-math.inf, 1)),  # a penalty of any amount
    (graduated(), [(1, 1)], (-0.3, 1)),
    (ladder(levels=(0.2, 1.0)), [(1, 3)], (-0.3, 1)),
    (lambda specs, parts, valid: 0.5, [(1, 1)], (-math.inf, math.inf)),
])  # fmt: skip
def test_a_value_lies_within_what_the_parts_declare(
    compose: Composer, parts: list[tuple[float, float]], bounds: tuple[float, float]
) -> None:
    specs = [spec(f"part{number}", *part) for number, part in enumerate(parts)]
    assert value_bounds(compose, specs) == pytest.approx(bounds)
