"""Real rows: every reference solution is right, and wrong for another gold, on the exact path alone."""

import json

import pytest
from shared_data import shared_data

from grpo_tasks_math.rewards import is_mentioned, reasoning
from grpo_tasks_math.verify import Verdict, verify


def solutions(name: str) -> list[str]:
    return [json.loads(line)["answer"] for line in shared_data(name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", ["gsm8k_train.jsonl", "gsm8k_test_500.jsonl"])
@pytest.mark.usefixtures("no_engine")
def test_reference_solutions(name: str) -> None:
    for solution in solutions(name):
        gold = solution.rpartition("####")[2].strip().replace(",", "")
        assert verify(gold, solution) is Verdict.CORRECT, solution
        assert verify(str(int(gold) + 1), solution) is Verdict.WRONG, solution
        assert verify(str(-int(gold)), solution) is (Verdict.CORRECT if int(gold) == 0 else Verdict.WRONG), solution


def test_answers_are_found_without_their_marker() -> None:
    # The sentence before #### states the answer, though often not as its last number: 489 of 500 were found.
    rows = [solution.rpartition("####") for solution in solutions("gsm8k_test_500.jsonl")]
    found = sum(verify(gold.strip(), text) is Verdict.CORRECT for text, _, gold in rows)
    assert found >= 480


def test_reference_solutions_mention_their_answers() -> None:
    # Those that write no equation hold more numbers than a mention may stand among.
    mentions = [is_mentioned(text.rpartition("####")[2].strip(), text) for text in solutions("gsm8k_train.jsonl")]
    assert sum(mentions) >= 0.98 * len(mentions)


def test_the_arithmetic_of_reference_solutions_is_true() -> None:
    qualities = [reasoning(solution) for solution in solutions("gsm8k_test_500.jsonl")]
    # Some write none, and some slip, as in `192*100=1920`.
    assert sum(quality == 1.0 for quality in qualities) >= 480
