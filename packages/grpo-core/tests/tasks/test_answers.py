import time

import pytest

from grpo_core.tasks.answers import answer_of


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        ("Paris", ["<think>x</think>\nParis"]),
        ("5", ["3</think>4</think>5", r"\boxed{\boxed{5}}"]),
        ("", ["<think>3", "<think>3</think>", "<think><answer>3</answer>", "<answer>3</answer></think>"]),
        ("4", ["<think>\\boxed{3}</think> so #### 4", "<Thinking>3</ thinking >4", "4 <think>is it 3"]),
        ("4", ["<think>x</think>4 <think>or 3", "<answer>4", "4</answer>"]),  # the prompt opened it
        ("4", ["<answer>3</answer><answer>4</answer>", "<answer><answer>4</answer></answer>", "<ANSWER>4</Answer>"]),
        ("4", ["<answer></answer><answer>4</answer>", "<answer>4</answer> that is it</answer>"]),
        ("4", [r"<answer>\boxed{4}</answer> \boxed{3}", "<answer>3 + 1\n#### 4</answer>"]),
        ("3", ["<answer>3</answer> or <answer>4"]),  # one that is closed comes first
        # The last balanced box.
        ("B", [r"\boxed{\mathbf{B}}"]),
        ("a{b}{c{d}}", [r"\boxed{a{b}{c{d}}} and {e}"]),
        ("1", [r"\boxed{1} then \boxed{2"]),
        (r"\{1, 2\}", [r"} \boxed{\{1, 2\}}"]),
        (r"\boxed{1", [r"\boxed{1"]),
    ],
)
def test_the_answer_is_marked_and_outside_the_thinking(answer: str, texts: list[str]) -> None:
    assert {text: answer_of(text) for text in texts} == dict.fromkeys(texts, answer)


HOSTILE = ["<answer>", "</answer>", "<think>", "</think>", "<think", "<answer>x</answer>", r"\boxed{", "```"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_marks_take_no_time(text: str) -> None:
    began = time.perf_counter()
    answer_of(text * 20_000)
    assert time.perf_counter() - began < 5
