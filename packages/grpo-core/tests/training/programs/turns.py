from grpo_sdk import Row, Task, reward


def load(config) -> list[Row]:
    return [Row(id=str(n), gold=str(n)) for n in range(8)]


def prompt(row):
    return f"{row.id} + 1 ="


def respond(text, row, turn):
    return None if turn == 1 and row.id in "0246" else f" no. {row.id}+1="


def fail(text, row):
    if "7" in text:
        raise RuntimeError("boom")
    return text


@reward()
def digits(text):
    return sum(character.isdigit() for character in text) / max(1, len(text))


limits = {"max_turns": 2, "respond": respond, "max_completion_length": 4, "stop": ("3",)}
turns = Task("turns", load, prompt, lambda text, row: text, (digits,), **limits)
faulty = Task("faulty", load, prompt, fail, (digits,), max_completion_length=4)
