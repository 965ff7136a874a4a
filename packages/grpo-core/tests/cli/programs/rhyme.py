"""Tasks whose words hold control characters; `poor` cannot score its own gold, `empty` has no rows."""

from collections.abc import Iterable

from grpo_sdk import Invalid, Row, Task, TaskConfig, reward


def load(config: TaskConfig) -> Iterable[Row]:
    """Words to rhyme with."""
    return [Row(id=str(n), gold=f"gold {n}") for n in range(5)]


def validate(text: str, row: Row) -> str:
    if not text:
        raise Invalid("no line")
    return text


@reward(0.25)
def one_line(answer: str) -> float:
    return float("\n" not in answer)


@reward(0.75, needs="one_line")
def rhymes(answer: str, row: Row) -> float:
    return float(answer == row.gold)


@reward()
def broken(answer: str) -> float:
    raise OSError("the service is down")


couplet = Task(
    "couplet", load, lambda row: f"rhyme {row.id}\n\x1b[2J", validate, (one_line, rhymes), stop=("\n",),
    default_model="tiny", max_completion_length=9, exempt={"split": "a test"},
)  # fmt: skip
hello = ({"role": "user", "content": "hi"},)
bare = Task(
    "bare", lambda config: [Row(id="1")], lambda row: hello, validate, [one_line], row=Row,
    conditions=lambda config: {"ear": "a keen one"},
)  # fmt: skip
empty = Task("empty", lambda config: [], lambda row: "", validate, [one_line], row=Row)
poor = Task("poor", load, lambda row: "", validate, [broken], row=Row)
