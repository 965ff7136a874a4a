import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.prompts.curriculum import LadderCurriculum, PassRateCurriculum
from grpo_sdk.errors import DataError, UserError
from grpo_sdk.task.row import Row


def rows(n: int) -> list[Row]:
    return [Row(id=f"r{i}") for i in range(n)]


def rungs(*sizes: int) -> list[Row]:
    return [Row(id=f"d{level}-{i}", difficulty=float(level)) for level, n in enumerate(sizes) for i in range(n)]


def draw(order: PassRateCurriculum | LadderCurriculum, n: int) -> list[str]:
    taken: list[str] = []
    for _ in range(n):
        taken.append(order.next(set(taken)).id)
    return taken


def curriculum(n: int, results: dict[str, float] | None = None, **options: Any) -> PassRateCurriculum:
    """The last result of each row is its pass rate."""
    order = PassRateCurriculum(rows(n), "k", **{"ema_alpha": 1.0, **options})
    for row_id, value in (results or {}).items():
        order.update(row_id, value)
    return order


# --- pass rate


def test_the_average_moves_by_alpha_from_one_half_and_boundaries_belong_to_normal() -> None:
    order = curriculum(2, ema_alpha=0.05)
    order.update("r0", 1.0)
    order.update("r0", 0.0)
    # 0.5 -> 0.95·0.5 + 0.05 = 0.525 -> 0.95·0.525 = 0.49875
    assert order.pass_rate("r0") == pytest.approx(0.49875)
    assert order.pass_rate("r1") == 0.5
    order = curriculum(4, {"r0": 0.2, "r1": 0.8, "r2": 0.19, "r3": 0.81}, boundaries=(0.2, 0.8))
    assert order.sizes() == {"hard": 1, "normal": 2, "easy": 1}


