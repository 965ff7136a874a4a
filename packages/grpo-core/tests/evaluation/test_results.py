from __future__ import annotations

import math
from dataclasses import replace

import pytest

from grpo_core.evaluation.answers import unscored_warnings
from grpo_core.evaluation.intervals import rate_over_rows
from grpo_core.evaluation.results import Evaluation, RowRates
from grpo_core.evaluation.surprisal import Certainty, TokenStatistics
from grpo_core.task.row import Row
from grpo_core.task.score import Score


def score(solved: bool, *, valid: bool = True, bonus: float = 0.0) -> Score:
    return Score(float(solved) + bonus, {"exact": float(solved), "bonus": bonus}, valid, solved)


LOST = Score(None, why="the worker died", fault="infrastructure")


def evaluation(scores: list[Score], n: int, **options: object) -> Evaluation:
    count = len(scores) // n
    return Evaluation(
        **{
            "rows": [Row(id=str(index)) for index in range(count)],
            "texts": [""] * len(scores),
            "lengths": [4] * len(scores),
            "truncated": [False] * len(scores),
            "scores": scores,
            "temperature": 0.7,
            "split": "test",
            "n": n,
            **options,
        }
    )


def test_one_completion_a_row_has_wilsons_interval() -> None:
    found = evaluation([score(True)] * 2 + [score(False)] * 3, n=1).summary()
    # Reference-systems 3.4: 2/5 is .12 to .77.
    assert (found["solved_rate"], found["n"], found["completions_per_row"]) == (0.4, 5, 1)
    assert (round(found["ci_low"], 2), round(found["ci_high"], 2)) == (0.12, 0.77)
    assert not [name for name in found if name.startswith("pass@")], "pass@1 of one completion is the solved rate"


def test_pass_at_k_by_hand() -> None:
    # Rows with c = 1, 4 and 0 of n = 4. pass@2 = 1 - C(3,2)/C(4,2) = 1 - 3/6 = 0.5; 1; 0. Mean 0.5.
    # pass@1 = 1/4, 1, 0: mean 5/12, which is the solved rate. pass@4 = 1, 1, 0: mean 2/3.
    scores = [score(index == 0) for index in range(4)] + [score(True)] * 4 + [score(False)] * 4
    found = evaluation(scores, n=4).summary()
    assert found["pass@2"] == pytest.approx(0.5)
    assert found["pass@1"] == found["solved_rate"] == pytest.approx(5 / 12)
    assert found["pass@4"] == pytest.approx(2 / 3)
    assert [name for name in found if name.startswith("pass@") and "_" not in name] == ["pass@1", "pass@2", "pass@4"]
    for name in ("pass@1", "pass@2", "pass@4"):
        assert 0 <= found[f"{name}_ci_low"] <= found[name] <= found[f"{name}_ci_high"] <= 1


def test_ks_are_powers_of_two_up_to_n() -> None:
    assert evaluation([score(True)] * 6, n=6).ks() == [1, 2, 4]
    assert evaluation([score(True)] * 8, n=8).ks() == [1, 2, 4, 8]


def test_rows_are_resampled_not_completions() -> None:
    # Two rows of eight equal completions know as little as two rows: the interval of 16 independent ones is narrower.
    clustered = evaluation([score(True)] * 8 + [score(False)] * 8, n=8).summary()
    independent = evaluation([score(True)] * 8 + [score(False)] * 8, n=1).summary()
    assert clustered["solved_rate"] == independent["solved_rate"] == 0.5
    assert clustered["ci_high"] - clustered["ci_low"] > 1.5 * (independent["ci_high"] - independent["ci_low"])


def test_rows_that_are_all_solved_always_do_not_claim_certainty() -> None:
    found = evaluation([score(True)] * 32, n=8).summary()
    assert found["solved_rate"] == found["ci_high"] == 1
    assert found["ci_low"] < 0.6, "four rows: Wilson's lower end is 0.51"


def test_an_abstention_leaves_every_rate() -> None:
    # Row 0: one of the two scored is solved, row 1: none was scored.
    found = evaluation([score(True), score(False), LOST, LOST, LOST, LOST], n=3).summary()
    assert (found["n"], found["abstained"], found["solved_rate"]) == (1, 4, 0.5)
    assert found["mean_reward"] == 0.5
    assert found["pass@1"] == 0.5
    assert found["pass@2"] == 1.0, "one of the two scored ones is right, whichever two are drawn"
    assert (found["pass@1_n"], found["pass@2_n"]) == (1, 1)


