"""Tasks that the fuzzer is tried on: each but the sound ones pays for something that is no right answer."""

from __future__ import annotations

import re
from collections.abc import Iterable

from grpo_core import Invalid, Row, Task, reward


class Sum(Row):
    a: int
    b: int

    @property
    def result(self) -> int:
        return self.a + self.b


class Verdict(Row):
    board: int


def sums() -> Iterable[Sum]:
    for a in range(11, 61):
        b = (a * 37) % 89 + 10
        yield Sum(id=f"{a}+{b}", gold=f" {a + b}", a=a, b=b)


def boards() -> Iterable[Verdict]:
    for board in range(50):
        yield Verdict(id=str(board), gold=str(board % 3 == 0), board=board)


def ask(row: Sum) -> str:
    return f"What is {row.a} + {row.b}?"


def ask_board(row: Verdict) -> str:
    return f"Does board {row.board} come to rest? Answer True or False."


def whole_number(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", text.strip()):
        raise Invalid("not one whole number")
    return int(text)


def any_text(text: str) -> str:
    return text


@reward()
def right(answer: int, row: Sum) -> float:
    return float(answer == row.result)


def first_integer(text: str) -> int:
    match = re.search(r"-?[0-9]{1,9}", text)
    if match is None:
        raise Invalid("no number")
    return int(match[0])


def run_text(text: str) -> int:
    try:
        return int(eval(text.strip()))  # the fault that the fuzzer has to find
    except Exception:
        raise Invalid("not an expression") from None


def slow_number(text: str) -> int:
    if re.fullmatch(r"(a|aa)+", text.strip()):
        raise Invalid("letters")
    return whole_number(text)


def crashing_number(text: str) -> int:
    return int(text)


@reward()
def contained(text: str, row: Sum) -> float:
    return float(str(row.result) in text)


@reward()
def same_truth(answer: str, row: Verdict) -> float:
    return float(bool(answer) == bool(row.gold))  # as reasoning-gym 0.1.25's game_of_life_halting


@reward()
def same_text(answer: str, row: Verdict) -> float:
    return float(answer.strip() == row.gold)


@reward(0.6)
def form(text: str) -> float:
    return float(text.startswith("<answer>") and text.endswith("</answer>"))


@reward(0.4)
def right_in_tags(text: str, row: Sum) -> float:
    return float(text == f"<answer>{row.result}</answer>")


def tagged_sums() -> Iterable[Sum]:
    for row in sums():
        yield row.model_copy(update={"gold": f"<answer>{row.result}</answer>"})


def ask_with_answer(row: Sum) -> str:
    return f"What is {row.a} + {row.b}? (Check: {row.result})"


def several_numbers(text: str) -> frozenset[int]:
    return frozenset(map(int, re.findall(r"[0-9]{1,9}", text)))


@reward()
def among(answer: frozenset[int], row: Sum) -> float:
    return float(row.result in answer)


sound_sums = Task("sound_sums", sums, ask, whole_number, (right,), row=Sum)
sound_verdicts = Task("sound_verdicts", boards, ask_board, any_text, (same_text,), row=Verdict)
substring = Task("substring", sums, ask, any_text, (contained,), row=Sum)
integer_first = Task("integer_first", sums, ask, first_integer, (right,), row=Sum)
form_first = Task("form_first", tagged_sums, ask, any_text, (form, right_in_tags), row=Sum)
answer_in_prompt = Task("answer_in_prompt", sums, ask_with_answer, whole_number, (right,), row=Sum)
truthy = Task("truthy", boards, ask_board, any_text, (same_truth,), row=Verdict)
evaluating = Task("evaluating", sums, ask, run_text, (right,), row=Sum, timeout_s=0.5)
any_of_several = Task("any_of_several", sums, ask, several_numbers, (among,), row=Sum)
backtracking = Task("backtracking", sums, ask, slow_number, (right,), row=Sum, timeout_s=0.5)
backtracking_fails = Task(
    "backtracking_fails", sums, ask, slow_number, (right,), row=Sum, timeout_s=0.5, on_timeout="fail"
)
crashing = Task("crashing", sums, ask, crashing_number, (right,), row=Sum)
declared = Task(
    "declared", sums, ask, any_text, (contained,), row=Sum, exempt={"fuzz.several": "a list is allowed here"}
)
