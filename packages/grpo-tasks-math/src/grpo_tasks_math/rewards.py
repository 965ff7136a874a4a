"""Reward functions over plain text, for tasks and for any other code; none of them imports torch.

They take the completion, or the completion and the gold answer, so that any training loop can call them.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Unpack

from grpo_sdk.rewards import length_penalty as linear_length_penalty
from grpo_sdk.rewards import outside_thinking, xml_format
from grpo_tasks_math.steps import steps
from grpo_tasks_math.verify import Options, Verdict, verify
from grpo_tasks_math.verify.free import DENIALS

__all__ = [
    "accuracy",
    "length_penalty",
    "overfit_length_penalty",
    "reasoning",
    "signed_accuracy",
    "tag_correct",
    "tag_math_correct",
    "tag_pref",
    "xml_format",
]

ACCURATE = 2.0
"""Value of a right answer in `accuracy`: twice the most that reasoning and format can add."""


def accuracy(completion: str, gold: str, **options: Unpack[Options]) -> float:
    """Return 2·[the final answer equals `gold`].

    An answer whose symbolic check runs out of time or memory counts as wrong, here and in the other rewards: no
    completion raises. `options` are `decimals`, `rel_tol` and `reading` of `verify`, here and below.

    Examples:
        >>> from grpo_tasks_math.rewards import accuracy
        >>> accuracy("48 / 2 = 24, so the answer is 24.", "24"), accuracy("The answer is 12.", "24")
        (2.0, 0.0)
    """
    return ACCURATE * _is_correct(gold, completion, options)


def reasoning(completion: str) -> float:
    """Return the share of written steps whose arithmetic is true, among the first `steps.MAX_STEPS` (16) distinct ones.

    A step is an equation with an operation, `48/2 = 24`, `$3 * 1,000 = $3,000` or `<<48/2=24>>`; see `steps`. 0 without
    a step. Length alone earns nothing: words, further true steps and repeated steps do not raise the share.

    Examples:
        >>> from grpo_tasks_math.rewards import reasoning
        >>> reasoning("48 / 2 = 24 and 24 + 3 = 28"), reasoning("It is 27.")
        (0.5, 0.0)
    """
    written = steps(completion)
    return sum(written.values()) / len(written) if written else 0.0


MENTIONED = 0.5
MAX_NUMBERS = 3
"""Most different numbers behind the last sign of equality, or in a text without one, of which one can be a mention."""


def signed_accuracy(completion: str, gold: str, **options: Unpack[Options]) -> float:
    """Return +1 for a right final answer, +0.5 if the gold is only mentioned, −1 otherwise.

    A mention is a whole number equal to the gold, or the gold's words between word boundaries: "112" does not mention
    12, "-12" and "12%" do not, "$1,200" mentions 1200. It stands behind the thinking and the last sign of equality,
    among three numbers at most, in a clause that denies nothing.

    Examples:
        >>> from grpo_tasks_math.rewards import signed_accuracy
        >>> signed_accuracy("The answer is 12.", "12"), signed_accuracy("Of 12 apples 5 are left: 5.", "12")
        (1.0, 0.5)
    """
    if _is_correct(gold, completion, options):
        return 1.0
    return MENTIONED if is_mentioned(gold, outside_thinking(completion)) else -1.0


_NUMBER = re.compile(
    r"(?<![\w.,])(?P<sign>[-+\u2212]?)[$€£]?"
    r"(?P<digits>(?>[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]{1,300}+)(?:\.[0-9]{1,300})?)(?!\w|[.,][0-9]|\s?\\?%)"
)
_CLAUSE_END = re.compile(r"[\n;!?]|[.,](?![0-9])")
_GOLD_NUMBER = re.compile(r"\s*(?P<sign>[-+\u2212]?)\$?(?P<digits>[0-9][0-9,]{0,299}(?:\.[0-9]{1,300})?)\s*")


def is_mentioned(gold: str, text: str) -> bool:
    """Whether `text` contains the gold as a whole number, or as whole words where it is none.

    A number is mentioned behind the last sign of equality, and not among more than `MAX_NUMBERS` different numbers.
    """
    number = _GOLD_NUMBER.fullmatch(gold)
    text = text if number is None else text.rpartition("=")[2]
    stated = "\n".join(clause for clause in _CLAUSE_END.split(text) if DENIALS.search(clause) is None)
    if number is None:
        words = gold.strip()
        return bool(words) and re.search(rf"(?<!\w){re.escape(words)}(?!\w)", stated, re.IGNORECASE) is not None
    return len(_numbers(text)) <= MAX_NUMBERS and _signed(number["sign"], number["digits"]) in _numbers(stated)


def _numbers(text: str) -> set[Fraction]:
    return {_signed(sign, digits) for sign, digits in {*_NUMBER.findall(text)}}


def _signed(sign: str, digits: str) -> Fraction:
    value = Fraction(digits.replace(",", ""))
    return -value if sign in ("-", "\u2212") else value


FREE_CHARS, FULL_CHARS, LARGEST_PENALTY = 20, 100, 0.5
"""The reference recipe's quadratic length penalty (pippa's train_grpo.py)."""


def length_penalty(completion: str) -> float:
    """Return 0 up to 20 characters, −0.5·((n − 20)/80)² up to 100, then −0.5.

    Examples:
        >>> from grpo_tasks_math.rewards import length_penalty
        >>> length_penalty("short"), length_penalty("x" * 60), length_penalty("x" * 100)
        (-0.0, -0.125, -0.5)
    """
    excess = (len(completion) - FREE_CHARS) / (FULL_CHARS - FREE_CHARS)
    return -LARGEST_PENALTY * min(1.0, max(0.0, excess)) ** 2


def overfit_length_penalty(completion: str) -> float:
    """Return 0 up to 50 characters, falling linearly to −0.1 at 200, then −0.1 (pippa's train_grpo_overfit.py).

    Examples:
        >>> from grpo_tasks_math.rewards import overfit_length_penalty
        >>> overfit_length_penalty("x" * 125)
        -0.05
    """
    return linear_length_penalty(completion, free_chars=50, max_chars=200, most=0.1)


def tag_pref(completion: str, gold: str, w_tag: float = 0.0, w_ans: float = 1.0, **options: Unpack[Options]) -> float:
    """Return w_tag·[exactly one `<answer>` block] + w_ans·[the last block's inside equals `gold`].

    A block inside `<think>…</think>` counts as a block but holds no answer.

    Examples:
        >>> from grpo_tasks_math.rewards import tag_pref
        >>> tag_pref("<answer>4</answer>", "4", w_tag=0.5), tag_pref("<answer>5</answer>", "4", w_tag=0.5)
        (1.5, 0.5)
    """
    return w_tag * has_one_answer_block(completion) + w_ans * _is_block_correct(completion, gold, options)


def tag_math_correct(completion: str, gold: str, **options: Unpack[Options]) -> float:
    """Return [exactly one `<answer>` block]·[its inside equals `gold`].

    Examples:
        >>> from grpo_tasks_math.rewards import tag_math_correct
        >>> tag_math_correct("<answer>8/2</answer>", "4"), tag_math_correct("4", "4")
        (1.0, 0.0)
    """
    return float(has_one_answer_block(completion) and _is_block_correct(completion, gold, options))


def has_one_answer_block(completion: str) -> bool:
    """Whether there is one `<answer>`, one `</answer>`, and they are in that order."""
    opened, closed = "<answer>", "</answer>"
    return completion.count(opened) == completion.count(closed) == 1 and completion.index(opened) < completion.index(
        closed
    )


def tag_correct(completion: str) -> float:
    """Return 1 if the text ends with `</think>`, white space and one `<answer>…</answer>`, else 0; a metric of form.

    Examples:
        >>> from grpo_tasks_math.rewards import tag_correct
        >>> tag_correct("2 + 2</think> <answer>4</answer>"), tag_correct("<answer>4</answer>")
        (1.0, 0.0)
    """
    text = completion.rstrip()
    if not text.endswith("</answer>"):
        return 0.0
    before, opened, inside = text.removesuffix("</answer>").rpartition("<answer>")
    return float(bool(opened) and "</answer>" not in inside and before.rstrip().endswith("</think>"))


def _is_block_correct(completion: str, gold: str, options: Options) -> bool:
    before, closed, _ = outside_thinking(completion).rpartition("</answer>")
    _, opened, inside = before.rpartition("<answer>")
    return bool(closed and opened) and _is_correct(gold, f"<answer>{inside}</answer>", options)


def _is_correct(gold: str, completion: str, options: Options) -> bool:
    return verify(gold, completion, **options) is Verdict.CORRECT
