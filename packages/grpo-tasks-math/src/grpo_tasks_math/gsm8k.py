"""`math.gsm8k`: grade-school word problems (Cobbe et al., arXiv 2110.14168)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from pydantic import model_validator

from grpo_sdk import Invalid, Row, Task, reward
from grpo_sdk.data import stable_id
from grpo_sdk.rewards import cut_at_stop, xml_format
from grpo_tasks_math import rewards
from grpo_tasks_math.sources import published_rows
from grpo_tasks_math.verdicts import AnswerConfig, options_of, solved, specialize, verdict_of
from grpo_tasks_math.verify import Reading, Verdict

Form = Literal["auto", "raw", "latex"]
Preset = Literal["accuracy", "signed", "tag_pref", "tag_math_correct"]
Template = Literal["plain", "r1", "few_shot"]

HUB = {"train": ("openai/gsm8k/main",), "test": ("openai/gsm8k/main",)}


class GSM8KConfig(AnswerConfig):
    """Options of `math.gsm8k`.

    Attributes:
        template: `plain` (ends with `#### N`), `r1` (think and answer tags) or `few_shot` (four worked examples).
        form: Format of the file: `raw` {question, answer}, `latex` {index, text}, or `auto`, by each record's fields.
        rewards: `accuracy` (2.0 or 0, with small rewards for form and true reasoning), `signed` (+1, +0.5 for a
            mention, −1), `tag_pref` (right inside an answer tag) or `tag_math_correct` (that, and exactly one tag).
    """

    template: Template = "plain"
    form: Form = "auto"
    rewards: Preset = "accuracy"

    @model_validator(mode="after")
    def _tags_need_their_template(self) -> GSM8KConfig:
        if self.rewards in ("tag_pref", "tag_math_correct") and self.template != "r1":
            raise ValueError(f"rewards={self.rewards} looks for <answer> tags, which only template=r1 asks for")
        return self


class GSM8KRow(Row):
    """One problem; its difficulty is the number of lines of the reference solution.

    Attributes:
        question: The problem.
        answer: The final number, without thousands separators.
    """

    question: str
    answer: str


def load(config: GSM8KConfig) -> Iterator[GSM8KRow]:
    """Grade-school word problems: openai/gsm8k from the hub, or a local file of either form."""
    return published_rows(config, lambda record: _row(record, config), hub=HUB, content=lambda row: row.question)


MAX_ANSWER_CHARS = 100
"""A longer final answer is a mistake in the file."""

_ANNOTATION = re.compile(r"<<[^<>\n]{0,200}>>")
"""Calculator annotations such as `<<48/2=24>>`: meant for a calculator tool, and not for the model to write."""


def _row(record: Mapping[str, Any], config: GSM8KConfig) -> GSM8KRow:
    question, reasoning, answer = map(str.strip, _parts(record, config.form))
    reasoning, answer = _ANNOTATION.sub("", reasoning).strip(), answer.replace(",", "")
    if not question:
        raise ValueError("an empty question")
    if not 0 < len(answer) <= MAX_ANSWER_CHARS:
        raise ValueError(f"a final answer of {len(answer)} characters; 1 to {MAX_ANSWER_CHARS} are allowed")
    return GSM8KRow(
        id=stable_id(question),
        question=question,
        answer=answer,
        gold=make_gold(reasoning, answer, config.template),
        difficulty=float(sum(bool(line.strip()) for line in reasoning.splitlines())),
    )


def _parts(record: Mapping[str, Any], form: Form) -> tuple[str, str, str]:
    """Return question, reasoning and final answer of a record of either published format.

    `raw` is {question, answer}, `latex` {index, text} with think and answer tags; `auto` is `latex` for a record that
    has `text` and no `question`.
    """
    if form == "auto":
        form = "latex" if "text" in record and "question" not in record else "raw"
    if form == "raw":
        question = _text(record, "question")
        reasoning, mark, answer = _text(record, "answer").rpartition("####")
        if not mark:
            raise ValueError("answer: no #### before the final number")
        return question, reasoning, answer
    question, opened, rest = _text(record, "text").partition("<think>")
    reasoning, thought, rest = rest.partition("</think>")
    between, answered, rest = rest.partition("<answer>")
    answer, closed, after = rest.partition("</answer>")
    if not (opened and thought and answered and closed) or between.strip() or after.strip():
        raise ValueError("text: not of the form question <think>…</think> <answer>…</answer>")
    return question, reasoning, answer


def _text(record: Mapping[str, Any], field: str) -> str:
    if field not in record:
        raise ValueError(
            f"no field {field!r}. It has: {', '.join(map(str, record))}. Wanted are question and answer, or text alone "
            f"(?form=latex). Say where it is with ?fields={field}:COLUMN."
        )
    value = record[field]
    if not isinstance(value, str):
        raise ValueError(f"{field}: a {type(value).__name__} where text is wanted")
    return value


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


def make_gold(reasoning: str, answer: str, template: Template) -> str:
    """Return the reference solution as a completion of the template's prompt."""
    if template == "r1":
        return f"\n{reasoning}\n</think>\n<answer>\n{answer}\n</answer>"
    return f" {reasoning}\n#### {answer}"


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


