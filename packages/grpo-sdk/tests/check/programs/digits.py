"""A task whose golds are digits; tests change how golds are written, what prompts add, and whether `respond` fails."""

from grpo_sdk import Invalid, Row, Task, reward

FRAME, ASKED, FAILS = "{}", "", False


class Digit(Row):
    n: int


def load(config):
    return [Digit(id=f"{n}", gold=FRAME.format(n % 9 + 1), n=n) for n in range(50, 110)]


def validate(text):
    digit = text.strip().removeprefix("<answer>").removesuffix("</answer>")
    if digit not in "123456789" or len(digit) != 1:
        raise Invalid("no digit from 1 to 9")
    return int(digit)


@reward()
def exact(answer, row):
    return float(answer == row.n % 9 + 1)


def again(text, row, turn):
    if turn == 3 and FAILS:
        raise ValueError(turn)
    return f"No. That was try {turn} of 9."


digit = Task(
    "digit",
    load,
    lambda row: f"{row.n} modulo nine, plus one" + ASKED,
    validate,
    (exact,),
    row=Digit,
    respond=again,
    max_turns=9,
)
