import json
import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_sdk.errors import DataError, UserError
from grpo_sdk.task.bound import BoundTask
from grpo_sdk.task.mixture import Draw, Mixture, ShuffledEpochs, shuffled, task_labels
from grpo_sdk.task.quotas import Quotas
from grpo_sdk.task.row import Row, TaskConfig
from grpo_sdk.task.spec import TaskSpec
from grpo_sdk.task.task import Task


def rows(n: int) -> list[Row]:
    return [Row(id=f"r{i}") for i in range(n)]


def task(name: str, /, **options: str) -> BoundTask:
    made = Task(name, lambda: rows(3), lambda row: row.id, lambda text: text, (lambda text: 1.0,), row=Row)
    return BoundTask(made, f"demo.{name}", TaskConfig(), TaskSpec(f"demo.{name}", 1, options))


def mixture(sizes: dict[str, int], weights: dict[str, float] | None = None, seed: int = 0) -> Mixture:
    weights = weights or dict.fromkeys(sizes, 1.0)
    return Mixture(
        [(task(name), weights[name]) for name in sizes], {f"demo.{name}": rows(n) for name, n in sizes.items()}, seed
    )


def keys(draws: Iterable[Draw]) -> list[tuple[str, int]]:
    return [(draw.prompt_id, draw.position) for draw in draws]


# --- quotas


def test_kinds_follow_the_cumulative_largest_remainder() -> None:
    # 2:1 in batches of 8: cumulative targets 5.33/2.67, 10.67/5.33, 16/8 round to 5/3, 11/5, 16/8.
    quotas = Quotas([2, 1])
    totals = []
    for _ in range(3):
        quotas.take(8)
        totals.append(tuple(quotas.counts))
    assert totals == [(5, 3), (11, 5), (16, 8)]
    assert Quotas([1, 0, 1]).take(4) == [0, 2, 0, 2]  # ties go by order, and a weight of 0 gets nothing
    assert Quotas([0.1, 0.3]).shares == (Fraction(1, 4), Fraction(3, 4))  # in binary, 3 × 0.1 is not 0.3


@pytest.mark.parametrize("weights", [[0, 0], [-1, 2], [math.nan, 1], [math.inf, 1], []])
def test_impossible_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(UserError, match="weights"):
        Quotas(weights)


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=8).filter(any),
    st.lists(st.integers(1, 9), min_size=1, max_size=30),
)
def test_no_count_is_ever_off_by_a_whole_turn(weights: list[int], batches: list[int]) -> None:
    quotas, batched = Quotas(weights), Quotas(weights)
    for turn, _ in enumerate(range(sum(batches)), start=1):
        quotas.take(1)
        for count, weight in zip(quotas.counts, weights, strict=True):
            ideal = turn * weight / sum(weights)
            assert abs(count - ideal) < 1
            assert count == ideal or not all((turn * other) % sum(weights) == 0 for other in weights)
    for size in batches:
        batched.take(size)
    assert batched.counts == quotas.counts  # the split into batches makes no difference


# --- row orders


