"""Where a completion states its answer: behind its thinking, in marks of one kind."""

from __future__ import annotations

import time

import pytest

from grpo_sdk import Invalid
from grpo_sdk.task.marks import mark_of, marked_answers, outside_thinking
from grpo_sdk.tasks.answers import answer_of


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        ("Paris", ["<think>x</think>\nParis", "The answer is Paris.", "Answer: Paris\nIt is in France."]),
        ("5", ["3</think>4</think>5", r"\boxed{\boxed{5}}", "**Answer: 5", "Final answer:\n\n```\n5\n```"]),
        ("", ["<think>3", "<think>3</think>", "<think><answer>3</answer></think>", "<answer></answer>"]),
        ("4", ["<think>\\boxed{3}</think> so #### 4", "<Thinking>3</ thinking >4", "4 <think>is it 3"]),
        ("4", ["<think>x</think>4 <think>or 3", "<answer>4", "4</answer>"]),  # the prompt opened it
        ("4", ["<answer>3</answer><answer>4</answer>", "<answer><answer>4</answer></answer>", "<ANSWER>4</Answer>"]),
        ("4", ["<answer></answer><answer>4</answer>", "<answer>4</answer> that is it</answer>"]),
        # A mark inside a mark is followed.
        ("4", [r"<answer>\boxed{4}</answer>", "<answer>3 + 1\n#### 4</answer>", r"#### \boxed{4}", "#### Answer: 4"]),
        ("4", [r"\boxed{\text{Answer: } 4}", "<answer>The answer is 4.</answer>"]),
        ("3", ["<answer>3</answer> or <answer>4"]),  # one that is closed comes first
        # The last balanced box.
        ("B", [r"\boxed{\mathbf{B}}", r"\boxed{A} no, \boxed{B}"]),
        ("a{b}{c{d}}", [r"\boxed{a{b}{c{d}}} and {e}"]),
        ("1", [r"\boxed{1} then \boxed{2"]),
        (r"\{1, 2\}", [r"} \boxed{\{1, 2\}}"]),
        (r"\boxed{1", [r"\boxed{1"]),
        # What is joined is one list.
        ("3, 4", [r"\boxed{3}, \boxed{4}", r"$\boxed{3}$ or $\boxed{4}$", "<answer>3</answer> or <answer>4</answer>"]),
        ("3, 4", ["The answer is 3 or the answer is 4.", r"\boxed{3} \text{ and } \boxed{4}"]),
        ("x = 3, y = 4", [r"$x = \boxed{3}$ and $y=\boxed{4}$"]),
        ("It cannot be 5", ["It cannot be 5"]),
        ("5", ["The answer is 5. It is not 6."]),
        ("Paris", ["Answer: **Paris**", "**Answer: Paris**", "**Answer:** Paris", "The answer is **Paris.** It is"]),
        ("5 or 6", [r"<answer>\boxed{5} or 6</answer>", "<answer type='x'>5 or \\boxed{6}</answer>"]),
    ],
)
def test_the_answer_is_marked_and_outside_the_thinking(answer: str, texts: list[str]) -> None:
    assert {text: answer_of(text) for text in texts} == dict.fromkeys(texts, answer)


@pytest.mark.parametrize(
    "text",
    [
        "[THINK]3[/THINK]4", "<|channel>thought\n3<channel|>4<turn|>", "<thought>3</thought>4<end_of_turn>",
        "<|channel|>analysis<|message|>3<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>",
        "<|START_THINKING|>3<|END_THINKING|>4", "◁think▷3◁/think▷4", "<seed:think>3</seed:think>4",
        "4</s>", "4<|im_end|>\n<|im_start|>user\n5", "4<|endoftext|>5", "4<|eot_id|>", "4<|eot|>", "4[e~[", "4<eos>",
        "<|channel|>analysis<|message|>3<|end|><|channel|>final <|constrain|>json<|message|>4<|return|>",
        "<|START_THINKING|>3<|END_THINKING|><|START_RESPONSE|>4<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", "<bos>4<eos>",
        "<think>3</think><|begin_of_box|>4<|end_of_box|>", "4<pad><pad>",
        "<|im_start|>assistant\n4", "<|header_start|>assistant<|header_end|>\n\n4<|eot|>",
    ],
)  # fmt: skip
def test_thinking_and_turns_of_all_formats_end_before_the_answer_is_read(text: str) -> None:
    assert outside_thinking(text).strip() == "4"


@pytest.mark.parametrize("text", ["[THINK]4", "<|channel>thought\n4", "<|channel|>analysis<|message|>4", "◁think▷4"])
def test_thinking_that_does_not_end_is_no_answer(text: str) -> None:
    assert outside_thinking(text) == ""


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (r"\boxed{3} #### 4", ["box says '3'", "#### says '4'"]),
        (r"<answer>3</answer> \boxed{4}", ["tag says '3'", "box says '4'"]),
    ],
)
def test_marks_of_several_kinds_have_to_agree(text: str, kinds: list[str]) -> None:
    with pytest.raises(Invalid, match="differ") as caught:
        answer_of(text)
    assert all(kind in str(caught.value) for kind in kinds)
    assert answer_of(text.replace("3", "4")) == "4"


def test_a_kind_that_is_asked_for_is_the_only_one() -> None:
    text = "The answer is 2. \\boxed{3} <answer>4</answer>\n#### 5"
    assert [answer_of(text, kind) for kind in ("answer:", "box", "tag", "####")] == ["2", "3", "4", "5"]
    with pytest.raises(Invalid, match="box"):
        answer_of("#### 5", "box")


def test_a_template_names_its_mark() -> None:
    marks = {"in <answer> tags": "tag", r"inside \boxed{}": "box", "end with #### N": "####", '"Answer: N"': "answer:"}
    assert {template: mark_of(template) for template in marks} == marks
    assert mark_of("Question: q\nAnswer:") == "", "the completion follows it"


@pytest.mark.parametrize(
    "text",
    [
        "<answer>", "</answer>", "<think>", "</think>", "<think", "<answer>x</answer>", "<think></think>", r"\boxed{",
        "```", "answer is ", "answer: 5 or the ", "#### x\n", r"\boxed{5}, ", "[THINK]", "<s>", "<answer x",
    ],
)  # fmt: skip
def test_hostile_marks_take_no_time(text: str) -> None:
    began = time.perf_counter()
    marked_answers(outside_thinking(text * 20_000))
    assert time.perf_counter() - began < 5