def test_pass_at_k_says_how_many_rows_it_is_of() -> None:
    # Row 0 is solved once of 4. Row 1 never, and one of its completions was not scored: only pass@4 lacks it.
    results = evaluation([score(True)] + [score(False)] * 6 + [LOST], n=4)
    found = results.summary()
    assert (found["n"], found["pass@2_n"], found["pass@4_n"]) == (2, 2, 1)
    assert (found["pass@2"], found["pass@4"]) == (0.25, 1.0)
    assert unscored_warnings("t", results)[1:] == [
        "t: pass@4 is of 1 rows and the solved rate of 2: in the others, fewer than 4 completions were scored, so the "
        "rates cannot be compared"
    ]
    assert len(unscored_warnings("t", evaluation([score(True), LOST], n=1))) == 1, "there is no pass@k"


def test_nothing_scored_is_null_and_not_zero() -> None:
    found = evaluation([LOST], n=1).summary()
    assert found["n"] == 0
    assert found["solved_rate"] is found["mean_reward"] is found["valid_rate"] is None
    assert (found["ci_low"], found["ci_high"]) == (0.0, 1.0)


def test_parts_lengths_and_truncation() -> None:
    scores = [score(True, bonus=0.5), score(False, bonus=0.1, valid=False)]
    found = evaluation(scores, n=1, lengths=[3, 5], truncated=[False, True]).summary()
    assert found["parts"]["bonus"]["mean"] == pytest.approx(0.3)
    assert found["parts"]["exact"]["mean"] == 0.5
    assert found["parts"]["bonus"]["ci_low"] <= 0.3 <= found["parts"]["bonus"]["ci_high"]
    assert found["mean_reward"] == pytest.approx((1.5 + 0.1) / 2)
    assert (found["mean_length"], found["std_length"], found["min_length"], found["max_length"]) == (4, 1, 3, 5)
    assert (found["truncated_frac"], found["valid_rate"]) == (0.5, 0.5)


def test_thinking_is_reported_where_a_completion_thinks() -> None:
    plain = evaluation([score(True)] * 3, n=1)
    assert not {"think_rate", "think_length"} & plain.summary().keys()
    texts = ["<think>a b c</think> 4", "d</think> 4", "4"]
    found = replace(plain, texts=texts, think_lengths=[3, 1, None]).summary()
    assert found["think_rate"] == pytest.approx(2 / 3)
    assert found["think_rate_ci_low"] < 2 / 3 < found["think_rate_ci_high"]
    assert found["think_length"] == 2.0, "of those that think"
    assert replace(plain, texts=texts).summary()["think_length"] is None, "an endpoint's tokens are not known"


def test_an_endpoint_that_counts_no_tokens_has_no_length() -> None:
    found = evaluation([score(True)] * 2, n=1, lengths=[None, None]).summary()
    assert found["mean_length"] is found["max_length"] is None


def test_surprisal_is_over_completions_with_its_interval() -> None:
    def certain(mean: float) -> Certainty:
        return Certainty(TokenStatistics(mean, 0.1, mean + 1, mean), TokenStatistics(2 * mean, 0.2, 3.0, mean))

    found = evaluation([score(True)] * 4, n=2, certainty=[certain(1), certain(3), certain(2), certain(2)]).summary()
    assert found["surprisal"]["mean"] == 2
    assert found["surprisal"]["max"] == 4
    assert found["entropy"]["mean"] == 4
    assert found["entropy"]["ci_low"] is None, "both rows have the same mean: nothing says how far others are from it"
    other = [certain(1), certain(3), certain(2), certain(3)]
    found = evaluation([score(True)] * 4, n=2, certainty=other).summary()
    entropy = found["entropy"]
    assert entropy["ci_low"] == 0 < entropy["mean"] == 4.5 < entropy["ci_high"], "two rows say little"
    assert "surprisal" not in evaluation([score(True)], n=1).summary()


