from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_core.errors import DataError, UserError
from grpo_core.prompts.curriculum import LadderCurriculum, PassRateCurriculum
from grpo_core.task.row import Row


def rows(n: int) -> list[Row]:
    return [Row(id=f"r{i}") for i in range(n)]


def rungs(*sizes: int) -> list[Row]:
    return [Row(id=f"d{level}-{i}", difficulty=float(level)) for level, n in enumerate(sizes) for i in range(n)]


def draw(order: PassRateCurriculum | LadderCurriculum, n: int) -> list[str]:
    taken: list[str] = []
    for _ in range(n):
        taken.append(order.next(set(taken)).id)
    return taken


# --- pass rate


def test_the_average_moves_by_alpha_from_one_half() -> None:
    order = PassRateCurriculum(rows(2), "k", ema_alpha=0.05)
    order.update("r0", 1.0)
    order.update("r0", 0.0)
    # 0.5 -> 0.95·0.5 + 0.05 = 0.525 -> 0.95·0.525 = 0.49875
    assert order.pass_rate("r0") == pytest.approx(0.49875)
    assert order.pass_rate("r1") == 0.5


def test_boundaries_belong_to_normal() -> None:
    order = PassRateCurriculum(rows(4), "k", ema_alpha=1.0, boundaries=(0.2, 0.8))
    for row_id, value in {"r0": 0.2, "r1": 0.8, "r2": 0.19, "r3": 0.81}.items():
        order.update(row_id, value)
    assert order.sizes() == {"hard": 1, "normal": 2, "easy": 1}


