"""Prompt templates of GSM8K, and gold completions in the form that each requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from grpo_sdk.rewards import cut_at_stop, xml_format
from grpo_tasks_math.gsm8k.rows import Solution
from grpo_tasks_math.verify import Reading

Template = Literal["plain", "r1", "few_shot"]

MARKS: Mapping[Template, Reading] = {"plain": "####", "r1": "tag", "few_shot": "####"}
"""Template -> the mark that it asks for."""

PLAIN = (
    "Solve the problem step by step. End with a line that holds #### and the answer as a number.\n\n"
    "Question: {question}\nAnswer:"
)

R1 = (
    "Solve the math problem by reasoning about it first and then giving a final answer. "
    "The reasoning goes inside <think> </think> tags, the final answer inside <answer> </answer> tags.\n"
    "Question: {question}\nResponse: <think>"
)
"""Opens <think>, so that completions start inside it."""

EXAMPLES = (
    (
        "Nora picks 14 pears in the morning and 9 in the afternoon. She eats 3 of them. How many pears are left?",
        "Nora picks 14 + 9 = 23 pears.\nAfter eating 3 she has 23 - 3 = 20 pears.",
        "20",
    ),
    (
        "A baker sells loaves for $4 each. On Friday he sells 25 loaves, on Saturday twice as many. "
        "How many dollars does he take in on the two days?",
        "On Saturday he sells 25 * 2 = 50 loaves.\nTogether he sells 25 + 50 = 75 loaves.\nHe takes in 75 * 4 = 300 "
        "dollars.",
        "300",
    ),
    (
        "A school has 240 pupils. One quarter of them walk to school, and half of the others take the bus. "
        "How many pupils take the bus?",
        "240 / 4 = 60 pupils walk.\nThe others are 240 - 60 = 180 pupils.\n180 / 2 = 90 pupils take the bus.",
        "90",
    ),
    (
        "Ravi saves $15 a week for 6 weeks and then spends $48 on a lamp. How many dollars does he have left?",
        "Ravi saves 15 * 6 = 90 dollars.\nHe has 90 - 48 = 42 dollars left.",
        "42",
    ),
)
"""Worked examples (question, reasoning, answer), written for this package: none is from the dataset."""

STOP = ("</answer>", "\nQuestion:")
"""Stop strings: the closing tag of `r1`; for the others the start of another question."""


def make_prompt(question: str, template: Template) -> str:
    """Return the prompt of a question."""
    match template:
        case "plain":
            return PLAIN.format(question=question)
        case "r1":
            return R1.format(question=question)
        case "few_shot":
            blocks = [f"Question: {q}\nAnswer: {reasoning}\n#### {answer}\n\n" for q, reasoning, answer in EXAMPLES]
            return f"{''.join(blocks)}Question: {question}\nAnswer:"


def make_gold(solution: Solution, template: Template) -> str:
    """Return the reference solution as a completion of the template's prompt."""
    if template == "r1":
        return f"\n{solution.reasoning}\n</think>\n<answer>\n{solution.answer}\n</answer>"
    return f" {solution.reasoning}\n#### {solution.answer}"


def whole_answer(text: str, template: Template) -> str:
    """Return a completion up to its stop string, with `r1`'s opening tag restored."""
    opened = "<think>" if template == "r1" else ""
    return cut_at_stop(f"{opened}{text}", STOP)[0].removesuffix(STOP[1])


def has_form(text: str, template: Template) -> bool:
    """Return whether a completion has the form that its prompt requests.

    `r1`: the rest of one think block and one answer block, and nothing else. Others: exactly one ####, which starts the
    last line and is followed by text.
    """
    if template == "r1":
        return xml_format(text, opened="think") == 1.0
    answer = whole_answer(text, template).strip()
    last = answer.rpartition("\n")[2]
    return answer.count("####") == 1 and last.startswith("####") and last != "####"
