"""Tasks whose policy runs code: sums in an interpreter, files in a shell."""

import re
from collections.abc import Iterable

from grpo_sdk import Invalid, Row, Task, TaskConfig, reward
from grpo_tasks_code.sessions import PythonSession, ShellSession


class Numbers(Row):
    numbers: tuple[int, ...] = ()


def load(config: TaskConfig) -> Iterable[Numbers]:
    start = 1 if config.split == "train" else 100
    return [Numbers(id=str(size), numbers=tuple(range(start, start + size))) for size in (3, 5)]


class Sums(PythonSession):
    timeout_s = 2.0

    def reset(self, row: Numbers) -> None:
        self.python(f"numbers = {list(row.numbers)}")


def total_of(text: str) -> int:
    if not (found := re.findall(r"-?\d+", text)):
        raise Invalid("no number")
    return int(found[-1])


@reward()
def right(answer: int, row: Numbers) -> float:
    return float(answer == 2 * sum(row.numbers))


SUMS = Task(
    "sums",
    load,
    lambda row: "Twice the sum of `numbers`?",
    total_of,
    (right,),
    environment=Sums,
    conditions=Sums.conditions,
    max_turns=6,
)


class Files(ShellSession):
    timeout_s = 2.0

    def reset(self, row: Numbers) -> None:
        self.put({f"in/{number}.txt": f"{number}\n" for number in row.numbers})


def written(text: str, environment: Files) -> int:
    if (content := environment.read("total.txt")) is None:
        raise Invalid("there is no total.txt")
    return total_of(content.decode("utf-8", "replace"))


FILES = Task(
    "files",
    load,
    lambda row: "Write twice the sum of the files in `in` to total.txt.",
    written,
    (right,),
    environment=Files,
    conditions=Files.conditions,
    max_turns=6,
)