def sorted_out(n: int, weights: tuple[float, float, float] = (1, 1, 1)) -> PassRateCurriculum:
    """3n rows: the first n hard, the next normal, the last easy."""
    order = PassRateCurriculum(rows(3 * n), "k", ema_alpha=1.0, weights=weights)
    for i in range(3 * n):
        order.update(f"r{i}", (0.0, 0.5, 1.0)[i // n])
    return order


def bucket_counts(drawn: list[str], n: int) -> Counter[str]:
    return Counter(("hard", "normal", "easy")[int(row_id[1:]) // n] for row_id in drawn)


def test_buckets_get_exact_shares_of_every_batch() -> None:
    order = sorted_out(20)
    for _ in range(4):
        assert bucket_counts(draw(order, 6), 20) == {"hard": 2, "normal": 2, "easy": 2}
    order = sorted_out(20, weights=(2, 5, 1))
    assert bucket_counts(draw(order, 8), 20) == {"hard": 2, "normal": 5, "easy": 1}


def test_each_bucket_goes_round() -> None:
    order = sorted_out(4)
    rounds = [draw(order, 12) for _ in range(3)]  # 4 of each bucket: every row of it once per round
    assert all(len(set(drawn)) == 12 for drawn in rounds)
    assert rounds[0] == rounds[1] == rounds[2]


def test_results_change_what_is_drawn() -> None:
    order = PassRateCurriculum(rows(30), "k", ema_alpha=1.0)
    for row_id in [f"r{i}" for i in range(10)]:
        order.update(row_id, 0.0)
    # A third of the turns is for hard rows; easy is empty, so its third goes to normal.
    assert Counter(int(row_id[1:]) < 10 for row_id in draw(order, 9)) == {True: 3, False: 6}


def test_an_empty_bucket_passes_its_turn_to_normal_then_hard_then_easy() -> None:
    order = PassRateCurriculum(rows(4), "k", ema_alpha=1.0, weights=(0, 0, 1))  # every turn is for easy ones
    order.update("r0", 0.0)
    order.update("r1", 1.0)
    drawn = draw(order, 4)
    assert drawn[0] == "r1"
    assert set(drawn[1:3]) == {"r2", "r3"}
    assert drawn[3] == "r0"


def test_a_batch_larger_than_the_task_repeats_the_longest_ago() -> None:
    order = PassRateCurriculum(rows(3), "k")
    drawn = draw(order, 3)
    assert order.next(set(drawn)).id == drawn[0]


@given(
    st.integers(1, 10),
    st.lists(st.tuples(st.integers(1, 6), st.floats(0, 1)), max_size=12),
    st.tuples(*[st.integers(0, 3)] * 3).filter(any),
)
@settings(max_examples=100, deadline=None)
def test_a_resumed_curriculum_goes_on_as_if_it_had_not_stopped(
    n_rows: int, history: list[tuple[int, float]], weights: tuple[int, int, int]
) -> None:
    def fresh() -> PassRateCurriculum:
        return PassRateCurriculum(rows(n_rows), "k", ema_alpha=0.5, weights=weights)

    straight = fresh()
    for size, value in history:
        for row_id in draw(straight, size):
            straight.update(row_id, value)
    resumed = fresh()
    draw(resumed, 2)  # whatever it did before is overwritten
    resumed.load_state(json.loads(json.dumps(straight.state())))
    assert resumed.sizes() == straight.sizes()
    for size in (3, 5, 2):
        ours, theirs = draw(resumed, size), draw(straight, size)
        assert ours == theirs
        assert len(set(ours)) == min(size, n_rows)
        for row_id in ours:
            resumed.update(row_id, 1.0)
            straight.update(row_id, 1.0)


def test_a_checkpoint_of_other_rows_is_refused() -> None:
    order = PassRateCurriculum(rows(9), "k")
    order.update("r8", 1.0)
    with pytest.raises(UserError, match=r"knows 1 rows that this run has not, e\.g\. 'r8'"):
        PassRateCurriculum(rows(4), "k").load_state(order.state())


@pytest.mark.parametrize(
    "bad", [{"ema_alpha": 0.0}, {"boundaries": (0.8, 0.2)}, {"boundaries": (-0.1, 0.5)}, {"weights": (0, 0, 0)}]
)
def test_values_out_of_range_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(UserError):
        PassRateCurriculum(rows(3), "k", **bad)  # type: ignore[arg-type] # the point of the test


# --- ladder


def levels(drawn: list[str]) -> Counter[str]:
    return Counter(row_id.split("-")[0] for row_id in drawn)


def test_only_the_easiest_rung_is_drawn_at_first() -> None:
    assert levels(draw(LadderCurriculum(rungs(50, 50, 50), "k"), 20)) == {"d0": 20}


def test_a_mastered_rung_unlocks_the_next_and_stays_in_the_draw() -> None:
    order = LadderCurriculum(rungs(50, 50, 50), "k", threshold=0.9)
    assert not order.report_held_out(0.0, 0.89, 100)
    assert order.report_held_out(0.0, 0.9, 100)
    assert order.rung == 1.0
    assert levels(draw(order, 8)) == {"d1": 6, "d0": 2}  # three quarters
    assert order.report_held_out(1.0, 1, 64)
    assert levels(draw(order, 16)) == {"d2": 12, "d1": 2, "d0": 2}  # an eighth each


def test_training_results_unlock_nothing() -> None:
    order = LadderCurriculum(rungs(5, 5), "k")
    for _ in range(100):
        order.update("d0-0", 1.0)
    assert order.rung == 0.0


def test_a_report_about_another_rung_changes_nothing() -> None:
    order = LadderCurriculum(rungs(5, 5, 5), "k")
    assert not order.report_held_out(1.0, 1, 64)
    assert order.rung == 0.0


def test_the_top_is_mastered_or_not() -> None:
    order = LadderCurriculum(rungs(5), "k")
    assert not order.report_held_out(0.0, 0.95, 64)
    assert order.mastered
    order.report_held_out(0.0, 0.5, 64)
    assert not order.mastered


def test_too_few_held_out_rows_unlock_nothing() -> None:
    order = LadderCurriculum(rungs(5, 5), "k")
    assert not order.report_held_out(0.0, 1, 31)
    assert order.report_held_out(0.0, 1, 32)


def test_too_few_held_out_rows_are_refused_ahead_with_the_arithmetic() -> None:
    order = LadderCurriculum(rungs(5, 5), "k")
    order.check_held_out(rungs(32, 32))
    with pytest.raises(UserError, match=r"rung 1 of the ladder has 31 held-out rows; it takes 32 .* 32 × 2 rungs"):
        order.check_held_out(rungs(32, 31))


def test_a_small_rung_lends_its_turns_before_it_repeats() -> None:
    order = LadderCurriculum(rungs(10, 2), "k")
    order.report_held_out(0.0, 1, 64)
    assert levels(draw(order, 12)) == {"d0": 10, "d1": 2}


def test_a_row_without_difficulty_is_refused_by_id() -> None:
    with pytest.raises(DataError, match="'r0' has no difficulty"):
        LadderCurriculum(rows(1), "k")


def test_a_resumed_ladder_goes_on_as_if_it_had_not_stopped() -> None:
    straight = LadderCurriculum(rungs(7, 5, 3), "k")
    draw(straight, 4)
    straight.report_held_out(0.0, 1, 64)
    draw(straight, 5)
    resumed = LadderCurriculum(rungs(7, 5, 3), "k")
    resumed.load_state(json.loads(json.dumps(straight.state())))
    assert resumed.rung == 1.0
    for _ in range(4):
        assert draw(resumed, 5) == draw(straight, 5)


def test_a_ladder_of_other_rungs_is_refused() -> None:
    with pytest.raises(UserError, match="rungs 0, 1, this run's has 0"):
        LadderCurriculum(rungs(3), "k").load_state(LadderCurriculum(rungs(3, 3), "k").state())


@pytest.mark.parametrize("bad", [{"threshold": 0.0}, {"threshold": 1.1}, {"current_share": 0.0}])
def test_ladder_values_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(UserError):
        LadderCurriculum(rungs(3), "k", **bad)  # type: ignore[arg-type] # the point of the test
