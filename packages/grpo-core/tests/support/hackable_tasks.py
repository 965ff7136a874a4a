"""Tasks that the fuzzer is tried on: each but the sound ones pays for something that is no right answer."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from grpo_sdk import Invalid, Row, Task, reward
from grpo_sdk.judges import Endpoint, rubric


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


def number_in_tags(text: str) -> int:
    match = re.fullmatch(r"<answer>([0-9]{1,9})</answer>", text.strip())
    if match is None:
        raise Invalid("no answer within <answer> tags")
    return int(match[1])


def several_numbers(text: str) -> frozenset[int]:
    return frozenset(map(int, re.findall(r"[0-9]{1,9}", text)))


@reward()
def among(answer: frozenset[int], row: Sum) -> float:
    return float(row.result in answer)


def some_number(text: str) -> float:
    try:
        return float(text[:50])
    except ValueError:
        raise Invalid("no number") from None


def small_sums() -> Iterable[Sum]:
    for a in range(1, 9):
        for b in range(4, 9):
            yield Sum(id=f"{a}+{b}", gold=str(a + b), a=a, b=b)


def two_digits() -> Iterable[Sum]:
    for a in range(10, 50):
        yield Sum(id=str(a), gold=str(a + 5), a=a, b=5)


def pays(condition: Callable[[str, str], bool]) -> Any:
    """A reward that compares a text with the row's gold."""

    def paid(text: str, row: Row) -> float:
        return float(condition(text.strip()[:100], str(row.gold).strip()))

    return reward()(paid)


def sums_by(name: str, condition: Callable[[str, str], bool]) -> Task:
    return Task(name, sums, ask, any_text, (pays(condition),), row=Sum)


@reward()
def not_far(answer: float, row: Sum) -> float:
    return float(not abs(answer - row.result) > 0.01)  # nan is not far from any number


@reward()
def same_whole(answer: float, row: Sum) -> float:
    return float(abs(answer) < 1e9 and int(answer) == row.result)


@reward()
def within_5_percent(answer: float, row: Sum) -> float:
    return float(abs(answer - row.result) <= 0.05 * row.result)


class Word(Row):
    word: str


def words() -> Iterable[Word]:
    for place, word in enumerate(("apple", "cherry", "damson", "grape", "lemon", "olive", "quince", "walnut")):
        yield from (
            Word(id=f"{place} {end}", gold=f"{word}{end}"[::-1], word=f"{word}{end}") for end in ("ing", "ed", "ist")
        )


def words_by(name: str, condition: Callable[[str, str], bool]) -> Task:
    return Task(name, words, lambda row: f"Reverse {row.word}:", any_text, (pays(condition),), row=Word)


clear = rubric("The text is clear.", model=Endpoint("http://localhost:9/v1", "nobody"), name="clear", max_chars=1000)

nan_equal = Task("nan_equal", sums, ask, some_number, (not_far,), row=Sum)
truncated = Task("truncated", small_sums, ask, some_number, (same_whole,), row=Sum)
tolerant = Task("tolerant", sums, ask, some_number, (within_5_percent,), row=Sum)
tolerant_small = Task("tolerant_small", small_sums, ask, some_number, (within_5_percent,), row=Sum)
part_of_gold = sums_by("part_of_gold", lambda text, gold: bool(text) and text in gold)
same_characters = sums_by("same_characters", lambda text, gold: set(text) == set(gold))
same_length = sums_by("same_length", lambda text, gold: len(text) == len(gold))
same_parity = sums_by("same_parity", lambda text, gold: text.isdecimal() and int(text) % 2 == int(gold) % 2)
without_zeros = sums_by("without_zeros", lambda text, gold: text.rstrip("0") == gold.rstrip("0"))
some_letters = words_by("some_letters", lambda text, gold: len(set(text) & set(gold)) >= 3)
sound_words = words_by("sound_words", lambda text, gold: text.casefold() == gold)
sound_sums = Task("sound_sums", sums, ask, whole_number, (right,), row=Sum)
sound_tags = Task("sound_tags", tagged_sums, ask, number_in_tags, (right,), row=Sum)
sound_verdicts = Task(
    "sound_verdicts", boards, ask_board, any_text, (pays(lambda text, gold: text == gold),), row=Verdict
)
substring = Task("substring", sums, ask, any_text, (contained,), row=Sum)
form_first = Task("form_first", tagged_sums, ask, any_text, (form, right_in_tags), row=Sum)
answer_in_prompt = Task("answer_in_prompt", sums, ask_with_answer, whole_number, (right,), row=Sum)
# As reasoning-gym 0.1.25's game_of_life_halting.
truthy = Task("truthy", boards, ask_board, any_text, (pays(lambda text, gold: bool(text)),), row=Verdict)
evaluating = Task("evaluating", sums, ask, run_text, (right,), row=Sum, timeout_s=0.5)
any_of_several = Task("any_of_several", sums, ask, several_numbers, (among,), row=Sum)
backtracking = Task("backtracking", sums, ask, slow_number, (right,), row=Sum, timeout_s=0.5)
backtracking_fails = Task(
    "backtracking_fails", sums, ask, slow_number, (right,), row=Sum, timeout_s=0.5, on_timeout="fail"
)
longer = Task("longer", two_digits, ask, any_text, (pays(lambda text, gold: text.startswith(gold)),), row=Sum)
judged = Task("judged", sums, ask, any_text, (pays(lambda text, gold: len(text) < 20), clear), row=Sum)
judged_crashing = Task("judged_crashing", sums, ask, crashing_number, (right, clear), row=Sum)
crashing = Task("crashing", sums, ask, crashing_number, (right,), row=Sum)
declared = Task(
    "declared", sums, ask, any_text, (contained,), row=Sum, exempt={"fuzz.several": "a list is allowed here"}
)