def prompt(row: GSM8KRow, config: GSM8KConfig) -> str:
    """The question in the configured template."""
    match config.template:
        case "plain":
            return PLAIN.format(question=row.question)
        case "r1":
            return R1.format(question=row.question)
        case "few_shot":
            blocks = [f"Question: {q}\nAnswer: {reasoning}\n#### {answer}\n\n" for q, reasoning, answer in EXAMPLES]
            return f"{''.join(blocks)}Question: {row.question}\nAnswer:"


def validate(text: str, row: GSM8KRow, config: GSM8KConfig) -> Verdict:
    """Return the verifier's verdict on the answer.

    Raises:
        Invalid: the completion has no answer.
        TimeoutError: the verifier ran out of time, so the completion fails (`on_timeout`).
    """
    verdict, why = _verdict(text, row, config)
    if verdict is Verdict.UNPARSABLE:
        raise Invalid(why)
    return verdict


def _verdict(text: str, row: GSM8KRow, config: GSM8KConfig) -> tuple[Verdict, str]:
    return verdict_of(row.answer, whole_answer(text, config.template), config, MARKS[config.template])


@reward(1.0, maximum=2.0)
def accuracy(text: str, row: GSM8KRow, config: GSM8KConfig) -> float:
    """2.0 for a right answer, 0.0 otherwise; other `rewards` presets give their own value, at most 1.0."""
    if config.rewards == "accuracy":
        return 2.0 * solved(_verdict(text, row, config)[0])
    presets = {
        "signed": rewards.signed_accuracy,
        "tag_pref": rewards.tag_pref,
        "tag_math_correct": rewards.tag_math_correct,
    }
    return presets[config.rewards](
        whole_answer(text, config.template), row.answer, **options_of(config, MARKS[config.template])
    )


@reward(0.2)
def reasoning(text: str, row: GSM8KRow, config: GSM8KConfig) -> float:
    """Quality of the reasoning relative to the reference solution: min(1, q(text) / q(gold)), q as in `rewards`.

    If the reference shows no arithmetic, 1 for a right answer. 0 with another preset.
    """
    if config.rewards != "accuracy":
        return 0.0
    reference = _reference_quality(row.gold or "")
    if reference == 0.0:
        return float(solved(_verdict(text, row, config)[0]))
    return min(1.0, rewards.reasoning(whole_answer(text, config.template)) / reference)


_reference_quality = lru_cache(maxsize=64)(rewards.reasoning)  # the completions of a group share their row


@reward(0.2)
def format(text: str, config: GSM8KConfig) -> float:
    """1 when the completion has the form that its prompt requests; 0 with another preset."""
    return float(config.rewards == "accuracy" and has_form(text, config.template))


TASK = Task(
    "gsm8k",
    load,
    prompt,
    validate,
    (accuracy, reasoning, format),
    config=GSM8KConfig,
    row=GSM8KRow,
    version="2",
    solved=solved,
    stop=STOP,
    timeout_s=10.0,  # a symbolic check takes 2 to 80 ms, or as much as is given
    on_timeout="fail",
    specialize=specialize,
)
"""Value: 2.4 for the right answer in the right form with true reasoning; 2.0 for the answer alone."""
