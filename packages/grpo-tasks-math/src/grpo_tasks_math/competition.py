r"""`math.competition`: MATH (Hendrycks et al., arXiv 2103.03874), answers in \boxed{…}."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from grpo_sdk import Invalid, Row, Task, reward
from grpo_sdk.data import CommaSeparated, stable_id
from grpo_sdk.rewards import marked_answers
from grpo_tasks_math.forms import Form, has_form, is_restated
from grpo_tasks_math.sources import published_rows
from grpo_tasks_math.verdicts import AnswerConfig, options_of, solved, specialize, verdict_of
from grpo_tasks_math.verify import Verdict, extract_answer, spelled

_SUBJECTS = "algebra counting_and_probability geometry intermediate_algebra number_theory prealgebra precalculus"

HUB = {
    "train": tuple(f"EleutherAI/hendrycks_math/{subject}" for subject in _SUBJECTS.split()),
    "test": ("HuggingFaceH4/MATH-500",),
}
"""MATH's train split by subject, and the 500 problems of its test split that are commonly used for evaluation."""

LEVELS = (1, 5)

_VISUAL = re.compile(r"\[asy\]|\\includegraphics|\b(?:figure|diagram|drawing|picture|pictured)s?\b", re.IGNORECASE)
_LEVEL = re.compile(r"(?:Level )?([1-5])")


class CompetitionConfig(AnswerConfig):
    """Options of `math.competition`.

    Attributes:
        min_level: Easiest level; MATH has 1 to 5. Problems without a level are used when all levels are.
        max_level: Hardest level.
        subjects: Subjects to use, separated by commas (`algebra,number theory`); all by default.
        visual: `drop` or `keep` problems that refer to a figure, which the text does not show.
    """

    min_level: int = Field(default=LEVELS[0], ge=LEVELS[0], le=LEVELS[1])
    max_level: int = Field(default=LEVELS[1], ge=LEVELS[0], le=LEVELS[1])
    subjects: CommaSeparated[str] = ()
    visual: Literal["drop", "keep"] = "drop"

    @model_validator(mode="after")
    def _levels_in_order(self) -> CompetitionConfig:
        if self.min_level > self.max_level:
            raise ValueError(f"min_level {self.min_level} is above max_level {self.max_level}")
        return self


class CompetitionRow(Row):
    r"""One problem; gold is the reference solution, difficulty the level.

    Attributes:
        problem: The problem, with LaTeX.
        answer: Content of the solution's last \boxed{…}.
        subject: Subject, such as Algebra; empty if the file has none.
        form: Form that the answer must have: expanded, factored or number (a literal, or a fraction in lowest terms).
    """

    problem: str
    answer: str
    subject: str = ""
    form: Form | None = None


def load(config: CompetitionConfig) -> Iterator[CompetitionRow]:
    """Competition problems: MATH from the hub, or a local file with problem, solution, level and type."""
    rows = published_rows(config, _row, needs=("problem", "solution"), hub=HUB, content=lambda row: row.problem)
    return (row for row in rows if _is_wanted(row, config))


def _row(record: Mapping[str, Any]) -> CompetitionRow:
    problem, solution = record["problem"], record["solution"]
    if not isinstance(problem, str) or not isinstance(solution, str):
        raise ValueError("problem and solution must be text")
    answer = last_boxed(solution)
    if not answer:
        raise ValueError(r"solution: no \boxed{…} with the answer")
    form: Any = record.get("form")
    gold = spelled(answer)
    if form in get_args(Form) and not has_form(gold, form, gold):
        raise ValueError(f"form={form!r}: the answer {answer!r} has another form itself")
    level = _LEVEL.fullmatch(str(record.get("level", "")))
    return CompetitionRow(
        id=stable_id(problem.strip()),
        problem=problem.strip(),
        answer=answer,
        subject=str(record.get("type") or record.get("subject") or ""),
        form=form,
        gold=f" {solution.strip()}",
        difficulty=float(level[1]) if level else None,
    )


def _is_wanted(row: CompetitionRow, config: CompetitionConfig) -> bool:
    if config.visual == "drop" and _VISUAL.search(row.problem):
        return False
    if config.subjects and _plain(row.subject) not in map(_plain, config.subjects):
        return False
    if row.difficulty is None:
        return (config.min_level, config.max_level) == LEVELS
    return config.min_level <= row.difficulty <= config.max_level


def _plain(subject: str) -> str:
    """`Counting & Probability` and `counting_and_probability` are one subject."""
    return subject.lower().replace("&", "and").replace("_", " ").strip()


def last_boxed(text: str) -> str:
    r"""Return the content of the last \boxed{…} with balanced braces (\fbox and `\boxed 5` too), or an empty text.

    Boxes that are joined, `\boxed{1}` and `\boxed{2}`, are one list.
    """
    box = marked_answers(text, "box").get("box")
    return ", ".join(box.contents).strip() if box else ""


def prompt(row: CompetitionRow) -> str:
    r"""The instruction and the problem."""
    return (
        "Solve the problem step by step and put the final answer inside \\boxed{}.\n\n"
        f"Problem: {row.problem}\nSolution:"
    )


def _own_solution(text: str) -> str:
    return text.partition("\nProblem:")[0]


def validate(text: str, row: CompetitionRow, config: CompetitionConfig) -> Verdict:
    """Return the verifier's verdict on the answer; wrong for one that leaves the problem's formula to the verifier.

    Raises:
        Invalid: the completion has no answer.
        TimeoutError: the verifier ran out of time, so the completion fails (`on_timeout`).
    """
    solution = _own_solution(text)
    verdict, why = verdict_of(row.answer, solution, config, "box")
    if verdict is Verdict.UNPARSABLE:
        raise Invalid(why)
    if verdict is Verdict.CORRECT:
        answer, gold = extract_answer(solution, options_of(config, "box")["reading"]) or "", spelled(row.answer)
        if is_restated(answer, gold, row.problem) or (row.form and not has_form(answer, row.form, gold)):
            return Verdict.WRONG
    return verdict


@reward(1.0, maximum=2.0)
def accuracy(answer: Verdict) -> float:
    """2.0 for a right answer, 0.0 otherwise."""
    return 2.0 * solved(answer)


@reward(0.2)
def boxed(text: str) -> float:
    r"""1 when the completion holds a \boxed{…} that is not empty."""
    return float(bool(last_boxed(_own_solution(text))))


TASK = Task(
    "competition",
    load,
    prompt,
    validate,
    (accuracy, boxed),
    config=CompetitionConfig,
    row=CompetitionRow,
    version="2",
    solved=solved,
    stop=("\nProblem:",),
    timeout_s=10.0,  # a symbolic check takes 2 to 80 ms, or as much as is given
    on_timeout="fail",
    specialize=specialize,
)
"""Value: 2.2 for the right answer in a box, 0.2 for a box with a wrong one; with reading=free 2.0 without a box."""
