import math

import pytest

from grpo_core import Completer


@pytest.fixture(scope="module")
def tiny() -> Completer:
    return Completer("tiny", max_completion_length=8, device="cpu")


def test_completions_are_in_the_order_of_the_prompts(tiny: Completer) -> None:
    prompts = ["1 + 1 =", "20 + 30 =", "1 + 1 ="]
    made = tiny(prompts)
    assert made[0] == made[2] and made == [tiny([prompt])[0] for prompt in prompts]


def test_sampling_depends_on_the_seed_and_the_call() -> None:
    first, again = (Completer("tiny", temperature=1.0, seed=3, max_completion_length=8, device="cpu") for _ in "ab")
    assert first(["48 + 37 ="] * 8) == again(["48 + 37 ="] * 8)
    assert len(set(first(["48 + 37 ="] * 32))) > 1


def test_log_probabilities_are_those_of_the_whole_completion(tiny: Completer) -> None:
    (likely,) = tiny(["20 + 30 ="])
    first, second = tiny.logprobs(["20 + 30 =", "20 + 30 ="], [likely.removesuffix("\n"), " zebra"])
    assert 0 > first > second
    # Of all one-digit answers, each with its end, no more than everything can be likely.
    digits = tiny.logprobs(["1 + 1 ="] * 10, [f" {digit}" for digit in range(10)])
    assert 0 < math.fsum(map(math.exp, digits)) <= 1
