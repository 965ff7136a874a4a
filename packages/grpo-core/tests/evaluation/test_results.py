from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import orjson
import pytest
from evaluation_runs import LOST, evaluation_of
from hypothesis import given
from hypothesis import strategies as st

from grpo_core.evaluation.results import Certainty, RowRates, TokenStatistics, pass_at_k
from grpo_sdk.errors import UserError
from grpo_sdk.task.score import Score


def score(solved: bool, *, valid: bool = True, bonus: float = 0.0) -> Score:
    return Score(float(solved) + bonus, {"exact": float(solved), "bonus": bonus}, valid, solved)


def test_one_completion_a_row_has_wilsons_interval() -> None:
    found = evaluation_of([score(True)] * 2 + [score(False)] * 3, n=1).summary()
    # Reference-systems 3.4: 2/5 is .12 to .77.
    assert (found["solved_rate"], found["n"], found["completions_per_row"]) == (0.4, 5, 1)
    assert (round(found["ci_low"], 2), round(found["ci_high"], 2)) == (0.12, 0.77)
    assert not [name for name in found if name.startswith("pass@")], "pass@1 of one completion is the solved rate"
    assert not {"think_rate", "think_length", "surprisal", "by_difficulty"} & found.keys()
    nothing = evaluation_of([LOST], n=1, lengths=[None]).summary()
    assert (nothing["n"], nothing["ci_low"], nothing["ci_high"]) == (0, 0.0, 1.0)
    assert [nothing[name] for name in ("solved_rate", "mean_reward", "valid_rate", "mean_length")] == [None] * 4


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(combinations(range(n), k))
    share = Fraction(sum(any(i < c for i in draw) for draw in draws), len(draws))
    assert pass_at_k(n, c, k) == pytest.approx(float(share), abs=1e-14)
    assert pass_at_k(10**9, 1, 3) == pytest.approx(3e-9, rel=1e-12), "small chances keep their digits"


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5), (0, 0, 1)])
def test_pass_at_k_of_what_was_not_drawn_is_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(UserError, match="needs 0 <= c <= n and 1 <= k <= n"):
        pass_at_k(n, c, k)


def test_pass_at_k_by_hand() -> None:
    # Rows with c = 1, 4 and 0 of n = 4. pass@2 = 1 - C(3,2)/C(4,2) = 1 - 3/6 = 0.5; 1; 0. Mean 0.5.
    # pass@1 = 1/4, 1, 0: mean 5/12, which is the solved rate. pass@4 = 1, 1, 0: mean 2/3.
    scores = [score(index == 0) for index in range(4)] + [score(True)] * 4 + [score(False)] * 4
    found = evaluation_of(scores, n=4).summary()
    assert found["pass@2"] == pytest.approx(0.5)
    assert found["pass@1"] == found["solved_rate"] == pytest.approx(5 / 12)
    assert found["pass@4"] == pytest.approx(2 / 3)
    assert [name for name in found if name.startswith("pass@") and "_" not in name] == ["pass@1", "pass@2", "pass@4"]
    assert 0 <= found["pass@2_ci_low"] < found["pass@2"] < found["pass@2_ci_high"] <= 1
    assert evaluation_of([score(True)] * 6, n=6).ks() == [1, 2, 4]


def test_what_was_not_scored_leaves_every_rate_and_pass_at_k_says_of_how_many_rows_it_is() -> None:
    # Row 0: one of the two scored is solved, row 1: none was scored.
    found = evaluation_of([score(True), score(False), LOST, LOST, LOST, LOST], n=3).summary()
    assert (found["n"], found["abstained"], found["solved_rate"], found["mean_reward"]) == (1, 4, 0.5, 0.5)
    assert (found["pass@1"], found["pass@2"], found["pass@2_n"]) == (0.5, 1.0, 1), "whichever two are drawn"
    # Row 0 is solved once of 4. Row 1 never, and one of its completions was not scored: only pass@4 lacks it.
    results = evaluation_of([score(True)] + [score(False)] * 6 + [LOST], n=4)
    found = results.summary()
    assert [found[name] for name in ("n", "pass@2_n", "pass@4_n", "pass@2", "pass@4")] == [2, 2, 1, 0.25, 1.0]
    (warned,) = results.unscored("t")[1:]
    assert warned.startswith("t: pass@4 is of 1 rows and the solved rate of 2")
    assert len(evaluation_of([score(True), LOST], n=1).unscored("t")) == 1, "there is no pass@k"


def test_rows_are_resampled_not_completions() -> None:
    # Two rows of eight equal completions know as little as two rows: the interval of 16 independent ones is narrower.
    clustered = evaluation_of([score(True)] * 8 + [score(False)] * 8, n=8).summary()
    independent = evaluation_of([score(True)] * 8 + [score(False)] * 8, n=1).summary()
    assert clustered["solved_rate"] == independent["solved_rate"] == 0.5
    assert clustered["ci_high"] - clustered["ci_low"] > 1.5 * (independent["ci_high"] - independent["ci_low"])


