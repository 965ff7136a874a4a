from grpo_sdk import Invalid, Message, Opponent, Row, Task, reward


def load(config) -> list[Row]:
    return [Row(id="a"), Row(id="b")]


def prompt(row):
    return "Name a number that nobody guesses."


def validate(text, row):
    try:
        return int(text)
    except ValueError:
        raise Invalid("no number") from None


def ask(answer, row):
    if answer == 666:
        raise RuntimeError("cursed")
    return (Message(role="user", content=f"{row.id}: guess the number from {answer}"),)


@reward(maximum=1.0)
def unguessed(answer, predictions):
    return 1.0 - 2.0 * sum(guess == str(answer) for guess in predictions) / max(1, len(predictions))


guess = Task("guess", load, prompt, validate, (unguessed,), opponent=Opponent(prompt=ask, samples=4, stop=("\n",)))
