from grpo_sdk import Row, Task, reward


@reward()
def never(answer):
    return 0.0


@reward()
def counted(answer):
    return sum(map(ord, answer)) % 7 / 7


def load(config):
    return [Row(id=str(index), gold="a") for index in range(16)]


def prompt(row):
    return f"{row.id}2 + 3{row.id} ="


impossible = Task("impossible", load, prompt, lambda text, row: text, (never,), row=Row)
possible = Task("possible", load, prompt, lambda text, row: text, (counted,), row=Row)