def test_by_difficulty() -> None:
    rows = [Row(id=str(index), difficulty=1.0 + index // 2) for index in range(4)]
    found = evaluation([score(True), score(True), score(True), score(False)], n=1, rows=rows).summary()
    assert list(found["by_difficulty"]) == ["1", "2"]
    assert found["by_difficulty"]["1"]["solved_rate"] == 1
    assert found["by_difficulty"]["2"]["solved_rate"] == 0.5
    assert found["by_difficulty"]["2"]["n"] == 2
    assert "ci_low" in found["by_difficulty"]["1"]


def test_many_difficulties_are_quartiles() -> None:
    rows = [Row(id=str(index), difficulty=float(index)) for index in range(40)]
    found = evaluation([score(index < 10) for index in range(40)], n=1, rows=rows).summary()
    assert list(found["by_difficulty"]) == ["0 to 9", "10 to 19", "20 to 29", "30 to 39"]
    assert found["by_difficulty"]["0 to 9"]["solved_rate"] == 1
    assert found["by_difficulty"]["10 to 19"]["solved_rate"] == 0
    assert sum(level["n"] for level in found["by_difficulty"].values()) == 40


def test_one_difficulty_is_no_breakdown() -> None:
    rows = [Row(id=str(index), difficulty=1.0) for index in range(2)]
    assert "by_difficulty" not in evaluation([score(True)] * 2, n=1, rows=rows).summary()


def test_paired_delta_by_hand() -> None:
    # Shares 1, 0.5, 0 against 0.5, 0.5, 0: differences 0.5, 0, 0.
    after = evaluation([score(True), score(True), score(True), score(False), score(False), score(False)], n=2)
    before = evaluation([score(True), score(False), score(True), score(False), score(False), score(False)], n=2)
    found = after.paired_delta(before)
    assert found["delta"] == pytest.approx(1 / 6)
    assert found["delta_n"] == 3
    assert found["delta_ci_low"] <= found["delta"] <= found["delta_ci_high"]
    assert found["reward_delta"] == pytest.approx(1 / 6)
    same = before.paired_delta(before)
    assert (same["delta"], same["reward_delta"]) == (0, 0)
    assert same["delta_ci_low"] < -0.5 and same["delta_ci_high"] > 0.5, "three rows: never [0, 0]"
    assert same["reward_delta_ci_low"] is same["reward_delta_ci_high"] is None, "a reward has no scale to go by"


def test_pairs_go_by_row_and_leave_out_what_was_not_scored() -> None:
    base = RowRates(("a", "b", "c"), (0.0, None, 1.0), (0.0, None, 1.0))
    now = RowRates(("c", "a", "d"), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    found = now.paired_delta(base)
    assert (found["delta"], found["delta_n"]) == (0.5, 2), "a: +1, c: 0; b and d have no partner"
    nobody = now.paired_delta(RowRates(("x",), (1.0,), (1.0,)))
    assert nobody["delta"] is None
    assert nobody["delta_n"] == 0


def test_rates_survive_json() -> None:
    rates = evaluation([score(True), LOST], n=1).rates()
    assert rates == RowRates(("0", "1"), (1.0, None), (1.0, None))
    assert RowRates.from_json(rates.as_json()) == rates


def test_throughput_counts_every_completion() -> None:
    timing = evaluation([score(True)] * 6, n=3, lengths=[2, 2, 2, 2, 2, None], seconds=2.0).timing()
    assert (timing["samples_per_s"], timing["tokens_per_s"]) == (3.0, 5.0)


def test_equal_completions_give_equal_summaries() -> None:
    scores = [score(index % 3 == 0, bonus=index / 10) for index in range(12)]
    assert evaluation(scores, n=4, seconds=1.0).summary() == evaluation(scores, n=4, seconds=2.0).summary()


def test_difficulties_that_differ_in_the_seventh_digit_are_levels_of_their_own() -> None:
    rows = [Row(id=str(number), difficulty=number) for number in (1_234_567.0, 1_234_568.0, 1.0)]
    assert evaluation([score(True)] * 3, n=1, rows=rows).levels() == {"1": [2], "1234567.0": [0], "1234568.0": [1]}


def test_shares_that_are_no_counts_are_bootstrapped() -> None:
    interval = rate_over_rows([0.25, 0.75, math.nan] * 10)
    assert (interval.value, interval.n) == (0.5, 20)
    assert 0.35 < interval.low < 0.45 and interval.low == pytest.approx(1 - interval.high, abs=0.03)