def test_parts_lengths_and_truncation() -> None:
    scores = [score(True, bonus=0.5), score(False, bonus=0.1, valid=False)]
    found = evaluation_of(scores, n=1, lengths=[3, 5], truncated=[False, True]).summary()
    assert found["parts"]["bonus"]["mean"] == pytest.approx(0.3)
    assert found["parts"]["exact"]["mean"] == 0.5
    assert found["parts"]["bonus"]["ci_low"] <= 0.3 <= found["parts"]["bonus"]["ci_high"]
    assert found["mean_reward"] == pytest.approx((1.5 + 0.1) / 2)
    assert (found["mean_length"], found["std_length"], found["min_length"], found["max_length"]) == (4, 1, 3, 5)
    assert (found["truncated_frac"], found["valid_rate"]) == (0.5, 0.5)


def test_thinking_is_reported_where_a_completion_thinks() -> None:
    texts = ["<think>a b c</think> 4", "d</think> 4", "4"]
    plain = replace(evaluation_of([score(True)] * 3, n=1), texts=texts)
    found = replace(plain, think_lengths=[3, 1, None]).summary()
    assert found["think_rate"] == pytest.approx(2 / 3)
    assert found["think_rate_ci_low"] < 2 / 3 < found["think_rate_ci_high"]
    assert found["think_length"] == 2.0, "of those that think"
    assert plain.summary()["think_length"] is None, "an endpoint's tokens are not known"


def test_surprisal_is_over_completions_with_its_interval() -> None:
    def certain(mean: float) -> Certainty:
        return Certainty(TokenStatistics(mean, 0.1, mean + 1, mean), TokenStatistics(2 * mean, 0.2, 3.0, mean))

    found = evaluation_of([score(True)] * 4, n=2, certainty=[certain(1), certain(3), certain(2), certain(3)]).summary()
    assert (found["surprisal"]["mean"], found["surprisal"]["max"]) == (2.25, 4)
    assert found["surprisal"]["std"] == pytest.approx(0.1) and found["surprisal"]["p95"] == 2.25
    entropy = found["entropy"]
    assert 0 < entropy["ci_low"] < entropy["mean"] == 4.5 < entropy["ci_high"], "two rows say little"


def test_difficulties_are_levels_or_quartiles() -> None:
    levels = evaluation_of([score(True)] * 3 + [score(False)], n=1, difficulties=[1, 1, 2, 2]).summary()[
        "by_difficulty"
    ]
    assert [(name, each["solved_rate"], each["n"]) for name, each in levels.items()] == [("1", 1, 2), ("2", 0.5, 2)]
    assert "ci_low" in levels["1"]
    many = evaluation_of([score(index < 10) for index in range(40)], n=1, difficulties=range(40))
    found = {name: (each["solved_rate"], each["n"]) for name, each in many.summary()["by_difficulty"].items()}
    assert found == {"0 to 9": (1, 10), "10 to 19": (0, 10), "20 to 29": (0, 10), "30 to 39": (0, 10)}
    assert "by_difficulty" not in evaluation_of([score(True)] * 2, n=1, difficulties=[1, 1]).summary()
    alike = evaluation_of([score(True)] * 3, n=1, difficulties=[1_234_567, 1_234_568, 1])
    assert alike.levels() == {"1": [2], "1234567.0": [0], "1234568.0": [1]}, "they differ in the seventh digit"


def test_paired_delta_by_hand() -> None:
    # Shares 1, 0.5, 0 against 0.5, 0.5, 0: differences 0.5, 0, 0.
    after = evaluation_of([score(True), score(True), score(True), score(False), score(False), score(False)], n=2)
    before = evaluation_of([score(True), score(False), score(True), score(False), score(False), score(False)], n=2)
    found = after.paired_delta(before)
    assert found["delta"] == pytest.approx(1 / 6)
    assert found["delta_n"] == 3
    assert found["reward_delta"] == pytest.approx(1 / 6)
    same = before.paired_delta(before)
    assert (same["delta"], same["reward_delta"]) == (0, 0)
    assert same["delta_ci_low"] < -0.5 and same["delta_ci_high"] > 0.5, "three rows: never [0, 0]"
    assert same["reward_delta_ci_low"] is same["reward_delta_ci_high"] is None, "a reward has no scale to go by"
    stated = replace(after, reward_bounds=(0.0, 1.0))
    few = RowRates.from_json(orjson.loads(orjson.dumps(stated.rates().as_json()))).paired_delta(before.rates())
    assert -1 < few["reward_delta_ci_low"] < 1 / 6 < few["reward_delta_ci_high"] < 1, "declared bounds"
    assert found["reward_delta_ci_low"] < few["reward_delta_ci_low"]


def test_pairs_go_by_row_and_leave_out_what_was_not_scored() -> None:
    base = RowRates(("a", "b", "c"), (0.0, None, 1.0), (0.0, None, 1.0))
    now = RowRates(("c", "a", "d"), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    found = now.paired_delta(base)
    assert (found["delta"], found["delta_n"]) == (0.5, 2), "a: +1, c: 0; b and d have no partner"
    nobody = now.paired_delta(RowRates(("x",), (1.0,), (1.0,)))
    assert (nobody["delta"], nobody["delta_n"]) == (None, 0)


def test_throughput_counts_every_completion() -> None:
    timing = evaluation_of([score(True)] * 6, n=3, lengths=[2, 2, 2, 2, 2, None], seconds=2.0).timing()
    assert (timing["samples_per_s"], timing["tokens_per_s"]) == (3.0, 5.0)