def test_each_epoch_holds_every_row_once_in_another_order_that_its_key_alone_decides() -> None:
    order = ShuffledEpochs(rows(20), "0/demo.a")
    epochs = [[order.next(()).id for _ in range(20)] for _ in range(3)]
    assert all(sorted(epoch) == sorted(row.id for row in rows(20)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert shuffled(["a", "b", "c", "d", "e"], "k") == shuffled(["e", "c", "a", "b", "d"], "k")
    assert shuffled("abcdefgh", "7/demo.a/3") == list("hbfecdga")
    assert keys(mixture({"a": 30}, seed=1).draw(10)) != keys(mixture({"a": 30}, seed=2).draw(10))


@given(st.integers(1, 12), st.lists(st.integers(1, 12), min_size=1, max_size=25), st.integers(0, 3))
def test_batches_repeat_nothing_and_epochs_lose_nothing(n_rows: int, batches: list[int], seed: int) -> None:
    drawn: Counter[str] = Counter()
    subject = mixture({"a": n_rows}, seed=seed)
    for size in batches:
        batch = subject.draw(size)
        ids = [draw.row.id for draw in batch]
        fullest = -(-size // n_rows)  # every row as often as any other, up to one
        assert max(Counter(ids).values()) <= fullest
        assert len({draw.prompt_id for draw in batch}) == size  # repeats still have sampling keys of their own
        drawn.update(ids)
    # A row put off at an epoch's end comes in the next batch, so counts differ by at most 2 at any time.
    counts = [drawn[row.id] for row in rows(n_rows)]
    assert max(counts) - min(counts) <= 2


# --- mixtures


def test_a_batch_holds_each_task_by_its_quota_and_positions_number_the_prompts_of_the_run() -> None:
    subject = mixture({"a": 50, "b": 50}, {"a": 2.0, "b": 1.0})
    batches = [subject.draw(6) for _ in range(5)]
    assert [Counter(draw.label for draw in batch) for batch in batches] == [{"demo.a": 4, "demo.b": 2}] * 5
    assert [draw.position for batch in batches for draw in batch] == list(range(30))
    assert (subject.drawn, subject.prompts_per_epoch) == (30, 100)


def test_a_task_is_shuffled_the_same_alone_and_mixed() -> None:
    alone = [draw.row.id for draw in mixture({"a": 30}).draw(10)]
    mixed = [draw.row.id for draw in mixture({"b": 7, "a": 30}).draw(20) if draw.label == "demo.a"]
    assert mixed == alone


def test_replacing_keeps_the_task_and_repeats_nothing() -> None:
    subject = mixture({"a": 20, "b": 20})
    batch = subject.draw(6)
    rejected = batch[:3]
    again = subject.replace(rejected)
    assert [draw.label for draw in again] == [draw.label for draw in rejected]
    assert len({draw.prompt_id for draw in [*batch, *again]}) == 9
    assert Counter(draw.label for draw in subject.draw(6)) == {"demo.a": 3, "demo.b": 3}  # quotas did not move


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 6), st.integers(1, 8))
def test_a_resumed_mixture_goes_on_as_if_it_had_not_stopped(size_a: int, size_b: int, before: int, batch: int) -> None:
    def fresh() -> Mixture:
        return mixture({"a": size_a, "b": size_b}, {"a": 1.5, "b": 1.0}, seed=3)

    straight = fresh()
    for _ in range(before):
        straight.draw(batch)
    saved = json.dumps(straight.state())
    resumed = fresh()
    resumed.draw(5)  # whatever it did before is overwritten
    resumed.load_state(json.loads(saved))
    for _ in range(4):
        assert keys(resumed.draw(batch)) == keys(straight.draw(batch))


def test_a_checkpoint_of_another_mixture_is_refused() -> None:
    subject, longer = mixture({"a": 4, "b": 4}), mixture({"a": 9, "b": 4})
    longer.draw(16)
    for state, message in (
        (mixture({"a": 4, "b": 4}, {"a": 2, "b": 1}).state(), r"demo\.a:2, demo\.b:1, this run's is demo\.a:1"),
        (subject.state() | {"version": 99}, "version 99"),
        (longer.state(), "other rows than the 4"),
    ):
        with pytest.raises(UserError, match=message):
            subject.load_state(state)


def test_tasks_that_share_a_name_are_told_apart_by_their_specs_and_one_without_rows_is_refused() -> None:
    assert task_labels([task("a", template="r1"), task("a"), task("b")]) == ("demo.a?template=r1", "demo.a", "demo.b")
    assert task_labels([task("a", name="x"), task("a", name="y"), task("a")]) == ("x", "y", "demo.a")
    assert task_labels([task("a", name="x"), task("b", name="x")]) == ("demo.a?name=x", "demo.b?name=x")
    with pytest.raises(DataError, match=r"demo\.a"):
        Mixture([(task("a"), 1)], {"demo.a": []}, 0)


def test_results_reach_the_order_of_their_task() -> None:
    heard = []

    class Listening(ShuffledEpochs):
        def update(self, row_id: str, value: float) -> None:
            heard.append((row_id, value))

    weighted, known = [(task("a"), 1.0), (task("b"), 1.0)], {"demo.a": rows(3), "demo.b": rows(3)}
    subject = Mixture(weighted, known, 0, orders={"demo.b": Listening(rows(3), "k")})
    for draw in subject.draw(4):
        subject.update(draw, 0.25)
    assert [value for _, value in heard] == [0.25, 0.25]
