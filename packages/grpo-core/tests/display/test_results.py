"""Tables of results."""

from grpo_core.display.results import WIDTH, as_text, evaluation_table


def test_a_long_spec_is_folded_and_its_numbers_are_not() -> None:
    spec = "chess.policy?path=./best_{split}.jsonl&engine=none&demo_order=best_first&seed=5&in_check=0.25"
    result = {
        "solved_rate": 0.11, "ci_low": 0.07, "ci_high": 0.16, "mean_reward": 0.38, "valid_rate": 1.0,
        "mean_length": 46.1, "truncated_frac": 0.0, "n": 200, "split": "test",
    }  # fmt: skip
    head, first, *more = as_text(evaluation_table("task", [(spec, result), ("math.arithmetic", result)])).splitlines()
    numbers = ["0.11", "[0.07,", "0.16]", "0.38", "1.00", "46.1", "0.00", "200", "test"]
    assert first.split()[1:] == numbers and more[-1].split() == ["math.arithmetic", *numbers]
    assert (first.split()[0] + "".join(more[:-1])).replace(" ", "") == spec
    assert head.split()[:2] == ["task", "solved"] and max(map(len, [head, first, *more])) <= WIDTH