@pytest.mark.parametrize(("weights", "shares"), [((1, 1, 1), (2, 2, 2)), ((2, 5, 1), (2, 5, 1))])
def test_buckets_get_exact_shares_of_every_batch(weights: tuple[int, ...], shares: tuple[int, ...]) -> None:
    order = curriculum(60, {f"r{i}": (0.0, 0.5, 1.0)[i // 20] for i in range(60)}, weights=weights)
    for _ in range(4):
        counts = Counter(int(row_id[1:]) // 20 for row_id in draw(order, sum(shares)))
        assert counts == dict(enumerate(shares))


def test_an_empty_bucket_passes_its_turn_to_normal_then_hard_then_easy() -> None:
    order = curriculum(30, {f"r{i}": 0.0 for i in range(10)})
    # A third of the turns is for hard rows; easy is empty, so its third goes to normal.
    assert Counter(int(row_id[1:]) < 10 for row_id in draw(order, 9)) == {True: 3, False: 6}
    order = curriculum(4, {"r0": 0.0, "r1": 1.0}, weights=(0, 0, 1))  # every turn is for easy ones
    first, second, third, fourth = draw(order, 4)
    assert (first, {second, third}, fourth) == ("r1", {"r2", "r3"}, "r0")


def test_each_bucket_goes_round_and_a_batch_larger_than_the_task_repeats_the_longest_ago() -> None:
    order = curriculum(12, {f"r{i}": (0.0, 0.5, 1.0)[i // 4] for i in range(12)})
    rounds = [draw(order, 12) for _ in range(3)]  # 4 of each bucket: every row of it once per round
    assert len(set(rounds[0])) == 12 and rounds[0] == rounds[1] == rounds[2]
    assert order.next(set(rounds[0])).id == rounds[0][0]


@given(
    st.integers(1, 10),
    st.lists(st.tuples(st.integers(1, 6), st.floats(0, 1)), max_size=12),
    st.tuples(*[st.integers(0, 3)] * 3).filter(any),
)
def test_a_resumed_curriculum_goes_on_as_if_it_had_not_stopped(
    n_rows: int, history: list[tuple[int, float]], weights: tuple[int, int, int]
) -> None:
    straight, resumed = (curriculum(n_rows, ema_alpha=0.5, weights=weights) for _ in range(2))
    for size, value in history:
        for row_id in draw(straight, size):
            straight.update(row_id, value)
    draw(resumed, 2)  # whatever it did before is overwritten
    resumed.load_state(json.loads(json.dumps(straight.state())))
    assert resumed.sizes() == straight.sizes()
    for size in (3, 5, 2):
        ours, theirs = draw(resumed, size), draw(straight, size)
        assert ours == theirs and len(set(ours)) == min(size, n_rows)
        for row_id in ours:
            resumed.update(row_id, 1.0)
            straight.update(row_id, 1.0)


def test_a_checkpoint_of_other_rows_is_refused() -> None:
    state = curriculum(9, {"r8": 1.0}).state()
    with pytest.raises(UserError, match=r"knows 1 rows that this run has not, e\.g\. 'r8'"):
        curriculum(4).load_state(state)
    with pytest.raises(UserError, match="rungs 0, 1, this run's has 0"):
        LadderCurriculum(rungs(3), "k").load_state(LadderCurriculum(rungs(3, 3), "k").state())


# --- ladder


def levels(drawn: list[str]) -> Counter[str]:
    return Counter(row_id.split("-")[0] for row_id in drawn)


def test_a_mastered_rung_unlocks_the_next_and_stays_in_the_draw() -> None:
    order = LadderCurriculum(rungs(50, 50, 50), "k", threshold=0.9)
    assert levels(draw(order, 20)) == {"d0": 20}
    assert not order.report_held_out(0.0, 0.89, 100)
    assert order.report_held_out(0.0, 0.9, 100)
    assert order.rung == 1.0
    assert levels(draw(order, 8)) == {"d1": 6, "d0": 2}  # three quarters
    assert order.report_held_out(1.0, 1, 64)
    assert levels(draw(order, 16)) == {"d2": 12, "d1": 2, "d0": 2}  # an eighth each
    small = LadderCurriculum(rungs(10, 2), "k")
    small.report_held_out(0.0, 1, 64)
    assert levels(draw(small, 12)) == {"d0": 10, "d1": 2}, "it lends its turns before it repeats"


def test_nothing_but_enough_held_out_rows_of_its_own_masters_a_rung() -> None:
    order = LadderCurriculum(rungs(5, 5, 5), "k")
    for _ in range(100):
        order.update("d0-0", 1.0)  # of training
    assert not order.report_held_out(1.0, 1, 64) and not order.report_held_out(0.0, 1, 31)
    assert order.rung == 0.0
    assert order.report_held_out(0.0, 1, 32)
    top = LadderCurriculum(rungs(5), "k")
    for share, is_mastered in ((0.95, True), (0.5, False)):
        assert not top.report_held_out(0.0, share, 64), "there is no next one"
        assert top.mastered is is_mastered


def test_too_few_held_out_rows_are_refused_ahead_with_the_arithmetic() -> None:
    order = LadderCurriculum(rungs(5, 5), "k")
    order.check_held_out(rungs(32, 32))
    with pytest.raises(UserError, match=r"rung 1 of the ladder has 31 held-out rows; it takes 32 .* 32 × 2 rungs"):
        order.check_held_out(rungs(32, 31))


def test_a_resumed_ladder_goes_on_as_if_it_had_not_stopped() -> None:
    straight, resumed = (LadderCurriculum(rungs(7, 5, 3), "k") for _ in range(2))
    draw(straight, 4)
    straight.report_held_out(0.0, 1, 64)
    draw(straight, 5)
    resumed.load_state(json.loads(json.dumps(straight.state())))
    assert resumed.rung == 1.0
    for _ in range(4):
        assert draw(resumed, 5) == draw(straight, 5)


def test_a_ladder_needs_difficulties() -> None:
    with pytest.raises(DataError, match="'r0' has no difficulty"):
        LadderCurriculum(rows(1), "k")
